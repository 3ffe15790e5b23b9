"""What can be said of a database by asking it: latency, version, schema, clock, whose root it is."""

from __future__ import annotations

import time
from collections.abc import Iterator

from sqlalchemy import Engine, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from blendex.catalog import dialect, revision
from blendex.catalog.engine import UnitOfWork, belongs
from blendex.errors import BlendexError
from blendex.observability.diagnosis import Diagnosis, median_ms

ROUNDS = 9
SLOW_MS = 20.0
SKEW_SECONDS = 2.0
OLDEST_POSTGRES = 15


def reason(error: SQLAlchemyError) -> str:
    """Why a database did not answer, in its driver's words: those name host, port and user, and no password."""
    said = str(getattr(error, "orig", None) or error).strip()
    return said.splitlines()[0] if said else type(error).__name__


def check(engine: Engine, root: str | None) -> Iterator[Diagnosis]:
    """Every check of a catalog's database; ``root`` is the root it should belong to."""
    try:
        with dialect.reader(engine).connect() as connection:
            connection.execute(select(1))
    except SQLAlchemyError as error:
        yield Diagnosis(
            "connect",
            "wrong",
            f"it does not answer: {reason(error)}",
            "Look at BLENDEX_DATABASE_URL (host, port, user, password), whether the database runs, and whether "
            "a firewall or network policy is between.",
        )
        return
    yield from (_latency(engine), _version(engine), _schema(engine), _clock(engine))
    if root is not None and revision.fits(engine):
        yield _tie(engine, root)


def _latency(engine: Engine) -> Diagnosis:
    taken = []
    with dialect.reader(engine).connect() as connection:
        for _ in range(ROUNDS):
            begun = time.perf_counter()
            connection.execute(select(1))
            taken.append(time.perf_counter() - begun)
    spent = median_ms(taken)
    if spent > SLOW_MS:
        return Diagnosis(
            "latency", "warning", f"a statement takes {spent:.0f} ms.", "Run workers nearer to the database."
        )
    return Diagnosis("latency", "ok", f"a statement takes {spent:.2f} ms.")


def _version(engine: Engine) -> Diagnosis:
    name, version = dialect.server_version(engine)
    says = f"{name} {'.'.join(map(str, version))}"
    if name == "postgresql" and version[0] < OLDEST_POSTGRES:
        return Diagnosis("version", "wrong", f"{says} is not tested.", f"Use PostgreSQL {OLDEST_POSTGRES} or newer.")
    return Diagnosis("version", "ok", says)


def _schema(engine: Engine) -> Diagnosis:
    current = revision.current(engine)
    if not revision.fits(engine):
        error = revision.misfit(current)
        return Diagnosis("schema", "wrong", error.message, error.next_step)
    if current == revision.head():
        return Diagnosis("schema", "ok", f"at revision {current}, which this version works with.")
    return Diagnosis(
        "schema",
        "warning",
        f"at revision {current}, newer than this version ({revision.head()}), which works with it.",
        "Upgrade this one as well; docs/upgrade.md says what may run beside what.",
    )


def _clock(engine: Engine) -> Diagnosis:
    with Session(dialect.reader(engine)) as session:
        before = time.time()
        there = float(session.execute(select(dialect.now(session))).scalar_one())
        after = time.time()
    skew = max(before - there, there - after, 0.0)
    if skew > SKEW_SECONDS:
        return Diagnosis(
            "clock",
            "warning",
            f"its clock is {skew:.1f} s off this machine's.",
            "Run NTP on both. Leases follow the database's clock alone; people who read logs do not.",
        )
    return Diagnosis("clock", "ok", f"its clock is within {skew + after - before:.2f} s of this machine's.")


def _tie(engine: Engine, root: str) -> Diagnosis:
    try:
        tied = belongs(UnitOfWork(engine), root)
    except BlendexError as error:
        return Diagnosis("root", "wrong", error.message, error.next_step)
    if tied:
        return Diagnosis("root", "ok", "it belongs to this root.")
    return Diagnosis("root", "ok", "it is new: the first process that starts fills it from the root.")
