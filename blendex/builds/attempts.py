"""Attempts at units."""

from __future__ import annotations

from blendex.catalog.models import Unit


def attempt(unit: Unit) -> str:
    """The name of one attempt at a unit, for its private files: nobody else ever uses it."""
    return f"{unit.build}.{unit.id}-{unit.fence}"
