"""Where SQLite and PostgreSQL differ. The only file that may ask which one it talks to."""

from __future__ import annotations

from typing import Any, cast

from sqlalchemy import ColumnElement, Engine, Insert, Select, Table, event, func, literal_column
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import DeclarativeBase, Session

# Parameters per statement: SQLite allows 32,766 (since 3.32), PostgreSQL's protocol 65,535.
MAX_PARAMETERS = 30_000
WRITE = "blendex_write"


def now(session: Session) -> ColumnElement[float]:
    """The database's clock, in seconds since the epoch, as an SQL expression."""
    if session.get_bind().dialect.name == "sqlite":
        return literal_column("((julianday('now') - 2440587.5) * 86400.0)")
    return func.extract("epoch", func.clock_timestamp()).cast(postgresql.DOUBLE_PRECISION)


def table(model: type[DeclarativeBase]) -> Table:
    """The table of a model, for statements in bulk."""
    return cast(Table, model.__table__)


def insert(session: Session, model: type[DeclarativeBase]) -> Any:
    """An INSERT that has ``on_conflict_do_nothing`` and ``on_conflict_do_update``."""
    module: Any = sqlite if session.get_bind().dialect.name == "sqlite" else postgresql
    statement: Insert = module.insert(table(model))
    return statement


def skip_locked(statement: Select[Any]) -> Select[Any]:
    """Lock the selected rows, leaving those that others hold; SQLite writes one at a time and ignores it."""
    return statement.with_for_update(skip_locked=True)


def prepare_sqlite(engine: Engine) -> None:
    """Make SQLite behave: WAL, foreign keys, waiting writers, and transactions that we begin ourselves.

    pysqlite's own BEGIN comes late, at the first write, so two readers that turn writers deadlock. Ours is BEGIN
    IMMEDIATE for a unit of work that writes: it waits for its turn at the start.
    """

    @event.listens_for(engine, "connect")
    def connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        for pragma in (
            "journal_mode=WAL",
            "synchronous=NORMAL",
            "foreign_keys=ON",
            "busy_timeout=60000",
            "cache_size=-16000",
        ):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin(connection: Any) -> None:
        write = connection.get_execution_options().get(WRITE, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
