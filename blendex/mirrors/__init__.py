"""Mirrors: what they are called, what they are made of, how they are found."""
