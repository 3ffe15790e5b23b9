"""Packs: which object holds the pack of some collections with some contents, or why there can be none."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from blendex.catalog import dialect
from blendex.catalog.models import Object, Pack

BATCH = 500


@dataclass(frozen=True, slots=True)
class KnownPack:
    """One pack: an object with its layout hash and counts, or an error."""

    digest: str
    object: str | None
    layout_hash: str | None
    counts: dict[str, int]
    error: dict[str, Any] | None


def known(session: Session, digests: Collection[str]) -> dict[str, KnownPack]:
    """The packs of those digests that have one; an object that was lost counts as none."""
    wanted = list(digests)
    found = {}
    for start in range(0, len(wanted), BATCH):
        rows = session.execute(
            select(Pack.digest, Pack.layout_hash, Pack.counts, Pack.error, Object.name, Object.state)
            .outerjoin(Object, Object.id == Pack.object)
            .where(Pack.digest.in_(wanted[start : start + BATCH]))
        )
        for row in rows:
            if row.error is not None or row.state == "live":
                found[row.digest] = KnownPack(row.digest, row.name, row.layout_hash, row.counts or {}, row.error)
    return found


def record(
    session: Session,
    digest: str,
    *,
    object_id: int | None,
    layout_hash: str | None = None,
    counts: dict[str, int] | None = None,
    error: dict[str, Any] | None = None,
) -> None:
    """Keep what came of a pack."""
    values = {"object": object_id, "layout_hash": layout_hash, "counts": counts, "error": error}
    session.execute(
        dialect.insert(session, Pack)
        .values(digest=digest, **values)
        .on_conflict_do_update(index_elements=["digest"], set_=values)
    )
