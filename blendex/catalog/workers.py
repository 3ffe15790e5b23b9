"""Workers: who claims units, as each tells of itself. Nothing is decided by these rows; leases decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from blendex.catalog import dialect
from blendex.catalog.models import Worker

# A row that nobody renewed for this long says nothing any more.
FORGET_SECONDS = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Told:
    """What a worker tells with a claim: the memory it promised, and why it took nothing though there is work."""

    taken: int
    waiting: str | None


def beat(session: Session, worker: str, seconds: float, values: dict[str, Any], *, ago: float = 0.0) -> None:
    """Tell that a worker is there, and how it is, for the next ``seconds``; it asked for work ``ago`` seconds ago."""
    now = dialect.now(session)
    told = values | {"seen_at": now, "seen_until": now + seconds, "polled_at": now - ago}
    session.execute(
        dialect.insert(session, Worker)
        .values(id=worker, started_at=now, **told)
        .on_conflict_do_update(index_elements=["id"], set_=told)
    )


def tell(session: Session, worker: str, told: Told) -> None:
    """Tell between two heartbeats."""
    session.execute(
        update(Worker)
        .where(Worker.id == worker)
        .values(taken=told.taken, waiting=told.waiting)
        .execution_options(synchronize_session=False)
    )


def leave(session: Session, worker: str) -> None:
    """A worker ended by itself."""
    session.execute(delete(Worker).where(Worker.id == worker))


def has_old(session: Session) -> bool:
    """Whether there is anything to forget."""
    old = select(Worker.id).where(Worker.seen_until < dialect.now(session) - FORGET_SECONDS).limit(1)
    return session.execute(old).scalar_one_or_none() is not None


def forget(session: Session) -> None:
    """Remove those that died long ago."""
    session.execute(delete(Worker).where(Worker.seen_until < dialect.now(session) - FORGET_SECONDS))


def recipes(session: Session) -> set[str] | None:
    """What the workers that are there have, taken together; None when one of them does whatever waits."""
    rows = session.execute(select(Worker.recipes).where(Worker.seen_until >= dialect.now(session))).scalars()
    found: set[str] = set()
    for told in rows:
        if told is None:
            return None
        found.update(told)
    return found


def in_hand(session: Session, ids: Sequence[str]) -> dict[int, str]:
    """The source in hand of the units that these workers run, by unit, as each of them told last."""
    rows = session.execute(select(Worker.in_hand).where(dialect.one_of(session, Worker.id, ids))).scalars()
    return {item["unit"]: item["source"] for row in rows for item in row or ()}


def page(session: Session) -> list[tuple[Worker, bool]]:
    """Every worker that is known, the oldest first, and whether it told of itself in time."""
    alive = (Worker.seen_until >= dialect.now(session)).label("alive")
    rows = session.execute(select(Worker, alive).order_by(Worker.started_at, Worker.id))
    return [(row[0], bool(row[1])) for row in rows]
