"""Notices: what became of a build, for a receiver outside; written by the transaction that made it so.

A notice is told at least once: whoever takes it sets it back for a while, tells it, and notes how that went. One that
dies in between leaves it to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from blendex.catalog import dialect
from blendex.catalog.models import Build, Notice

EVENTS = ("ready", "failed", "excluded")
KEPT_SECONDS = 7 * 24 * 3600.0


def note(session: Session, build: str, event: str) -> None:
    """Let those be told who asked for it."""
    profiles = session.execute(select(Build.notify).where(Build.id == build)).scalar_one_or_none()
    now = dialect.now(session)
    for profile in profiles or []:
        values = {"build": build, "profile": profile, "event": event, "attempts": 0, "state": "waiting"}
        session.execute(dialect.table(Notice).insert().values(**values, created_at=now, not_before=now))


def ask(session: Session, build: Build, profiles: Sequence[str]) -> None:
    """Let receivers be told of a build, beside those that others asked for."""
    new = [name for name in dict.fromkeys(profiles) if name not in (build.notify or [])]
    if new:
        build.notify = [*(build.notify or []), *new]


def take(session: Session, profiles: Sequence[str], seconds: float) -> Notice | None:
    """The notice for one of these profiles that is due for longest; nobody else takes it for so many seconds."""
    now = dialect.now(session)
    due = (
        select(Notice.id)
        .where(Notice.state == "waiting", Notice.not_before <= now, dialect.one_of(session, Notice.profile, profiles))
        .order_by(Notice.not_before, Notice.id)
        .limit(1)
    )
    return session.execute(
        update(Notice)
        .where(Notice.id == dialect.skip_locked(due).scalar_subquery())
        .values(not_before=now + seconds, attempts=Notice.attempts + 1)
        .returning(Notice)
        .execution_options(synchronize_session=False)
    ).scalar_one_or_none()


def told(session: Session, notice: int, attempts: int, result: str, *, state: str, pause: float = 0.0) -> None:
    """Note how an attempt went: ``sent``, ``waiting`` for another one after ``pause`` seconds, or ``given_up``."""
    now = dialect.now(session)
    session.execute(
        update(Notice)
        .where(Notice.id == notice, Notice.attempts == attempts, Notice.state == "waiting")
        .values(state=state, result=result[:200], told_at=now, not_before=now + pause)
        .execution_options(synchronize_session=False)
    )


def of_build(session: Session, build: str) -> list[dict[str, Any]]:
    """What was told of a build, or is to be, oldest first."""
    rows = session.execute(select(Notice).where(Notice.build == build).order_by(Notice.id)).scalars()
    names = ("profile", "event", "state", "attempts", "result", "created_at", "told_at")
    return [{name: getattr(row, name) for name in names} for row in rows]


def forget(session: Session) -> None:
    """Remove those that nobody will ask for any more."""
    old = Notice.created_at < dialect.now(session) - KEPT_SECONDS
    session.execute(delete(Notice).where(old).execution_options(synchronize_session=False))
