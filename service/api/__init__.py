"""Versions of the API."""
