"""Whether anything on a page that shows many things changed: one small answer for each subject, cheap to ask for."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from blendex.catalog.models import RUNNING, Build, Mirror, Name, Unit, Verification, Worker


def _builds(session: Session) -> Any:
    # A build changes its state, or it runs: what ended and stays so is only counted, from an index.
    states = session.execute(select(Build.state, func.count()).group_by(Build.state).order_by(Build.state))
    running = select(func.coalesce(func.sum(Build.version), 0)).where(Build.state.in_(RUNNING))
    return [tuple(row) for row in states], session.execute(running).scalar_one(), _newest(session)


def _newest(session: Session) -> str | None:
    return session.execute(select(func.max(Build.id))).scalar_one()


def _workers(session: Session) -> Any:
    columns = (func.count(), func.max(Worker.seen_at), func.sum(Worker.busy), func.sum(Worker.taken))
    leased = select(func.count(), func.max(Unit.id), func.max(Unit.leased_at)).where(Unit.state == "leased")
    return tuple(session.execute(select(*columns)).one()), tuple(session.execute(leased).one())


def _mirrors(session: Session) -> Any:
    states = session.execute(select(Mirror.state, func.count()).group_by(Mirror.state).order_by(Mirror.state))
    names = select(func.count(), func.max(Name.updated_at))
    verified = select(func.max(Verification.began_at), func.max(Verification.ended_at))
    return [tuple(row) for row in states], tuple(session.execute(names).one()), tuple(session.execute(verified).one())


_ASKED: dict[str, Callable[[Session], Any]] = {"builds": _builds, "workers": _workers, "mirrors": _mirrors}
SUBJECTS = frozenset(_ASKED)


def pulses(session: Session, subjects: Iterable[str]) -> dict[str, int]:
    """A number for each subject that is another one when something changed there."""
    return {name: zlib.crc32(repr(_ASKED[name](session)).encode()) % 1_000_000_000 for name in subjects}
