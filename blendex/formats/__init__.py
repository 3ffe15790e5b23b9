"""Bytes: the sidecars of every kind, and what reading a source teaches besides offsets."""
