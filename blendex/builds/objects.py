"""Objects that units leave behind, taken over while a collector may be about."""

from __future__ import annotations

import os

from sqlalchemy.orm import Session

from blendex.builds.site import Site
from blendex.catalog import builds, sources, states
from blendex.catalog.models import Unit


class ObjectGoneError(Exception):
    """A unit found its object there already, and a collector took it before that was told."""


def add_object(site: Site, session: Session, name: str, size: int) -> int:
    """The row of an object, locked, with a file behind it: from now on no collector takes it.

    Raises:
        ObjectGoneError: the file is gone; the transaction must come to nothing.
    """
    number = sources.add_object(session, name, size)
    if not os.path.exists(site.root.object(name)):
        raise ObjectGoneError(name)
    return number


def do_again(site: Site, unit: Unit) -> bool:
    """Hand a unit back whose object is gone, at no cost to it; False when the lease was lost."""
    with site.work.write() as session:
        if not states.hand_back(session, unit.id, unit.fence, count=False):
            return False
        builds.wake(session, unit.work)
    return True
