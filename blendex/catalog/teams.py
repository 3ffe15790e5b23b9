"""Teams: what each may read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from blendex.catalog import dialect
from blendex.catalog.models import Build, Team


def get(session: Session, name: str) -> Team | None:
    """One team."""
    return session.get(Team, name)


def page(session: Session) -> list[Team]:
    """All of them, by name."""
    return list(session.execute(select(Team).order_by(Team.name)).scalars())


def put(
    session: Session,
    name: str,
    *,
    roots: Sequence[str],
    stores: Mapping[str, Sequence[str]],
    views: Sequence[Sequence[str]],
) -> Team:
    """Say what a team may read; its version is another one afterwards."""
    values = {
        "roots": list(roots),
        "stores": {profile: list(stores[profile]) for profile in sorted(stores)},
        "views": [list(pair) for pair in views],
        "updated_at": dialect.now(session),
    }
    session.execute(
        dialect.insert(session, Team)
        .values(name=name, version=1, **values)
        .on_conflict_do_update(index_elements=["name"], set_=values | {"version": Team.version + 1})
    )
    return session.get_one(Team, name, populate_existing=True)


def of_build(session: Session, build: str) -> str:
    """The team of a build; empty for one that has none."""
    return session.execute(select(Build.team).where(Build.id == build)).scalar_one_or_none() or ""
