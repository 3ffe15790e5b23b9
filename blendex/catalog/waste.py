"""What nobody needs: mirrors that nothing holds, objects that nothing refers to. Found, marked, and looked at again.

What may go is decided twice. The first step marks a mirror ``condemned``, an object ``dying``, and both are served and
used as before: using one takes the mark away. The second decides about one row, locked, in its own transaction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, CursorResult, delete, select, update
from sqlalchemy.orm import Session

from blendex.catalog import dialect, holds
from blendex.catalog.models import Build, Content, Meta, Mirror, Object, Pack

ADOPTED = "adopted_at"
COLLECTED = "collected_at"


@dataclass(frozen=True, slots=True)
class Ages:
    """After how many seconds: ``unused`` a mirror is condemned, ``condemned`` it may go; ``rest`` after a restore."""

    unused: float
    condemned: float
    rest: float


def note_adopted(session: Session) -> None:
    """The catalog was filled from the root, perhaps after a restore: holds may be missing of which nobody knows."""
    _note(session, ADOPTED)


def _note(session: Session, key: str) -> None:
    value = repr(float(session.execute(select(dialect.now(session))).scalar_one()))
    statement = dialect.insert(session, Meta).values(key=key, value=value)
    session.execute(statement.on_conflict_do_update(index_elements=["key"], set_={"value": value}))


def _since(session: Session, key: str) -> float | None:
    """Seconds since something was noted."""
    row = session.execute(select(Meta.value, dialect.now(session).label("now")).where(Meta.key == key)).one_or_none()
    return None if row is None else float(row.now) - float(row.value)


def rests(session: Session, ages: Ages) -> float:
    """Seconds for which nothing may go yet, since the catalog was restored or adopted; 0: none."""
    since = _since(session, ADOPTED)
    return 0.0 if since is None else max(0.0, ages.rest - since)


def is_time(session: Session, every: float) -> bool:
    """Whether it is time to collect again, every so many seconds."""
    since = _since(session, COLLECTED)
    return since is None or since >= every


def take_turn(session: Session, every: float) -> bool:
    """Whether it is time to collect again, every so many seconds, and this process is the one that does."""
    # The row is there to be locked: of two the second sees what the first noted.
    session.execute(dialect.insert(session, Meta).values(key=COLLECTED, value="0.0").on_conflict_do_nothing())
    session.execute(select(Meta.value).where(Meta.key == COLLECTED).with_for_update())
    if not is_time(session, every):
        return False
    _note(session, COLLECTED)
    return True


def _unused(session: Session, ages: Ages) -> ColumnElement[bool]:
    return Mirror.used_at < dialect.now(session) - ages.unused


def _due(session: Session, ages: Ages) -> ColumnElement[bool]:
    """Condemned long enough; one whose collector died is due as it was before."""
    return Mirror.state.in_(("condemned", "collecting")) & (
        Mirror.condemned_at <= dialect.now(session) - ages.condemned
    )


def to_condemn(session: Session, ages: Ages) -> list[Mirror]:
    """Published mirrors that nobody holds, and nobody asked for long enough."""
    wanted = select(Mirror).where(Mirror.state == "published", _unused(session, ages), holds.nobody(session))
    return list(session.execute(wanted.order_by(Mirror.id)).scalars())


def condemn(session: Session, ages: Ages) -> int:
    """Mark those; how many. One that somebody holds after all is no longer marked."""
    session.execute(
        update(Mirror)
        .where(Mirror.state == "condemned", ~holds.nobody(session))
        .values(state="published", condemned_at=None)
        .execution_options(synchronize_session=False)
    )
    result: CursorResult[Any] = session.execute(  # type: ignore[assignment]
        update(Mirror)
        .where(Mirror.state == "published", _unused(session, ages), holds.nobody(session))
        .values(state="condemned", condemned_at=dialect.now(session))
        .execution_options(synchronize_session=False)
    )
    return int(result.rowcount)


def due(session: Session, ages: Ages, limit: int | None = None) -> list[Mirror]:
    """Mirrors that may go, the longest condemned first."""
    wanted = select(Mirror).where(_due(session, ages), _unused(session, ages), holds.nobody(session))
    return list(session.execute(wanted.order_by(Mirror.condemned_at, Mirror.id).limit(limit)).scalars())


def is_due(session: Session, key: str, ages: Ages) -> bool:
    """Whether a mirror, whose row this transaction has locked, may go now."""
    if rests(session, ages) > 0:
        return False
    wanted = select(Mirror.key).where(
        Mirror.key == key, _due(session, ages), _unused(session, ages), holds.nobody(session)
    )
    return session.execute(wanted).scalar_one_or_none() is not None


def builds_of(session: Session, key: str) -> list[str]:
    """The ready builds of a mirror: their folders go with it."""
    ready = select(Build.id).where(Build.mirror == key, Build.state == "ready")
    return list(session.execute(ready.order_by(Build.id)).scalars())


def unreferenced() -> ColumnElement[bool]:
    """Nothing lies in the object of this row: what it held was read again, and lies elsewhere."""
    contents = select(Content.id).where(Content.object == Object.id).exists()
    packs = select(Pack.digest).where(Pack.object == Object.id).exists()
    return ~contents & ~packs


def to_mark(session: Session, ages: Ages) -> list[Object]:
    """Objects that nothing refers to, old enough that nobody is about to."""
    old = Object.created_at < dialect.now(session) - ages.condemned
    return list(
        session.execute(
            select(Object).where(Object.state.in_(("live", "lost")), old, unreferenced()).order_by(Object.id)
        ).scalars()
    )


def mark(session: Session, ages: Ages) -> int:
    """Mark those ``dying``; how many. One that something refers to again is alive."""
    session.execute(
        update(Object)
        .where(Object.state == "dying", ~unreferenced())
        .values(state="live", dying_at=None)
        .execution_options(synchronize_session=False)
    )
    old = Object.created_at < dialect.now(session) - ages.condemned
    result: CursorResult[Any] = session.execute(  # type: ignore[assignment]
        update(Object)
        .where(Object.state.in_(("live", "lost")), old, unreferenced())
        .values(state="dying", dying_at=dialect.now(session))
        .execution_options(synchronize_session=False)
    )
    return int(result.rowcount)


def dying(session: Session, ages: Ages, limit: int | None = None) -> list[Object]:
    """Objects that may go."""
    wanted = select(Object).where(
        Object.state == "dying", Object.dying_at <= dialect.now(session) - ages.unused, unreferenced()
    )
    return list(session.execute(wanted.order_by(Object.id).limit(limit)).scalars())


def lock_object(session: Session, number: int, ages: Ages) -> bool:
    """Lock an object, and look whether it may still go."""
    session.execute(select(Object.id).where(Object.id == number).with_for_update())
    wanted = select(Object.id).where(
        Object.id == number, Object.state == "dying",
        Object.dying_at <= dialect.now(session) - ages.unused, unreferenced(),
    )  # fmt: skip
    return session.execute(wanted).scalar_one_or_none() is not None and rests(session, ages) <= 0


def drop_object(session: Session, number: int) -> None:
    """The file is gone: so is the row."""
    session.execute(delete(Object).where(Object.id == number).execution_options(synchronize_session=False))
