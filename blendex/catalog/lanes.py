"""Whose turn it is: within a priority, teams, then owners, then builds get equal shares of the work.

Each of them has a share, which grows by the cost of whatever is begun for it; of those that have work the one with the
smallest share is next. One that comes, or comes back after it had nothing to do, begins where the least served of the
others is: it neither catches up on what it never asked for, nor waits behind what others asked for before.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Select, case, delete, func, select, update
from sqlalchemy.orm import Session

from blendex.catalog import dialect
from blendex.catalog.models import RUNNING, Build, Lane, Share, Unit

OPENED = "lanes"
# A unit that reads nothing, such as a plan, still is a turn.
LEAST_COST = 64 * 1024


def open_lane(session: Session, build: str, priority: int) -> None:
    """Let a build take turns in a priority, if it does not already."""
    opened: set[tuple[str, int]] = session.info.setdefault(OPENED, set())
    if (build, priority) in opened:
        return
    opened.add((build, priority))
    who = session.execute(select(Build.team, Build.owner).where(Build.id == build)).one_or_none()
    team, owner = who or ("", "")
    names = {"team": f"team/{team or owner}", "owner": f"owner/{owner}", "own": f"build/{build}"}
    made = session.execute(
        dialect.insert(session, Lane)
        .values(build=build, priority=priority, **names)
        .on_conflict_do_nothing()
        .returning(Lane.build)
    ).scalar_one_or_none()
    if made is None:
        return
    for column, share in sorted(names.items(), key=lambda item: item[1]):
        _begin(session, getattr(Lane, column), share, build)


def _begin(session: Session, column: Any, share: str, build: str) -> None:
    """Bring a share up to the least of those that have lanes beside this one."""
    others = select(func.min(Share.served)).join(Lane, column == Share.id).where(Lane.build != build)
    least = int(session.execute(others).scalar_one_or_none() or 0)
    served = session.execute(select(Share.served).where(Share.id == share)).scalar_one_or_none()
    if served is not None and served >= least:
        return  # not locked: a plan may take seconds to be stored, and claims for its owner go on meanwhile
    statement = dialect.insert(session, Share).values(id=share, served=least)
    session.execute(
        statement.on_conflict_do_update(
            index_elements=["id"],
            set_={"served": case((Share.served < least, least), else_=Share.served)},
        )
    )


def best(fits: ColumnElement[bool], place: int = 0) -> Any:
    """The lane whose turn it is, of those that have a unit that ``fits``; a common table expression.

    ``place``: 0, or how many to leave out because somebody else was faster.
    """
    team, owner, own = (dialect.table(Share).alias(name) for name in ("team", "owner", "own"))
    # Ordered by the rest of an index that begins with state, build and priority: so planners use it, and one probe
    # answers, also for a lane in which nothing waits.
    lightest = (
        select(Unit.id)
        .where(Unit.build == Lane.build, Unit.priority == Lane.priority, fits)
        .order_by(Unit.state, Unit.build, Unit.priority, Unit.memory)
        .limit(1)
        .scalar_subquery()
    )
    return (
        select(Lane.build, Lane.priority)
        .join(team, team.c.id == Lane.team)
        .join(owner, owner.c.id == Lane.owner)
        .join(own, own.c.id == Lane.own)
        .where(lightest.is_not(None))
        .order_by(Lane.priority.desc(), team.c.served, owner.c.served, own.c.served, Lane.build)
        .limit(1)
        .offset(place)
        .cte("lane")
    )


def serve(session: Session, unit: Unit) -> None:
    """Count a unit that is begun to the shares of its build."""
    lane = select(Lane.team, Lane.owner, Lane.own).where(Lane.build == unit.build, Lane.priority == unit.priority)
    found = session.execute(lane).one_or_none()
    if found is None:
        return
    # All in one order, so that two claims for builds of one owner never wait in a circle.
    locked = select(Share.id).where(Share.id.in_(tuple(found))).order_by(Share.id).with_for_update()
    session.execute(
        update(Share)
        .where(Share.id.in_(locked))
        .values(served=Share.served + unit.cost + LEAST_COST)
        .execution_options(synchronize_session=False)
    )


def _missing() -> Select[str, int]:
    # For each lane an index says whether anything waits outside of it: of one build that was posted by a process of an
    # older version, whose units are all waiting, the first one is enough.
    lane = select(Lane.build).where(Lane.build == Unit.build, Lane.priority == Unit.priority)
    return select(Unit.build, Unit.priority).where(Unit.state == "waiting", ~lane.exists())


def any_missing(session: Session) -> bool:
    """Whether something waits that has no lane."""
    return session.execute(_missing().limit(1)).first() is not None


def mend(session: Session) -> None:
    """Open lanes for units that have none, as those of a process of an older version."""
    for build, priority in session.execute(_missing().distinct()).all():
        open_lane(session, build, priority)


def _over() -> ColumnElement[bool]:
    # Of a running build none: units that a transaction under way makes cannot be seen.
    running = select(Build.id).where(Build.id == Lane.build, Build.state.in_(RUNNING)).exists()
    units = select(Unit.id).where(Unit.build == Lane.build, Unit.state.in_(("waiting", "leased"))).exists()
    return ~running & ~units


def any_over(session: Session) -> bool:
    """Whether there are lanes of builds that ended."""
    return session.execute(select(Lane.build).where(_over()).limit(1)).first() is not None


def forget(session: Session) -> None:
    """Remove lanes of builds that ended, and their shares."""
    session.execute(delete(Lane).where(_over()).execution_options(synchronize_session=False))
    used = select(Lane.own).where(Lane.own == Share.id).exists()
    session.execute(
        delete(Share).where(Share.id.startswith("build/"), ~used).execution_options(synchronize_session=False)
    )
