"""Units and who waits for them."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import orjson
from sqlalchemy import delete, func, select, tuple_, update
from sqlalchemy.orm import Session

from blendex.catalog import dialect
from blendex.catalog.models import Pending, Subscription, Unit

PRIORITY = {"publish": 2, "plan": 1, "pack": 1, "index": 0}
BATCH = 500


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
) -> int:
    """A new waiting unit; its id."""
    unit = Unit(
        work=work,
        build=build,
        state="waiting",
        memory=memory,
        cost=cost,
        priority=priority * 10 + PRIORITY[work],
        payload=pack(data),
        attempts=attempts,
        fence=0,
    )
    session.add(unit)
    session.flush()  # the id is needed for subscriptions in the same transaction
    return unit.id


def subscribe(session: Session, unit: int, build: str, sources: int) -> None:
    """A build waits for a unit."""
    session.execute(
        dialect.insert(session, Subscription).values(unit=unit, build=build, sources=sources).on_conflict_do_nothing()
    )


def subscribers(session: Session, unit: int) -> list[str]:
    """Builds that wait for a unit."""
    return list(session.execute(select(Subscription.build).where(Subscription.unit == unit)).scalars())


def under_way(session: Session, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """(address, recipe) → the unit that is about to read it, of those given that have one."""
    found: dict[tuple[str, str], int] = {}
    by_recipe: dict[str, list[str]] = {}
    for address, recipe in keys:
        by_recipe.setdefault(recipe, []).append(address)
    for recipe, addresses in by_recipe.items():
        for start in range(0, len(addresses), BATCH):
            rows = session.execute(
                select(Pending.address, Pending.unit).where(
                    Pending.recipe == recipe, Pending.address.in_(addresses[start : start + BATCH])
                )
            )
            found |= {(row.address, recipe): row.unit for row in rows}
    return found


def announce(session: Session, unit: int, keys: Iterable[tuple[str, str]]) -> None:
    """Tell that ``unit`` will read these (address, recipe) pairs."""
    rows = [{"address": address, "recipe": recipe, "unit": unit} for address, recipe in keys]
    if rows:
        session.execute(dialect.table(Pending).insert(), rows)


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

    Waiting units without a subscriber are removed at once.
    """
    mine = list(session.execute(select(Subscription.unit).where(Subscription.build == build)).scalars())
    session.execute(delete(Subscription).where(Subscription.build == build))
    orphans = []
    for start in range(0, len(mine), BATCH):
        part = mine[start : start + BATCH]
        wanted = set(session.execute(select(Subscription.unit).where(Subscription.unit.in_(part))).scalars())
        orphans += [unit for unit in part if unit not in wanted]
    leased = []
    for start in range(0, len(orphans), BATCH):
        part = orphans[start : start + BATCH]
        leased += list(session.execute(select(Unit.id).where(Unit.id.in_(part), Unit.state == "leased")).scalars())
        session.execute(delete(Pending).where(Pending.unit.in_(part)))
        session.execute(delete(Unit).where(Unit.id.in_(part)))
    return leased


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
