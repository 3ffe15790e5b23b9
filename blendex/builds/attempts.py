"""Attempts at units."""

from __future__ import annotations

from typing import Any

from blendex.builds.site import Site
from blendex.catalog.models import Unit
from blendex.catalog.units import PRIORITY
from blendex.runtime.slots import Call


def attempt(unit: Unit) -> str:
    """The name of one attempt at a unit, for its private files: nobody else ever uses it."""
    return f"{unit.build}.{unit.id}-{unit.fence}"


def priority_of(unit: Unit) -> int:
    """The priority of the build that a unit is made for."""
    return (unit.priority - PRIORITY[unit.work]) // 10


def call_of(site: Site, unit: Unit, function: str, arguments: dict[str, Any]) -> Call:
    """The call of a unit that reads sources: its memory, its deadline, and for how long it may stand still."""
    return Call(function, arguments, unit.memory, site.settings.unit_seconds, site.settings.stall_seconds)
