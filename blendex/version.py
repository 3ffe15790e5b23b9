"""The version, for receipts and answers."""

__version__ = "0.1.0"
