"""Where sources are read, and where Blendex keeps what it made."""
