"""What the root holds, as the catalog knows it: files and bytes of our own, whatever ``statfs`` says.

A quota of a project does not show in ``statfs``, and a shared filesystem is full of what others keep there.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from blendex.catalog.models import Content, Mirror, Name, Object, Pack

# Folder, receipt, list of sources, READY, the archived receipt, and a build's folder with its five files.
FILES_OF_A_MIRROR = 12


@dataclass(frozen=True, slots=True)
class Usage:
    """Files and bytes."""

    files: int
    bytes: int


def _objects(session: Session, *where: object) -> Usage:
    statement = select(func.count(), func.coalesce(func.sum(Object.size), 0)).select_from(Object)
    count, size = session.execute(statement.where(Object.state == "live", *where)).one()  # type: ignore[arg-type]
    return Usage(int(count), int(size))


def _mirrors(session: Session, *where: object) -> Usage:
    statement = select(
        func.count(), func.coalesce(func.sum(Mirror.own_files), 0), func.coalesce(func.sum(Mirror.own_bytes), 0)
    )
    count, files, size = session.execute(
        statement.where(Mirror.state == "published", *where)  # type: ignore[arg-type]
    ).one()
    return Usage(int(files) + FILES_OF_A_MIRROR * int(count), int(size))


def used(session: Session) -> Usage:
    """What all objects and mirrors take."""
    objects, mirrors = _objects(session), _mirrors(session)
    return Usage(objects.files + mirrors.files, objects.bytes + mirrors.bytes)


def unreferenced_objects(session: Session) -> Usage:
    """Objects that no content and no pack lies in: what they held was read again, and lies elsewhere."""
    holds = select(Content.id).where(Content.object == Object.id).exists()
    packs = select(Pack.digest).where(Pack.object == Object.id).exists()
    return _objects(session, ~holds, ~packs)


def unnamed_mirrors(session: Session) -> Usage:
    """Mirrors of builds that no name points at: the first that a collector would ask about."""
    from blendex.catalog.models import Build

    named = select(Build.id).join(Name, Name.build == Build.id).where(Build.mirror == Mirror.key).exists()
    return _mirrors(session, ~named)
