"""Blendex builds, keeps and serves the indexes that make speech training data randomly accessible."""

__version__ = "0.1.0"
