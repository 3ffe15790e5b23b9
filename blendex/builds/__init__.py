"""Builds: from a submission to a published mirror, and everything a user may do to one on the way."""
