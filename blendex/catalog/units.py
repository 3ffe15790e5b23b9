"""Units and who waits for them."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import orjson
from sqlalchemy import ColumnElement, delete, func, select, true, tuple_, update
from sqlalchemy.orm import Session

from blendex.catalog import dialect, lanes, trace
from blendex.catalog.models import Build, Pending, Subscription, Unit
from blendex.observability import traces

PRIORITY = {"publish": 2, "plan": 1, "pack": 1, "index": 0}
BATCH = 500
# Addresses of one look-up.
AT_ONCE = 4_096


def pack(payload: Any) -> bytes:
    """A payload as it is stored."""
    return zlib.compress(orjson.dumps(payload), 1)


def payload(unit: Unit) -> Any:
    """The payload of a unit."""
    return orjson.loads(zlib.decompress(unit.payload))


def create(
    session: Session,
    work: str,
    build: str,
    data: Any,
    *,
    memory: int,
    cost: int = 0,
    priority: int = 0,
    attempts: int = 0,
    needs: str | None = None,
) -> int:
    """A new waiting unit; its id.

    ``priority`` is the build's. The build takes turns with others from now on. ``needs``: the recipes that whoever
    does it must have.
    """
    unit = Unit(
        work=work,
        build=build,
        state="waiting",
        memory=memory,
        cost=cost,
        waiting_since=dialect.now(session),
        priority=priority * 10 + PRIORITY[work],
        payload=pack(data),
        attempts=attempts,
        needs=needs,
        traceparent=_traced(session, build) if traces.on() else None,
        fence=0,
    )
    session.add(unit)
    lanes.open_lane(session, build, unit.priority)
    session.flush()  # the id is needed for subscriptions in the same transaction
    return unit.id


def _traced(session: Session, build: str) -> str | None:
    """What a new unit goes on from: what is under way here, else what posted the build."""
    return traces.current() or session.execute(select(Build.traceparent).where(Build.id == build)).scalar_one_or_none()


def doable(session: Session, able: Sequence[str] | None) -> ColumnElement[bool]:
    """What may be done by one who is ``able`` to do so much; None: everything."""
    if able is None:
        return true()
    return Unit.needs.is_(None) | dialect.one_of(session, Unit.needs, able)


def needed(session: Session) -> dict[str, int]:
    """What waiting units need, and how many of them do."""
    rows = session.execute(
        select(Unit.needs, func.count()).where(Unit.state == "waiting", Unit.needs.is_not(None)).group_by(Unit.needs)
    )
    return {row[0]: int(row[1]) for row in rows if row[0] is not None}


def waiting_for(session: Session, needs: str) -> list[str]:
    """The builds that wait for units which need this and have not begun."""
    waiting = select(Unit.id).where(Unit.state == "waiting", Unit.needs == needs)
    found = select(Subscription.build).where(Subscription.unit.in_(waiting)).distinct().order_by(Subscription.build)
    return list(session.execute(found).scalars())


def subscribe(session: Session, unit: int, build: str, sources: int) -> None:
    """A build waits for a unit, for so many more sources."""
    statement = dialect.insert(session, Subscription).values(unit=unit, build=build, sources=sources)
    session.execute(
        statement.on_conflict_do_update(
            index_elements=["unit", "build"], set_={"sources": Subscription.sources + statement.excluded.sources}
        )
    )


def subscribers(session: Session, unit: int) -> list[str]:
    """Builds that wait for a unit."""
    return list(session.execute(select(Subscription.build).where(Subscription.unit == unit)).scalars())


def hurry(session: Session, ids: Iterable[int], build: str, priority: int) -> None:
    """A build of this priority waits for these units: they are no less urgent than it is.

    Units that become more urgent go into its lane.
    """
    wanted = sorted(set(ids))
    for start in range(0, len(wanted), BATCH):
        part = wanted[start : start + BATCH]
        for work, least in PRIORITY.items():
            urgent = priority * 10 + least
            changed = session.execute(
                update(Unit)
                .where(dialect.one_of(session, Unit.id, part), Unit.work == work, Unit.state == "waiting")
                .where(Unit.priority < urgent)
                .values(priority=urgent, build=build)
                .returning(Unit.id)
                .execution_options(synchronize_session=False)
            ).all()
            if changed:
                lanes.open_lane(session, build, urgent)


def under_way(session: Session, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """(address, recipe) → the unit that is about to read it, of those given that have one."""
    found: dict[tuple[str, str], int] = {}
    by_recipe: dict[str, list[str]] = {}
    for address, recipe in keys:
        by_recipe.setdefault(recipe, []).append(address)
    for recipe, addresses in by_recipe.items():
        for start in range(0, len(addresses), AT_ONCE):
            part = addresses[start : start + AT_ONCE]
            statement = select(Pending.address, Pending.unit).where(Pending.recipe == recipe)
            rows = session.execute(dialect.by_key(session, statement, Pending.address, part))
            found |= {(address, recipe): unit for address, unit in rows.all()}
    return found


def hold(session: Session, units: Iterable[int]) -> set[int]:
    """Of these units those that have not ended; none of them ends or goes before this transaction does.

    So whoever subscribes to one of them is seen by whoever ends it.
    """
    alive: set[int] = set()
    wanted = sorted(set(units))
    for start in range(0, len(wanted), BATCH):
        part = wanted[start : start + BATCH]
        statement = select(Unit.id).where(dialect.one_of(session, Unit.id, part), Unit.state.in_(("waiting", "leased")))
        alive |= set(session.execute(statement.order_by(Unit.id).with_for_update(read=True)).scalars())
    return alive


def announce(session: Session, rows: list[tuple[str, str, int]]) -> set[int]:
    """Tell which units will read what: (address, recipe, unit) each, which are sorted here.

    Returns:
        The units of which somebody else was about to read something meanwhile: ``announced`` says what is left.
    """
    rows.sort()  # all planners in one order, so that they never wait in a circle
    if dialect.add_new(session, Pending, ("address", "recipe", "unit"), rows) == len(rows):
        return set()
    wanted = {unit: 0 for _, _, unit in rows}
    for _, _, unit in rows:
        wanted[unit] += 1
    got: dict[int, int] = {}
    ids = sorted(wanted)
    for start in range(0, len(ids), BATCH):
        part = ids[start : start + BATCH]
        statement = select(Pending.unit, func.count()).where(dialect.one_of(session, Pending.unit, part))
        got |= {row[0]: row[1] for row in session.execute(statement.group_by(Pending.unit))}
    return {unit for unit, count in wanted.items() if got.get(unit, 0) != count}


def announced(session: Session, unit: int) -> set[tuple[str, str]]:
    """What a unit is to read: (address, recipe) each."""
    rows = session.execute(select(Pending.address, Pending.recipe).where(Pending.unit == unit))
    return {(row.address, row.recipe) for row in rows}


def reduce(session: Session, unit: int, data: Any, cost: int) -> None:
    """Replace the payload of a unit that this transaction made."""
    session.execute(
        update(Unit)
        .where(Unit.id == unit)
        .values(payload=pack(data), cost=cost)
        .execution_options(synchronize_session=False)
    )


def drop(session: Session, unit: int) -> None:
    """Remove a unit that this transaction made and nobody needs."""
    session.execute(delete(Unit).where(Unit.id == unit))


def withdraw(session: Session, unit: int) -> None:
    """The unit reads nothing any more: it ended."""
    session.execute(delete(Pending).where(Pending.unit == unit))


def move_pending(session: Session, old: int, new: int, keys: Sequence[tuple[str, str]]) -> None:
    """Hand some of one unit's sources to another unit."""
    for start in range(0, len(keys), BATCH):
        session.execute(
            update(Pending)
            .where(Pending.unit == old, tuple_(Pending.address, Pending.recipe).in_(keys[start : start + BATCH]))
            .values(unit=new)
            .execution_options(synchronize_session=False)
        )


def copy_subscriptions(session: Session, old: int, new: int, sources: int) -> None:
    """Whoever waits for one unit waits for another, too."""
    for build in subscribers(session, old):
        subscribe(session, new, build, sources)


def unsubscribe(session: Session, build: str) -> list[int]:
    """Withdraw a build's interest; ids of leased units that nobody waits for any more.

    Waiting units without a subscriber are removed at once; what became of all of them is kept with the build.
    """
    mine = lock_of(session, build)
    trace.keep(session, build)
    session.execute(delete(Subscription).where(Subscription.build == build))
    leased = []
    for start in range(0, len(mine), BATCH):
        part = mine[start : start + BATCH]
        wanted = set(
            session.execute(select(Subscription.unit).where(dialect.one_of(session, Subscription.unit, part))).scalars()
        )
        orphans = [unit for unit in part if unit not in wanted]
        if not orphans:
            continue
        leased += list(
            session.execute(
                select(Unit.id).where(dialect.one_of(session, Unit.id, orphans), Unit.state == "leased")
            ).scalars()
        )
        session.execute(delete(Pending).where(dialect.one_of(session, Pending.unit, orphans)))
        session.execute(delete(Unit).where(dialect.one_of(session, Unit.id, orphans)))
    return leased


def lock_of(session: Session, build: str) -> list[int]:
    """The units that a build subscribed to; none of them changes, or gets a subscriber, until this transaction ends.

    A transaction that also changes builds does this first: whoever ends a unit locks the unit, then its builds.
    """
    mine = select(Subscription.unit).where(Subscription.build == build)
    return list(session.execute(select(Unit.id).where(Unit.id.in_(mine)).order_by(Unit.id).with_for_update()).scalars())


def awaited(session: Session, build: str) -> tuple[dict[str, Any], int] | None:
    """What a build waits for that is away: the error that told so, and how often it was waited for."""
    found = session.execute(
        select(Unit.error, Unit.delays)
        .where(Unit.build == build, Unit.state == "waiting", Unit.delays > 0, Unit.error.is_not(None))
        .order_by(Unit.delays.desc())
        .limit(1)
    ).first()
    return (found[0], found[1]) if found is not None else None


def unfinished(session: Session, build: str) -> int:
    """Units that a build waits for, of any work."""
    return int(
        session.execute(
            select(func.count())
            .select_from(Subscription)
            .join(Unit, Unit.id == Subscription.unit)
            .where(Subscription.build == build, Unit.state.in_(("waiting", "leased")))
        ).scalar_one()
    )


def counts(session: Session) -> dict[str, int]:
    """Units per state."""
    rows = session.execute(select(Unit.state, func.count()).group_by(Unit.state))
    return {row[0]: row[1] for row in rows}


def waiting(session: Session) -> dict[str, tuple[int, float]]:
    """Per class of work: units that wait, and for how long the oldest has, in seconds."""
    rows = session.execute(
        select(Unit.work, func.count(), dialect.now(session) - func.min(Unit.waiting_since))
        .where(Unit.state == "waiting")
        .group_by(Unit.work)
    )
    return {row[0]: (int(row[1]), float(row[2] or 0.0)) for row in rows}


def of_build(session: Session, build: str) -> list[int]:
    """The units that a build waits for."""
    return list(session.execute(select(Subscription.unit).where(Subscription.build == build)).scalars())


def waiting_up_to(session: Session, most: int) -> int:
    """How many units wait, counted no farther than ``most``."""
    some = select(Unit.id).where(Unit.state == "waiting").limit(most).subquery()
    return int(session.execute(select(func.count()).select_from(some)).scalar_one())


def stragglers(session: Session, build: str, most: int, among: Sequence[int] | None = None) -> list[Unit]:
    """The units that a build has waited for longest; ``among`` those, when it is known where to look."""
    mine = select(Subscription.unit).where(Subscription.build == build)
    if among is not None:
        mine = mine.where(dialect.one_of(session, Subscription.unit, among))
    return list(
        session.execute(
            select(Unit)
            .where(Unit.id.in_(mine), Unit.state.in_(("waiting", "leased")))
            .order_by(Unit.waiting_since, Unit.id)
            .limit(most)
        ).scalars()
    )


def builds_of(session: Session, ids: Sequence[int]) -> set[str]:
    """The builds that asked for these units first."""
    return set(session.execute(select(Unit.build).where(dialect.one_of(session, Unit.id, ids))).scalars())


def works_of(session: Session, ids: Sequence[int]) -> set[str]:
    """The classes of work of these units."""
    return set(session.execute(select(Unit.work).where(dialect.one_of(session, Unit.id, ids))).scalars())


def census(session: Session) -> dict[tuple[str, str], int]:
    """Units by (work, state)."""
    rows = session.execute(select(Unit.work, Unit.state, func.count()).group_by(Unit.work, Unit.state))
    return {(row[0], row[1]): int(row[2]) for row in rows}
