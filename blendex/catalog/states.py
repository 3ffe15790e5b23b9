"""The states of builds and units, and the only code that changes them.

Every transition is one conditional UPDATE that names the state it leaves and the fence it was made under; no row
changed means that somebody else was faster, and the caller drops what it has. Lease times come from the
database's clock, in SQL: workers' clocks differ.

    build: queued → planning → indexing → packing → publishing → ready, from any of them failed or cancelled;
           failed and cancelled → queued again, by retry or accept, under a higher fence
    unit:  waiting → leased → done | failed; leased → waiting when its lease expires or its worker hands it back
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from sqlalchemy import CursorResult, Update, func, select, update
from sqlalchemy.orm import Session

from blendex.catalog import dialect, events, lanes, notices
from blendex.catalog.models import RUNNING, Build, Unit
from blendex.catalog.units import doable

ORDER = (*RUNNING, "ready")
# Lanes that a claim looks into while others are faster.
MOST_RACES = 16
CLASSES = ("plan", "index", "pack", "publish")
ENDED = ("ready", "failed", "cancelled")
# From where a build may come into each state.
FROM = {
    "planning": ("queued", "planning", "indexing", "packing", "publishing"),  # back to planning when sources changed
    "indexing": ("planning",),
    "packing": ("planning", "indexing"),
    "publishing": ("planning", "indexing", "packing"),
    "ready": ("publishing",),
    "failed": RUNNING,
    "cancelled": RUNNING,
    "queued": ("failed", "cancelled"),
}


def now(session: Session) -> float:
    """The database's clock, in seconds since the epoch."""
    return float(session.execute(select(dialect.now(session))).scalar_one())


def _changed(session: Session, statement: Update) -> bool:
    result: CursorResult[Any] = session.execute(  # type: ignore[assignment]
        statement.execution_options(synchronize_session=False)
    )
    return result.rowcount > 0


def move_build(session: Session, build: str, state: str, fence: int, **values: Any) -> bool:
    """Bring a build into ``state``, if it is where it may come from and ``fence`` is its fence.

    Going back to ``queued`` raises the fence, so whatever an earlier attempt still does comes to nothing.
    """
    current = session.execute(select(Build.state, Build.stages).where(Build.id == build)).one_or_none()
    if current is None or current.state not in FROM[state]:
        return False
    moment = now(session)
    stages = {} if state == "queued" else dict(current.stages)
    stages[state] = round(moment, 3)
    changes: dict[str, Any] = {
        "state": state,
        "stages": stages,
        "updated_at": moment,
        "version": Build.version + 1,
    }
    if state == "queued":
        changes["fence"] = Build.fence + 1
    if not _changed(
        session,
        update(Build)
        .where(Build.id == build, Build.state == current.state, Build.fence == fence)
        .values(**(changes | values)),
    ):
        return False
    if state in ("ready", "failed"):
        notices.note(session, build, "excluded" if values.get("excluded") else state)
    if state != "queued":  # whoever asked for that again says more
        events.note(session, build, state, **_told(values))
    return True


def _told(values: dict[str, Any]) -> dict[str, Any]:
    """What the log tells of a transition."""
    error = values.get("error") or {}
    return {
        "sources": values.get("sources"),
        "reused": values.get("reused"),
        "mirror": values.get("mirror"),
        "excluded": len(values.get("excluded", ())) or None,
        "again": values.get("replans"),
        "code": error.get("code"),
        "file": error.get("file"),
    }


def touch_build(session: Session, build: str, **values: Any) -> None:
    """Note progress on a build: whoever watches it looks again."""
    session.execute(
        update(Build)
        .where(Build.id == build)
        .values(version=Build.version + 1, updated_at=dialect.now(session), **values)
        .execution_options(synchronize_session=False)
    )


def claim_unit(
    session: Session,
    worker: str,
    lease_seconds: float,
    memory: int,
    classes: Sequence[str] = CLASSES,
    only: int | None = None,
    able: Sequence[str] | None = None,
) -> Unit | None:
    """Lease the best waiting unit that fits into ``memory`` and that one who is ``able`` can do, or that one ``only``.

    Urgent priorities first, and in them publishing before planning before reading; then the team, the owner and the
    build whose turn it is; of its units the largest, so that there is no lonely last one. One statement on both
    databases: the lane is chosen by an index probe for each build that waits, its unit by the first entry of another
    index: nothing walks or sorts what waits, whether ten units do or 400,000.
    """
    now = dialect.now(session)
    due = Unit.work.in_(classes) & (Unit.not_before.is_(None) | (Unit.not_before <= now)) & doable(session, able)
    fits = (Unit.state == "waiting") & (Unit.memory <= memory) & due
    for race in range(MOST_RACES):
        wanted = select(Unit.id).where(fits)
        if only is not None:
            wanted = wanted.where(Unit.id == only)
        else:
            lane = lanes.best(fits, random.randint(0, race))  # noqa: S311
            # A sum is nothing to search an index by: SQLite would take the one of memory, and sort the whole lane.
            wanted = select(Unit.id).where(
                Unit.state == "waiting",
                Unit.memory + 0 <= memory,
                due,
                Unit.build == select(lane.c.build).scalar_subquery(),
                Unit.priority == select(lane.c.priority).scalar_subquery(),
            )
        wanted = wanted.order_by(Unit.cost.desc(), Unit.id.desc()).limit(1)
        unit = session.execute(
            update(Unit)
            .where(Unit.id == dialect.skip_locked(wanted).scalar_subquery(), Unit.state == "waiting")
            .values(state="leased", worker=worker, fence=Unit.fence + 1, lease_until=now + lease_seconds, leased_at=now)
            .returning(Unit)
            .execution_options(synchronize_session=False)
        ).scalar_one_or_none()
        if unit is not None:
            lanes.serve(session, unit)
            return unit
        # Somebody else may just be claiming the last unit of the lane whose turn it was: another one, then, by chance,
        # since those that were faster leave the order when their transactions end.
        if only is not None or session.execute(select(Unit.id).where(fits).limit(1)).first() is None:
            return None
    return None


def renew_leases(session: Session, worker: str, lease_seconds: float, held: Sequence[int]) -> set[tuple[int, int]]:
    """Renew the leases that a worker believes to hold, in one statement; the (unit, fence) pairs that it does hold.

    One that it claimed but knows nothing of, the answer having been lost, is not renewed: it runs out. One that a
    transaction has locked is left for the next time, since the others must not wait for it: taking over a plan of
    300,000 sources locks its unit for 10 s. Nobody takes such a lease back either: ``expire_leases`` leaves it alone.
    """
    mine = (dialect.one_of(session, Unit.id, held), Unit.state == "leased", Unit.worker == worker)
    session.execute(
        update(Unit)
        .where(Unit.id.in_(dialect.skip_locked(select(Unit.id).where(*mine)).scalar_subquery()))
        .values(lease_until=dialect.now(session) + lease_seconds)
        .execution_options(synchronize_session=False)
    )
    return {(row.id, row.fence) for row in session.execute(select(Unit.id, Unit.fence).where(*mine))}


def end_unit(session: Session, unit: int, fence: int, state: str, error: dict[str, Any] | None = None) -> bool:
    """leased → done or failed, under the fence of the lease."""
    return _changed(
        session,
        update(Unit)
        .where(Unit.id == unit, Unit.fence == fence, Unit.state == "leased")
        .values(state=state, error=error, lease_until=None, ended_at=dialect.now(session)),
    )


def holds_lease(session: Session, unit: int, fence: int) -> bool:
    """Whether a lease is still what it was: nobody claimed the unit or took the lease back since."""
    found = select(Unit.id).where(Unit.id == unit, Unit.fence == fence, Unit.state == "leased")
    return session.execute(found).scalar_one_or_none() is not None


def hand_back(
    session: Session, unit: int, fence: int, count: bool, pause: float | None = None,
    error: dict[str, Any] | None = None,
) -> bool:  # fmt: skip
    """leased → waiting; ``count`` says whether the attempt counts against the unit.

    ``pause``: seconds for which nobody shall claim it: what it needs is away, as ``error`` says, and is not its fault.
    """
    away = {"delays": Unit.delays + 1, "error": error}
    later = {} if pause is None else away | {"not_before": dialect.now(session) + pause}
    return _changed(
        session,
        update(Unit)
        .where(Unit.id == unit, Unit.fence == fence, Unit.state == "leased")
        .values(
            state="waiting",
            worker=None,
            lease_until=None,
            waiting_since=dialect.now(session),
            attempts=Unit.attempts + (1 if count else 0),
            **later,
        ),
    )


def any_expired(session: Session) -> bool:
    """Whether some lease ran out."""
    found = select(Unit.id).where(Unit.state == "leased", Unit.lease_until < dialect.now(session)).limit(1)
    return session.execute(found).scalar_one_or_none() is not None


def expired_workers(session: Session) -> dict[int, str]:
    """The workers of the units whose leases ran out, by unit: to be asked before these are taken back."""
    late = (Unit.state == "leased", Unit.lease_until < dialect.now(session))
    return {row.id: row.worker or "" for row in session.execute(select(Unit.id, Unit.worker).where(*late))}


def expire_leases(session: Session) -> list[int]:
    """leased → waiting for every lease that ran out; the units' ids. Counts as a loss, not as an
    attempt.

    A unit that a transaction has locked is left alone: it may be about to end.
    """
    late = select(Unit.id).where(Unit.state == "leased", Unit.lease_until < dialect.now(session))
    rows = session.execute(
        update(Unit)
        .where(Unit.id.in_(dialect.skip_locked(late).scalar_subquery()))
        .values(
            state="waiting",
            worker=None,
            lease_until=None,
            waiting_since=dialect.now(session),
            losses=Unit.losses + 1,
        )
        .returning(Unit.id)
        .execution_options(synchronize_session=False)
    )
    return [row.id for row in rows]


def running_builds(session: Session) -> int:
    """How many builds have not ended."""
    return session.execute(select(func.count()).select_from(Build).where(Build.state.in_(RUNNING))).scalar_one()
