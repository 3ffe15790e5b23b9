"""Lint and migrate: what must be true of a training config, its blend, launcher and storage before it resumes exactly.

Nothing here writes to a config, runs a launcher, or reads outside of what the caller's ``Ground`` allows.
"""
