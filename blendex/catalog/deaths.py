"""Attempts that came to nothing, and why: kept for a week, for whoever wants to know what happened to a build."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session, aliased

from blendex.catalog import dialect
from blendex.catalog.models import Death, Unit

KEEP_SECONDS = 7 * 24 * 3600.0
MOST = 100
# Leases of one worker run out within one renewal of each other.
TOGETHER_SECONDS = 60.0


def record(
    session: Session, unit: Unit, worker: str, cause: str, *, how: str = "", in_hand: str | None = None, memory: int = 0
) -> None:
    """Keep how an attempt ended."""
    session.execute(
        dialect.table(Death)
        .insert()
        .values(
            at=dialect.now(session), work=unit.work, build=unit.build, unit=unit.id, attempt=unit.fence, cause=cause,
            how=how[:64], in_hand=in_hand, memory=memory or unit.memory, worker=worker,
        )
    )  # fmt: skip


def lost(session: Session, ids: list[int], workers: Mapping[int, str]) -> None:
    """Keep that the leases of these units ran out, and which worker was lost with each."""
    for unit in session.execute(select(Unit).where(dialect.one_of(session, Unit.id, ids))).scalars():
        record(session, unit, workers.get(unit.id, ""), "lost_lease")


def lost_alone(session: Session, unit: int) -> int:
    """How often a unit was the only one that was lost with its worker.

    A worker that somebody kills, or that a node takes with it, loses all it has at once: that says nothing of any of
    its units.
    """
    mine, other = aliased(Death), aliased(Death)
    company = select(other.id).where(
        other.cause == "lost_lease", other.worker == mine.worker, other.worker != "", other.unit != mine.unit,
        other.at > mine.at - TOGETHER_SECONDS, other.at < mine.at + TOGETHER_SECONDS,
    )  # fmt: skip
    statement = select(func.count()).select_from(mine).where(mine.unit == unit, mine.cause == "lost_lease")
    return int(session.execute(statement.where(~company.exists())).scalar_one())


def of_build(session: Session, build: str) -> list[dict[str, Any]]:
    """The last ones of a build, the newest first."""
    statement = select(Death).where(Death.build == build).order_by(Death.id.desc()).limit(MOST)
    return _told(session.execute(statement).scalars())


def recent(session: Session, limit: int = 20) -> list[dict[str, Any]]:
    """The last ones of all builds, the newest first."""
    return _told(session.execute(select(Death).order_by(Death.id.desc()).limit(limit)).scalars())


def _told(rows: Iterable[Death]) -> list[dict[str, Any]]:
    return [
        {
            "at": round(row.at, 3), "build": row.build, "work": row.work, "unit": row.unit, "attempt": row.attempt,
            "cause": row.cause, "how": row.how or None, "in_hand": row.in_hand, "memory_bytes": row.memory,
            "worker": row.worker or None,
        }
        for row in rows
    ]  # fmt: skip


def has_old(session: Session) -> bool:
    """Whether there are any that nobody asks for any more."""
    old = select(Death.id).where(Death.at < dialect.now(session) - KEEP_SECONDS).limit(1)
    return session.execute(old).scalar_one_or_none() is not None


def forget(session: Session) -> None:
    """Remove those."""
    session.execute(delete(Death).where(Death.at < dialect.now(session) - KEEP_SECONDS))
