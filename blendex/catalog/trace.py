"""What became of the units of one build: as they are while it runs, and as they were kept when it ended.

However many units there are, what comes out is bounded: at most ``CELLS`` cells, ``BINS`` bins of time, and the few
units that took longest. The 50,000 units of a build of 400,000 tars are one pass over an index.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from blendex.catalog import blobs, dialect
from blendex.catalog.models import Build, Subscription, Unit

CELLS = 2_000
BINS = 240
SLOWEST = 10
# The worst of a cell is what it shows.
WORST = ("failed", "leased", "waiting", "done")
WORK = ("index", "pack")
# Units among which some are looked for by their ids; of more, a build's own are looked through instead.
AMONG = 5_000


@dataclass(frozen=True, slots=True)
class Running:
    """A unit that a worker has in hand, or that ended."""

    unit: int
    work: str
    state: str
    worker: str | None
    attempts: int
    sources: int
    cost: int
    leased_at: float | None
    ended_at: float | None

    @property
    def seconds(self) -> float | None:
        """How long it took; None while it runs."""
        return None if self.leased_at is None or self.ended_at is None else max(0.0, self.ended_at - self.leased_at)


def _mine(build: str) -> Any:
    return (Subscription.build == build) & Unit.work.in_(WORK)


def _held(build: str) -> Any:
    # A text put together is nothing to search an index by: what is in somebody's hand is few, a build has many.
    return (Subscription.build + "" == build) & (Unit.state == "leased")


def _columns() -> tuple[Any, ...]:
    return (
        Unit.id, Unit.work, Unit.state, Unit.worker, Unit.attempts, Subscription.sources, Unit.cost, Unit.leased_at,
        Unit.ended_at,
    )  # fmt: skip


@dataclass(slots=True)
class Seen:
    """One pass over the units of a build.

    Args:
        cells: in the order of units: first (its first unit), units (by state), sources, cost.
        sums: per state of index units: units, sources, cost.
        start: when the first of those that ended was begun; None when none has.
        end: when the last of them ended.
        ends: per cell with units that are done: when the last of them ended, the first and the last of its ids.
        waits: per cell with units to be done: since when the oldest waits, the first and the last of its ids.
    """

    cells: list[dict[str, Any]] = field(default_factory=list)
    sums: dict[str, dict[str, int]] = field(default_factory=dict)
    start: float | None = None
    end: float | None = None
    ends: list[tuple[float, int, int]] = field(default_factory=list)
    waits: list[tuple[float, int, int]] = field(default_factory=list)

    def ended_last(self, count: int) -> list[int] | None:
        """Ids among which are those of the ``count`` units that ended last; None when they are too many to be named.

        They lie in as many cells at most: each cell whose last one ended later has one that comes before. Of one
        moment the lower ids come first, and those of a cell are all lower than those of the next.
        """
        return _ids(sorted(self.ends, key=lambda span: (-span[0], span[1]))[:count])

    def waited_longest(self, count: int) -> list[int] | None:
        """Ids among which are those of the ``count`` units to be done that wait longest, by the same reasoning."""
        return _ids(sorted(self.waits)[:count])


def _ids(spans: Iterable[tuple[float, int, int]]) -> list[int] | None:
    found: list[int] = []
    for _, first, last in spans:
        if len(found) + last - first >= AMONG:
            return None
        found += range(first, last + 1)
    return found


def see(session: Session, build: str) -> Seen:
    """What one pass over the units of a build tells."""
    seen = Seen()
    low, high = session.execute(
        select(func.min(Subscription.unit), func.max(Subscription.unit)).where(Subscription.build == build)
    ).one()
    if low is None:
        return seen
    # By id and not by rank: no unit needs to be counted before it. Ids of one build lie together.
    span = high - low + 1
    cell = (Unit.id - low) * min(CELLS, span) // span
    rows = session.execute(
        select(
            cell.label("cell"), Unit.work, Unit.state, func.min(Unit.id), func.count(),
            func.sum(Subscription.sources), func.sum(Unit.cost), func.min(Unit.leased_at), func.max(Unit.ended_at),
            func.max(Unit.id), func.min(Unit.waiting_since),
        )
        .join(Unit, Unit.id == Subscription.unit)
        .where(Subscription.build == build)
        .group_by("cell", Unit.work, Unit.state)
        .order_by("cell")
    )  # fmt: skip
    shown = None
    ends: dict[int, tuple[float, int, int]] = {}
    waits: dict[int, tuple[float, int, int]] = {}
    for number, work, state, first, count, sources, cost, began, ended_at, last, since in rows:
        if state in ("waiting", "leased") and since is not None:
            oldest, low, high = waits.get(number, (since, first, last))
            waits[number] = min(oldest, since), min(low, first), max(high, last)
        if work not in WORK:
            continue
        if number != shown:
            seen.cells.append({"first": int(first), "units": {}, "sources": 0, "cost": 0})
            shown = number
        about = seen.cells[-1]
        about["first"] = min(about["first"], int(first))
        about["units"][state] = about["units"].get(state, 0) + int(count)
        about["sources"] += int(sources)
        about["cost"] += int(cost)
        if work == "index":
            total = seen.sums.setdefault(state, {"units": 0, "sources": 0, "cost": 0})
            for name, value in (("units", count), ("sources", sources), ("cost", cost)):
                total[name] += int(value)
        if state == "done" and began is not None and ended_at is not None:
            seen.start = began if seen.start is None else min(seen.start, began)
            seen.end = ended_at if seen.end is None else max(seen.end, ended_at)
            latest, low, high = ends.get(number, (ended_at, first, last))
            ends[number] = max(latest, ended_at), min(low, first), max(high, last)
    seen.ends, seen.waits = list(ends.values()), list(waits.values())
    return seen


def leases(session: Session, build: str) -> tuple[Any, ...]:
    """Another value whenever a unit of a build was claimed, ended or handed back; cheap, since few are in a hand."""
    found = session.execute(
        select(func.count(), func.sum(Unit.id), func.max(Unit.leased_at))
        .select_from(Subscription)
        .join(Unit, Unit.id == Subscription.unit)
        .where(_held(build))
    ).one()
    return tuple(found)


def sums(session: Session, build: str) -> dict[str, dict[str, int]]:
    """Per state of index units: units, sources, cost."""
    rows = session.execute(
        select(Unit.state, func.count(), func.sum(Subscription.sources), func.sum(Unit.cost))
        .join(Subscription, Unit.id == Subscription.unit)
        .where(Subscription.build == build, Unit.work == "index")
        .group_by(Unit.state)
    )
    return {row[0]: {"units": int(row[1]), "sources": int(row[2]), "cost": int(row[3])} for row in rows}


def bins(session: Session, build: str, seen: Seen) -> dict[str, Any]:
    """What ended when: start (seconds since the epoch), width (seconds), sources and cost per bin."""
    if seen.start is None or seen.end is None:
        return {"start": 0.0, "width": 0.0, "sources": [], "cost": []}
    width = max((seen.end - seen.start) / BINS, 0.25)
    count = min(BINS, int((seen.end - seen.start) / width) + 1)
    place = dialect.whole(session, (Unit.ended_at - seen.start) / width)
    rows = session.execute(
        select(place.label("place"), func.sum(Subscription.sources), func.sum(Unit.cost))
        .join(Unit, Unit.id == Subscription.unit)
        .where(_mine(build), Unit.state == "done", Unit.ended_at.is_not(None), Unit.leased_at.is_not(None))
        .group_by("place")
    )
    sources, cost = [0] * count, [0] * count
    for number, some, weight in rows:
        at = min(count - 1, max(0, int(number)))
        sources[at] += int(some)
        cost[at] += int(weight)
    return {"start": seen.start, "width": width, "sources": sources, "cost": cost}


def ended(session: Session, build: str, limit: int, among: Sequence[int] | None = None) -> list[Running]:
    """The units that ended last, the newest first; ``among`` those, when it is known where to look."""
    statement = (
        select(*_columns())
        .join(Unit, Unit.id == Subscription.unit)
        .where(_mine(build), Unit.state == "done", Unit.ended_at.is_not(None), Unit.leased_at.is_not(None))
        .order_by(Unit.ended_at.desc(), Unit.id)
        .limit(limit)
    )
    if among is not None:
        statement = statement.where(dialect.one_of(session, Subscription.unit, among))
    return [Running(*row) for row in session.execute(statement)]


def in_hand(session: Session, build: str, limit: int) -> list[Running]:
    """The units that workers have in hand, the longest first."""
    rows = session.execute(
        select(*_columns())
        .join(Unit, Unit.id == Subscription.unit)
        .where(_held(build))
        .order_by(Unit.leased_at, Unit.id)
        .limit(limit)
    )
    return [Running(*row) for row in rows]


def slowest(session: Session, build: str, limit: int = SLOWEST) -> list[Running]:
    """The units that took longest, of those that ended."""
    rows = session.execute(
        select(*_columns())
        .join(Unit, Unit.id == Subscription.unit)
        .where(_mine(build), Unit.ended_at.is_not(None), Unit.leased_at.is_not(None))
        .order_by((Unit.ended_at - Unit.leased_at).desc(), Unit.id)
        .limit(limit)
    )
    return [Running(*row) for row in rows]


def page(session: Session, build: str, *, state: str | None = None, after: int = 0, limit: int = 100) -> list[Running]:
    """Units of a build by id, after ``after``, of any state or of one."""
    statement = (
        select(*_columns())
        .join(Unit, Unit.id == Subscription.unit)
        .where(_mine(build), Subscription.unit > after)
        .order_by(Subscription.unit)
        .limit(limit)
    )
    rows = session.execute(statement if state is None else statement.where(Unit.state == state))
    return [Running(*row) for row in rows]


def of_worker(session: Session, workers: list[str]) -> dict[str, list[tuple[int, str, str, float | None]]]:
    """What workers have in hand: (unit, work, build, leased_at) each, by worker."""
    found: dict[str, list[tuple[int, str, str, float | None]]] = {}
    rows = session.execute(
        select(Unit.worker, Unit.id, Unit.work, Unit.build, Unit.leased_at)
        .where(Unit.state == "leased", dialect.one_of(session, Unit.worker, workers))
        .order_by(Unit.id)
    )
    for worker, unit, work, build, leased_at in rows:
        assert worker is not None
        found.setdefault(worker, []).append((unit, work, build, leased_at))
    return found


def keep(session: Session, build: str) -> None:
    """Keep what became of the units of a build that ended: they go when nobody waits for them any more."""
    seen = see(session, build)
    if not seen.cells:
        return
    longest = [
        [item.unit, item.work, item.state, item.worker, item.attempts, item.sources, item.cost, item.leased_at,
         item.ended_at]
        for item in slowest(session, build)
    ]  # fmt: skip
    found = {"cells": seen.cells, "sums": seen.sums, "bins": bins(session, build, seen), "slowest": longest}
    session.execute(
        update(Build)
        .where(Build.id == build)
        .values(trace=blobs.put_json(session, found))
        .execution_options(synchronize_session=False)
    )


def kept(session: Session, build: Build) -> dict[str, Any] | None:
    """What was kept of the units of a build: cells, sums, bins, slowest; None when it had none or has not ended."""
    if build.trace is None:
        return None
    value: dict[str, Any] = blobs.get_json(session, build.trace)
    return value


def kept_slowest(trace: dict[str, Any]) -> list[Running]:
    """The slowest units in a trace."""
    return [Running(*item) for item in trace["slowest"]]


def worst(units: dict[str, int]) -> str:
    """The worst state in a cell."""
    if len(units) == 1:  # as almost all of 2,000 are
        return next(iter(units))
    return next(state for state in WORST if units.get(state))
