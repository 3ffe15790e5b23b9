"""The log of a build: what happened to it, a line each. Nothing in it comes out of a record.

Written in the transaction that does what it tells of. Of one build at most ``KEPT`` lines stay: it moves through its
states a few times, and only who posts or retries it over and over makes more.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from blendex.catalog import dialect
from blendex.catalog.models import BuildEvent

KEPT = 200
# What begins a round of events, and can be repeated by hand: here the log is cut.
_ROUNDS = ("joined", "retried", "accepted")


def note(session: Session, build: str, event: str, **about: Any) -> None:
    """Add a line; what is None is left out."""
    told = {name: value for name, value in about.items() if value is not None}
    session.execute(
        dialect.table(BuildEvent).insert().values(build=build, at=dialect.now(session), event=event, about=told)
    )
    if event in _ROUNDS:
        oldest = (
            select(BuildEvent.id)
            .where(BuildEvent.build == build)
            .order_by(BuildEvent.id.desc())
            .offset(KEPT - 1)
            .limit(1)
            .scalar_subquery()
        )
        session.execute(
            delete(BuildEvent)
            .where(BuildEvent.build == build, BuildEvent.id < oldest)
            .execution_options(synchronize_session=False)
        )


def of_build(session: Session, build: str, limit: int = KEPT) -> list[dict[str, Any]]:
    """The last lines, the newest first: at, event, and what it tells."""
    statement = select(BuildEvent).where(BuildEvent.build == build).order_by(BuildEvent.id.desc()).limit(limit)
    return [
        {"at": round(row.at, 3), "event": row.event, **row.about} for row in session.execute(statement).scalars()
    ]
