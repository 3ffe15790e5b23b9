"""What the root holds, as the catalog knows it: files and bytes of our own, whatever ``statfs`` says.

A quota of a project does not show in ``statfs``, and a shared filesystem is full of what others keep there.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from blendex.catalog import holds, waste
from blendex.catalog.models import Mirror, Object

# Folder, receipt, list of sources, READY, the archived receipt, and a build's folder with its five files.
FILES_OF_A_MIRROR = 12


@dataclass(frozen=True, slots=True)
class Usage:
    """Files and bytes."""

    files: int
    bytes: int


def _objects(session: Session, *where: object) -> Usage:
    statement = select(func.count(), func.coalesce(func.sum(Object.size), 0)).select_from(Object)
    kept = Object.state.in_(("live", "dying"))
    count, size = session.execute(statement.where(kept, *where)).one()  # type: ignore[arg-type]
    return Usage(int(count), int(size))


def _mirrors(session: Session, *where: object) -> Usage:
    statement = select(
        func.count(), func.coalesce(func.sum(Mirror.own_files), 0), func.coalesce(func.sum(Mirror.own_bytes), 0)
    )
    count, files, size = session.execute(
        statement.where(Mirror.state != "collected", *where)  # type: ignore[arg-type]
    ).one()
    return Usage(int(files) + FILES_OF_A_MIRROR * int(count), int(size))


def used(session: Session) -> Usage:
    """What all objects and mirrors take."""
    objects, mirrors = _objects(session), _mirrors(session)
    return Usage(objects.files + mirrors.files, objects.bytes + mirrors.bytes)


def unreferenced_objects(session: Session) -> Usage:
    """Objects that no content and no pack lies in: what they held was read again, and lies elsewhere."""
    return _objects(session, waste.unreferenced())


def condemned_mirrors(session: Session) -> Usage:
    """Mirrors that a collector has marked."""
    return _mirrors(session, Mirror.state.in_(("condemned", "collecting")))


def unheld_mirrors(session: Session) -> Usage:
    """Mirrors that are not marked, and that nothing keeps but that somebody may have asked for them today."""
    return _mirrors(session, Mirror.state == "published", holds.nobody(session))
