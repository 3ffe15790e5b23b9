"""Memory that workers share: who promised how much of one limit, and for whom it is kept free.

A ledger is a limit: that of a host, or of a cgroup. Workers under it lock its row while they claim, add up what each of
them has promised to what it runs, and claim what fits into the rest; so they never promise more together than there is.
What a worker promised counts for as long as its process is there, also one that is stopped, or that lost its
leases: its children still have their memory. When it is gone, so are its children.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from sqlalchemy import Select, func, select, update
from sqlalchemy.orm import Session

from blendex.catalog import dialect
from blendex.catalog.models import Ledger, Unit, Worker
from blendex.catalog.units import doable


@dataclass(frozen=True, slots=True)
class Promises:
    """What the other workers of a ledger promised, and what their children have of it, in bytes."""

    taken: int
    used: int


def ensure(session: Session, ledger: str, host: str, source: str) -> None:
    """Make a ledger, if there is none."""
    session.execute(
        dialect.insert(session, Ledger)
        .values(id=ledger, host=host, source=source, rest_until=0.0)
        .on_conflict_do_update(index_elements=["id"], set_={"host": host, "source": source})
    )


def lock(session: Session, ledger: str) -> Ledger | None:
    """A ledger, that nobody else claims under until this transaction ends."""
    return session.get(Ledger, ledger, populate_existing=True, with_for_update=True)


def others(session: Session, ledger: str, worker: str, lives: Callable[[str], bool | None]) -> Promises:
    """What the other workers of a ledger have.

    ``lives`` says of the name of a process whether it runs; None where it cannot be seen from here: then its
    heartbeats tell.
    """
    told = (Worker.seen_until >= dialect.now(session)).label("told")
    rows = session.execute(
        select(Worker.process, Worker.taken, Worker.used, told).where(Worker.ledger == ledger, Worker.id != worker)
    )
    taken = used = 0
    for process, promised, has, in_time in rows:
        alive = lives(process)
        if alive or (alive is None and in_time):
            taken += promised
            used += has
    return Promises(taken, used)


def most_budget(session: Session) -> int:
    """The largest budget of any worker that told of itself in time."""
    now = dialect.now(session)
    found = session.execute(select(func.max(Worker.budget)).where(Worker.seen_until >= now)).scalar_one_or_none()
    return int(found or 0)


def starving(
    session: Session, left: int, seconds: float, classes: Sequence[str], able: Sequence[str] | None = None
) -> int | None:
    """The heaviest unit that has waited for ``seconds`` and needs more memory than is ``left``."""
    now = dialect.now(session)
    found = (
        select(Unit.id)
        .where(Unit.state == "waiting", Unit.memory > left, Unit.work.in_(classes), doable(session, able))
        .where(Unit.waiting_since < now - seconds, (Unit.not_before.is_(None)) | (Unit.not_before <= now))
        .order_by(Unit.memory.desc())
        .limit(1)
    )
    return session.execute(found).scalar_one_or_none()


def reserve(session: Session, ledger: str, unit: int | None, rest: float) -> None:
    """Keep the memory of a ledger for one unit, for so many seconds at most; None: for nobody, for so many at least."""
    values: dict[str, object] = {"reserved": unit, "rest_until": dialect.now(session) + rest}
    session.execute(
        update(Ledger).where(Ledger.id == ledger).values(**values).execution_options(synchronize_session=False)
    )


def state_of(session: Session, unit: int) -> tuple[str, int] | None:
    """(state, memory) of a unit."""
    row = session.execute(select(Unit.state, Unit.memory).where(Unit.id == unit)).one_or_none()
    return (row.state, row.memory) if row is not None else None


def has_work(session: Session, classes: Sequence[str], able: Sequence[str] | None = None) -> int | None:
    """The least memory that any waiting unit of these classes needs; None when none waits."""
    found = _least(tuple(classes))
    if able is not None:
        found = found.where(doable(session, able))
    return session.execute(found).scalar_one_or_none()


@lru_cache(maxsize=64)
def _least(classes: tuple[str, ...]) -> Select[int]:
    """The statement that every poll of every worker begins with: made once, which takes as long as to execute it."""
    unit = dialect.table(Unit)
    waiting = (unit.c.state == "waiting") & unit.c.work.in_(classes)
    return select(unit.c.memory).where(waiting).order_by(unit.c.memory).limit(1)


def resting(session: Session, ledger: Ledger) -> bool:
    """Whether what was said with ``reserve`` still holds: a reservation, or the light ones' time after one."""
    return bool(ledger.rest_until > session.execute(select(dialect.now(session))).scalar_one())
