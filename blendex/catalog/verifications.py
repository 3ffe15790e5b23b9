"""Verifications: what came of reading a mirror whole, the last time for each mirror."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from blendex.catalog import dialect
from blendex.catalog.models import Verification

# Faults and paths that are kept of one; all of them are counted.
FIRST = 20


def begin(session: Session, mirror: str, *, with_sources: bool, patience: float) -> bool:
    """Note that one begins; False when one is under way that began less than ``patience`` seconds ago."""
    now = dialect.now(session)
    values = {
        "state": "running", "with_sources": with_sources, "sources": 0, "faults": [], "fault_count": 0, "changed": [],
        "changed_count": 0, "error": None, "began_at": now, "ended_at": None,
    }  # fmt: skip
    statement = dialect.insert(session, Verification).values(mirror=mirror, **values)
    begun = session.execute(
        statement.on_conflict_do_update(
            index_elements=["mirror"],
            set_=values,
            where=(Verification.state != "running") | (Verification.began_at < now - patience),
        ).returning(Verification.mirror)
    )
    return begun.scalar_one_or_none() is not None


def end(session: Session, mirror: str, state: str, *, result: dict[str, Any], error: dict[str, Any] | None) -> None:
    """Keep what came of it."""
    faults, changed = result.get("faults", []), result.get("changed", [])
    session.execute(
        update(Verification)
        .where(Verification.mirror == mirror)
        .values(
            state=state, sources=result.get("sources", 0), faults=faults[:FIRST], fault_count=len(faults),
            changed=changed[:FIRST], changed_count=len(changed), error=error, ended_at=dialect.now(session),
        )
        .execution_options(synchronize_session=False)
    )  # fmt: skip


def of(session: Session, mirrors: Sequence[str]) -> dict[str, Verification]:
    """The last one of each of these mirrors, by key; those that nobody asked for are left out."""
    rows = session.execute(select(Verification).where(dialect.one_of(session, Verification.mirror, mirrors)))
    return {row.mirror: row for row in rows.scalars()}
