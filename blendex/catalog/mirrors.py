"""Mirrors and names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import func, or_, select, true, update
from sqlalchemy.orm import Session

from blendex.catalog import dialect
from blendex.catalog.models import Build, Mirror, Name, NameHistory


def add(
    session: Session,
    *,
    key: str,
    source_set: str,
    content: str,
    counts: dict[str, int],
    published: float | None = None,
) -> int:
    """The row of a published mirror, made if there is none."""
    now = dialect.now(session)
    row = session.execute(
        dialect.insert(session, Mirror)
        .values(
            key=key, source_set=source_set, content=content, state="published",
            sources=counts["sources"], records=counts["records"], bytes=counts["bytes"],
            sidecar_bytes=counts["sidecar_bytes"],
            created_at=now if published is None else published, used_at=now,
        )
        .on_conflict_do_update(
            index_elements=["key"], set_={"state": "published", "used_at": now, "condemned_at": None, "grave": None}
        )
        .returning(Mirror.id)
    )  # fmt: skip
    return int(row.scalar_one())


def note_own(session: Session, mirror: int, *, files: int, size: int) -> None:
    """Note what was written for a mirror, and not linked from another one."""
    session.execute(
        update(Mirror)
        .where(Mirror.id == mirror)
        .values(own_files=files, own_bytes=size)
        .execution_options(synchronize_session=False)
    )


def get(session: Session, key: str) -> Mirror | None:
    """One mirror."""
    return session.execute(select(Mirror).where(Mirror.key == key)).scalar_one_or_none()


def page(session: Session, *, before: int | None = None, limit: int = 50) -> list[Mirror]:
    """Mirrors, newest first."""
    statement = select(Mirror).order_by(Mirror.id.desc()).limit(limit)
    if before is not None:
        statement = statement.where(Mirror.id < before)
    return list(session.execute(statement).scalars())


def search(
    session: Session, text: str, *, before: int | None = None, limit: int = 50, team: str | None = None
) -> list[Mirror]:
    """Mirrors that a text may mean, newest first: the beginning of a key or digest, a name, a posted file.

    A path of a mirror holds its key, so it is found too. With ``team`` names and files are those of one team.
    """
    word = next((part for part in reversed(text.split("/")) if len(part) == 64), text).lower()
    named = select(Build.mirror).where(
        Build.mirror.is_not(None),
        true() if team is None else Build.team == team,
        or_(
            Build.id.in_(select(NameHistory.build).where(NameHistory.name.icontains(text, autoescape=True))),
            Build.file.icontains(text, autoescape=True),
            Build.id == text,
        ),
    )
    columns = (Mirror.key, Mirror.source_set, Mirror.content)
    found = or_(*(column.startswith(word, autoescape=True) for column in columns), Mirror.key.in_(named))
    statement = select(Mirror).where(found).order_by(Mirror.id.desc()).limit(limit)
    if before is not None:
        statement = statement.where(Mirror.id < before)
    return list(session.execute(statement).scalars())


def names_of(session: Session, keys: Sequence[str], team: str | None = None) -> dict[str, list[str]]:
    """The names, of one team or of all, that point at builds of these mirrors now, by key."""
    found: dict[str, list[str]] = {}
    rows = session.execute(
        select(Build.mirror, Name.name)
        .join(Build, Build.id == Name.build)
        .where(dialect.one_of(session, Build.mirror, keys), true() if team is None else Name.team == team)
        .order_by(Name.name)
    )
    for key, label in rows:
        assert key is not None
        found.setdefault(key, []).append(label)
    return found


def lock(session: Session, key: str) -> Mirror | None:
    """One mirror, that nobody else changes until this transaction ends."""
    return session.execute(
        select(Mirror).where(Mirror.key == key).with_for_update().execution_options(populate_existing=True)
    ).scalar_one_or_none()


def note_use(session: Session, key: str) -> None:
    """Somebody wants it now: condemned or not, it is as good as new."""
    _set(session, key, state="published", used_at=dialect.now(session), condemned_at=None, grave=None)


def note_gone(session: Session, key: str) -> None:
    """The folder is gone: the mirror is collected."""
    _set(session, key, state="collected", grave=None)


def note_grave(session: Session, key: str, grave: str) -> None:
    """It is about to be renamed into a folder; whoever wants it back takes that folder away first."""
    _set(session, key, state="collecting", grave=grave)


def _set(session: Session, key: str, **values: Any) -> None:
    session.execute(update(Mirror).where(Mirror.key == key).values(values).execution_options(synchronize_session=False))


def standing(session: Session) -> list[str]:
    """Keys of all that have not been collected."""
    return list(session.execute(select(Mirror.key).where(Mirror.state != "collected").order_by(Mirror.id)).scalars())


def count_states(session: Session) -> dict[str, int]:
    """Mirrors by state."""
    return {row[0]: int(row[1]) for row in session.execute(select(Mirror.state, func.count()).group_by(Mirror.state))}


def point(session: Session, name: str, build: str, team: str = "") -> Name | None:
    """Let a team's name point at a build; where it pointed stays in its history. None: it is another team's."""
    now = session.execute(select(dialect.now(session))).scalar_one()
    # Version 0 is seen by nobody: it is there to be locked, so that two who make one name take turns.
    session.execute(
        dialect.insert(session, Name)
        .values(name=name, team=team, build="", version=0, updated_at=now)
        .on_conflict_do_nothing()
    )
    row = session.get_one(Name, name, with_for_update=True, populate_existing=True)
    if row.team != team:
        return None
    if row.build == build:
        return row
    row.build, row.version, row.updated_at = build, row.version + 1, now
    session.add(NameHistory(name=name, version=row.version, build=build, at=now))
    return row


def name(session: Session, name: str) -> Name | None:
    """One name."""
    return session.get(Name, name)


def names(session: Session, *, after: str = "", limit: int = 50, team: str | None = None) -> list[Name]:
    """Names in order, of one team or of all."""
    statement = select(Name).where(Name.name > after).order_by(Name.name).limit(limit)
    if team is not None:
        statement = statement.where(Name.team == team)
    return list(session.execute(statement).scalars())


def history(session: Session, name: str) -> list[dict[str, Any]]:
    """Where a name pointed, newest first."""
    rows = session.execute(
        select(NameHistory).where(NameHistory.name == name).order_by(NameHistory.version.desc())
    ).scalars()
    return [{"version": row.version, "build": row.build, "at": row.at} for row in rows]
