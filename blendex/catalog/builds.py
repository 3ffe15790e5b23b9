"""Builds: rows, datasets, progress."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from sqlalchemy import ColumnElement, String, cast, delete, func, or_, select, true, update
from sqlalchemy.orm import Session

from blendex.catalog import blobs, dialect
from blendex.catalog.models import RUNNING, Blob, Build, BuildDataset, NameHistory, Outbox, Subscription, Unit
from blendex.observability import traces

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def new_id() -> str:
    """26 characters: 48 bits of time, 80 of chance, in order of time."""
    number = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10), "big")
    return "".join(ALPHABET[number >> shift & 31] for shift in range(125, -1, -5))


def create(
    session: Session,
    *,
    owner: str,
    identity: str,
    submission: dict[str, Any],
    file: str,
    options: dict[str, Any],
    priority: int = 0,
    team: str = "",
    labels: dict[str, str] | None = None,
) -> tuple[Build, bool]:
    """The running build of this identity, made now if there is none; True when it was made."""
    digest = blobs.put_json(session, submission)
    now = session.execute(select(dialect.now(session))).scalar_one()
    values: dict[str, Any] = {
        "id": new_id(),
        "owner": owner,
        "team": team,
        "identity": identity,
        "traceparent": traces.current(),
        "state": "queued",
        "submission": digest,
        "file": file,
        "options": options,
        "created_at": now,
        "updated_at": now,
        "stages": {"queued": round(now, 3)},
        "names": [],
        "labels": labels or {},
        "excluded": [],
        "fence": 0, "version": 0, "priority": priority, "replans": 0,
        "sources": 0, "reused": 0, "bytes": 0, "opened": 0,
    }  # fmt: skip
    statement = dialect.insert(session, Build).values(**values).on_conflict_do_nothing().returning(Build.id)
    while (made := session.execute(statement).scalar_one_or_none()) is None:
        # Locked: whoever publishes it reads its names after this transaction.
        running = select(Build).where(Build.identity == identity, Build.state.in_(RUNNING)).with_for_update()
        if (build := session.execute(running).scalar_one_or_none()) is not None:
            return build, False
        # The one that stood in the way ended between the two statements.
    wake(session, "plan")
    return session.get_one(Build, made), True


def wake(session: Session, work: str) -> None:
    """Note that there is work, to be told after the commit."""
    session.execute(dialect.table(Outbox).insert().values(work=work, created_at=dialect.now(session)))


def get(session: Session, build: str) -> Build | None:
    """One build."""
    return session.get(Build, build, populate_existing=True)


def recipes(session: Session, build: str) -> str | None:
    """The recipes that its plan was made in."""
    return session.execute(select(Build.recipes).where(Build.id == build)).scalar_one_or_none()


def some(session: Session, builds: Sequence[str]) -> dict[str, Build]:
    """Some builds, by id."""
    rows = session.execute(select(Build).where(dialect.one_of(session, Build.id, builds))).scalars()
    return {row.id: row for row in rows}


def lock(session: Session, build: str) -> Build | None:
    """One build, that nobody else changes until this transaction ends."""
    return session.get(Build, build, populate_existing=True, with_for_update=True)


def running(session: Session) -> list[str]:
    """Ids of the builds that have not ended."""
    return list(session.execute(select(Build.id).where(Build.state.in_(RUNNING)).order_by(Build.id)).scalars())


def page(
    session: Session,
    *,
    team: str | None = None,
    owner: str | None = None,
    state: str | None = None,
    states: Sequence[str] = (),
    name: str | None = None,
    text: str | None = None,
    labels: Mapping[str, str] | None = None,
    before: str | None = None,
    limit: int = 50,
) -> list[Build]:
    """Builds, newest first, older than ``before``.

    Args:
        session: of the catalog.
        team: only those of one team.
        owner: only theirs.
        state: only in this state.
        states: only in one of these states.
        name: only those that this name points at, pointed at, or is asked for.
        text: only those whose id begins with it, or whose file, a dataset or the code of the error holds it.
        labels: only those that have all of these.
        before: the id after which the page begins.
        limit: most builds.
    """
    statement = select(Build).order_by(Build.id.desc()).limit(limit)
    statement = statement.where(_of_team(team))
    if owner is not None:
        statement = statement.where(Build.owner == owner)
    if state is not None:
        statement = statement.where(Build.state == state)
    if states:
        statement = statement.where(Build.state.in_(states))
    if name is not None:
        pointed = select(NameHistory.build).where(NameHistory.name == name)
        asked = cast(Build.names, String).contains(orjson.dumps(name).decode(), autoescape=True)
        statement = statement.where(or_(Build.id.in_(pointed), asked))
    if text is not None:
        statement = statement.where(_holds(text))
    for key, value in (labels or {}).items():
        statement = statement.where(Build.labels[key].as_string() == value)
    if before is not None:
        statement = statement.where(Build.id < before)
    return list(session.execute(statement).scalars())


def _holds(text: str) -> ColumnElement[bool]:
    datasets = select(BuildDataset.build).where(BuildDataset.name.icontains(text, autoescape=True))
    return or_(
        Build.id.startswith(text, autoescape=True),
        Build.file.icontains(text, autoescape=True),
        cast(Build.error, String).icontains(text, autoescape=True),
        Build.id.in_(datasets),
    )


def _of_team(team: str | None) -> ColumnElement[bool]:
    return true() if team is None else Build.team == team


def owners(session: Session, limit: int = 50, team: str | None = None) -> list[str]:
    """Who has builds, of one team or of all."""
    statement = select(Build.owner).where(_of_team(team)).distinct().order_by(Build.owner).limit(limit)
    return list(session.execute(statement).scalars())


def of_mirror(session: Session, key: str, limit: int = 50, team: str | None = None) -> list[Build]:
    """Builds that share a mirror, of one team or of all, newest first."""
    statement = select(Build).where(Build.mirror == key, _of_team(team)).order_by(Build.id.desc()).limit(limit)
    return list(session.execute(statement).scalars())


def lists(session: Session, limit: int, team: str | None = None) -> list[tuple[str, str, str, str | None, str]]:
    """The lists of sources of the newest builds: (list hash, build, dataset, mirror, state) each."""
    newest = select(Build.id).where(_of_team(team)).order_by(Build.id.desc()).limit(limit)
    rows = session.execute(
        select(BuildDataset.list_hash, Build.id, BuildDataset.name, Build.mirror, Build.state)
        .join(Build, Build.id == BuildDataset.build)
        .where(Build.id.in_(newest))
        .order_by(Build.id.desc(), BuildDataset.position)
    )
    return [(row[0], row[1], row[2], row[3], row[4]) for row in rows]


def versions(session: Session, builds: list[str]) -> dict[str, int]:
    """Versions of some builds: what changed is looked at again."""
    build = dialect.table(Build)
    rows = session.execute(select(build.c.id, build.c.version).where(build.c.id.in_(builds)))
    return {row[0]: row[1] for row in rows}


def set_datasets(session: Session, build: str, datasets: list[dict[str, Any]]) -> None:
    """Replace the datasets of a build: position, name, type, weight, list_hash, sources each."""
    session.execute(delete(BuildDataset).where(BuildDataset.build == build))
    if datasets:
        session.execute(dialect.table(BuildDataset).insert(), [item | {"build": build} for item in datasets])


def set_amounts(session: Session, build: str, amounts: Sequence[Mapping[str, Any]]) -> None:
    """Note records, bytes, seconds and access of each dataset, in their order."""
    for position, amount in enumerate(amounts):
        session.execute(
            update(BuildDataset)
            .where(BuildDataset.build == build, BuildDataset.position == position)
            .values(**amount)
            .execution_options(synchronize_session=False)
        )


def datasets(session: Session, build: str) -> list[BuildDataset]:
    """The datasets of a build, in the order of its blend."""
    return list(
        session.execute(
            select(BuildDataset).where(BuildDataset.build == build).order_by(BuildDataset.position)
        ).scalars()
    )


def left(session: Session, build: str) -> tuple[int, int]:
    """(units, sources) that a build still waits for."""
    row = session.execute(
        select(func.count(), func.coalesce(func.sum(Subscription.sources), 0))
        .join(Unit, Unit.id == Subscription.unit)
        .where(Subscription.build == build, Unit.state.in_(("waiting", "leased")), Unit.work == "index")
    ).one()
    return int(row[0]), int(row[1])


def outbox(session: Session, limit: int = 1_000) -> list[tuple[int, str]]:
    """Wake-ups not told yet, oldest first: (id, work)."""
    rows = session.execute(select(Outbox.id, Outbox.work).order_by(Outbox.id).limit(limit))
    return [(row.id, row.work) for row in rows]


def told(session: Session, ids: Sequence[int]) -> None:
    """Forget wake-ups: they were told, or need not be."""
    session.execute(delete(Outbox).where(dialect.one_of(session, Outbox.id, ids)))


def outbox_length(session: Session) -> int:
    """Wake-ups not told yet."""
    return int(session.execute(select(func.count()).select_from(Outbox)).scalar_one())


def census(session: Session, team: str | None = None) -> dict[str, int]:
    """Builds by state, of one team or of all."""
    rows = session.execute(select(Build.state, func.count()).where(_of_team(team)).group_by(Build.state))
    return {row[0]: int(row[1]) for row in rows}


def has_old_outbox(session: Session, seconds: float) -> bool:
    """Whether there are wake-ups of that age."""
    old = select(Outbox.id).where(Outbox.created_at < dialect.now(session) - seconds).limit(1)
    return session.execute(old).scalar_one_or_none() is not None


def forget_outbox(session: Session, seconds: float) -> None:
    """Forget wake-ups of that age: the work they tell of is in the units, and everybody polls."""
    session.execute(delete(Outbox).where(Outbox.created_at < dialect.now(session) - seconds))


def bytes_of_blobs(session: Session) -> int:
    """Compressed bytes in the blobs table."""
    return int(session.execute(select(func.coalesce(func.sum(func.length(Blob.data)), 0))).scalar_one())
