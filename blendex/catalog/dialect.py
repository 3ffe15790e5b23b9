"""Where SQLite and PostgreSQL differ. The only file that may ask which one it talks to."""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from typing import Any, cast
from urllib.parse import quote

import orjson
from sqlalchemy import (
    JSON,
    ColumnElement,
    Connection,
    CursorResult,
    Dialect,
    Engine,
    Insert,
    Integer,
    LargeBinary,
    Select,
    String,
    Table,
    TableClause,
    TypeDecorator,
    any_,
    create_engine,
    event,
    func,
    literal,
    literal_column,
    select,
    text,
    true,
    update,
)
from sqlalchemy import column as table_column
from sqlalchemy import table as table_clause
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DatabaseError, InterfaceError, InternalError, InvalidatePoolError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import DeclarativeBase, Session

# What comes and goes: a database that restarts, a deadlock that it resolved against us, a lock not to be had in
# time, no connection free. Whoever was told so may do the same again.
AWAY = (OperationalError, InterfaceError, InternalError, PoolTimeout)
# SQLSTATE classes that say "not now" of the server itself: connection, resources, operator. Without a state: no answer.
_SERVER_STATES = ("08", "53", "57P")
# A file that is no database, or a server that takes no such statement: trying again mends nothing.
UNUSABLE = (DatabaseError,)
WRITE = "blendex_write"
# Rows of one statement in bulk; of 400,000 at once the parameters alone took 200 MB.
AT_ONCE = 5_000
# SQLite: how long a transaction waits for its turn.
BUSY_SECONDS = 60
# PostgreSQL, per session. A worker that is stopped in mid-transaction must not hold its locks for ever: well under
# a lease, so that recovery is not the lease plus this. No statement of ours waits longer for a row than for a plan
# of 400,000 sources to be stored.
LOCK_SECONDS = 20
IDLE_SECONDS = 20
CONNECT_SECONDS = 5
REST_SECONDS = 1.0  # a connection that rested for so long is tried before it is used


class UnopenedError(OperationalError):
    """The catalog has not answered since this process began, so that nobody knows whether it is the right one."""

    def __init__(self) -> None:
        super().__init__("the catalog has not answered yet", None, ConnectionError())


def is_gone(error: Exception) -> bool:
    """Whether one of ``AWAY`` means that nobody answers, and not that one transaction had to give way."""
    state = getattr(getattr(error, "orig", None), "sqlstate", None)
    return state is None or state.startswith(_SERVER_STATES)


def is_remote(engine: Engine) -> bool:
    """Whether the database is somewhere else, from where it may come back."""
    return engine.dialect.name != "sqlite"


def open_engine(url: str, application: str = "blendex") -> Engine:
    """An engine for ``url``; ``application`` is the name that PostgreSQL shows for its connections."""
    parsed = make_url(url)
    if parsed.drivername in ("postgres", "postgresql"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() == "sqlite":
        engine = create_engine(parsed)
        _prepare_sqlite(engine)
        return engine
    engine = create_engine(
        parsed,
        pool_size=8,
        max_overflow=32,
        pool_timeout=10,
        pool_use_lifo=True,
        connect_args={
            "application_name": application,
            "connect_timeout": CONNECT_SECONDS,
            "keepalives_idle": 20,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "options": f"-c lock_timeout={LOCK_SECONDS}s -c idle_in_transaction_session_timeout={IDLE_SECONDS}s"
            " -c jit=off",  # no statement of ours takes as long as compiling it does
        },
    )
    _try_what_rested(engine)
    return engine


def _try_what_rested(engine: Engine) -> None:
    """See that a connection that rested is still there before it is used.

    Always, as the pool does it by itself, is a fifth of a small transaction; what breaks while it is in use is heard
    of anyway, and whoever is told so tries again.
    """

    @event.listens_for(engine, "checkin")
    def checkin(_connection: Any, record: Any) -> None:
        record.info["rests_since"] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def checkout(connection: Any, record: Any, _proxy: Any) -> None:
        if time.monotonic() - record.info.get("rests_since", math.inf) < REST_SECONDS:
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise InvalidatePoolError from error  # the pool makes a new one, and forgets the others of that age


def open_file(path: str) -> Engine:
    """An engine that reads a SQLite file and leaves no trace on it, not even that it was opened."""
    return create_engine(f"sqlite:///file:{quote(path)}?mode=ro&uri=true")


def close_file(path: str) -> None:
    """Make one file of a SQLite database that nobody has open: nothing beside it, and readable where nobody writes."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")


def reader(engine: Engine) -> Engine:
    """The engine for transactions that see one state and change nothing, as SQLite's reads do by themselves."""
    if engine.dialect.name == "sqlite":
        return engine
    return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


def writer(engine: Engine) -> Engine:
    """The engine for transactions that write: READ COMMITTED, each statement sees what was committed before it.

    Every change is conditional on a state and a fence, or made under a row lock; serialization failures that would
    have to be retried are not needed for that.
    """
    return engine.execution_options(**{WRITE: True})


def lock_migrations(connection: Connection) -> None:
    """Wait for whoever migrates, until the end of this transaction; SQLite's writers wait for each other anyway.

    Tables that others use are locked for a few seconds or not at all: a migration that waits behind a long
    transaction would make everybody wait behind itself.
    """
    if connection.dialect.name == "sqlite":
        return
    connection.execute(text("SET LOCAL lock_timeout = 0"))
    connection.execute(text("SELECT pg_advisory_xact_lock(hashtext('blendex migrations'))"))
    connection.execute(text("SET LOCAL lock_timeout = '5s'"))


@contextmanager
def alone(engine: Engine, what: str) -> Iterator[None]:
    """Let no other process on this database do ``what`` meanwhile; SQLite's processes are kept apart by its writes."""
    if engine.dialect.name == "sqlite":
        yield
        return
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("SET lock_timeout = 0"))
        connection.execute(text("SELECT pg_advisory_lock(hashtext(:what))"), {"what": f"blendex {what}"})
        try:
            yield
        finally:
            connection.execute(text("SELECT pg_advisory_unlock(hashtext(:what))"), {"what": f"blendex {what}"})
            connection.invalidate()  # its lock_timeout is not that of the others


def server_version(engine: Engine) -> tuple[str, tuple[int, ...]]:
    """The name of the database and its version."""
    with engine.connect():  # the dialect learns it with the first connection
        return engine.dialect.name, tuple(map(int, engine.dialect.server_version_info or ()))


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


def one_of(session: Session, column: Any, values: Sequence[Any]) -> ColumnElement[bool]:
    """``column`` is one of many values: one parameter, however many they are, which is planned and parsed once.

    An array on PostgreSQL, never one that is cast from text: that is no constant to the planner, and is compared item
    by item with every row. On SQLite a JSON array of texts or numbers, where five hundred parameters of their own cost
    as much as looking them up; bytes have no JSON and stay parameters.
    """
    values = _kept(column, values)
    if session.get_bind().dialect.name == "sqlite":
        if isinstance(column.type, LargeBinary):
            return cast("ColumnElement[bool]", column.in_(values))
        listed = func.json_each(orjson.dumps(values).decode()).table_valued("value", name="listed")
        return cast("ColumnElement[bool]", column.in_(select(listed.c.value)))
    return cast("ColumnElement[bool]", column == any_(literal(values, _array_of(column.type))))


def by_key(
    session: Session, statement: Select[*tuple[Any, ...]], column: Any, values: Sequence[Any]
) -> Select[*tuple[Any, ...]]:
    """The rows of ``statement`` whose ``column``, which an index begins with, is one of many values, in any order.

    PostgreSQL looks each of them up in the index. Given the choice, as with ``one_of``, it reads all of a table of up
    to some 300,000 rows for 2,000 keys of which none is there: 18 ms instead of 5. No two columns of ``statement``
    may have one name.
    """
    if session.get_bind().dialect.name == "sqlite":
        return statement.where(one_of(session, column, values))
    array = literal(list(dict.fromkeys(_kept(column, values))), _array_of(column.type))  # a row comes once
    listed = func.unnest(array).table_valued(table_column("value", column.type)).render_derived("listed")
    # The OFFSET keeps the planner from making one join of it.
    one = statement.where(column == listed.c.value).offset(literal_column("0", Integer))
    found = one.correlate(listed).lateral("found")
    return select(*found.c).select_from(listed.join(found, true()))


def _kept(column: Any, values: Sequence[Any]) -> list[Any]:
    """What may be there. No text that is kept holds a NUL: PostgreSQL takes none, SQLite ends a JSON text there."""
    return [value for value in values if "\0" not in value] if isinstance(column.type, String) else list(values)


class _Texts(TypeDecorator[Sequence[Any]]):
    """An array of texts or bytes, written at once: the driver takes each item apart, 10 µs for a path of 60 bytes.

    It goes out untyped, and the cast that is rendered around it says what it is: so it is an array to the planner.
    """

    impl = postgresql.ARRAY
    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Any:
        """Writes ``{"…","…"}``, as array_in reads it."""
        return _array_text


def _array_text(values: Sequence[Any]) -> str:
    if not values:
        return "{}"
    if isinstance(values[0], bytes):
        return '{"\\\\x' + '","\\\\x'.join(map(bytes.hex, values)) + '"}'
    joined = "\0".join(values)  # none of them holds one
    if "\\" in joined or '"' in joined:
        joined = joined.replace("\\", "\\\\").replace('"', '\\"')
    return '{"' + joined.replace("\0", '","') + '"}'


_TEXTS, _BYTES = _Texts(String()), _Texts(LargeBinary())


def _array_of(kind: Any) -> Any:
    """An array of values of a column's type, whatever its length."""
    if isinstance(kind, String):
        return _TEXTS
    return _BYTES if isinstance(kind, LargeBinary) else postgresql.ARRAY(kind)


def begins(session: Session, column: Any, text: str) -> ColumnElement[bool]:
    """``column`` begins with ``text``, case and all; by the index where the database can."""
    if session.get_bind().dialect.name == "sqlite":
        # LIKE knows no case there; its order is that of bytes, and nothing follows U+10FFFF.
        return cast("ColumnElement[bool]", (column >= text) & (column < text + "\U0010ffff"))
    return cast("ColumnElement[bool]", column.startswith(text, autoescape=True))


def whole(session: Session, number: ColumnElement[Any]) -> ColumnElement[int]:
    """A number of at least 0 without what is behind its point; a cast rounds on PostgreSQL and cuts on SQLite."""
    if session.get_bind().dialect.name == "sqlite":
        return number.cast(Integer)
    return func.floor(number).cast(Integer)


def skip_locked(statement: Select[Any]) -> Select[Any]:
    """Lock the selected rows, leaving those that others hold; SQLite writes one at a time and ignores it."""
    return statement.with_for_update(skip_locked=True)


def add_new(session: Session, model: type[DeclarativeBase], names: Sequence[str], rows: Sequence[Sequence[Any]]) -> int:
    """Insert rows in bulk, leaving out those whose key is taken; how many went in. COPY on PostgreSQL.

    It is fastest when no key is taken.
    """
    target = table(model)
    if session.get_bind().dialect.name == "sqlite":
        before = session.execute(text("SELECT total_changes()")).scalar_one()
        plain = sqlite.insert(target).on_conflict_do_nothing()
        left = iter(rows)
        while part := [dict(zip(names, row, strict=True)) for row in islice(left, AT_ONCE)]:
            session.connection().execute(plain, part)
        return int(session.execute(text("SELECT total_changes()")).scalar_one() - before)
    if _copy_in(session, target, names, rows):
        return len(rows)
    copied = _copy(session, target, names, rows)
    columns = [copied.c[name] for name in names]
    statement = postgresql.insert(target).from_select(list(names), select(*columns)).on_conflict_do_nothing()
    counted = statement.execution_options(preserve_rowcount=True)
    result: CursorResult[Any] = session.execute(counted)  # type: ignore[assignment]
    return int(result.rowcount)


def new_ids(session: Session, model: type[DeclarativeBase], count: int) -> list[int] | None:
    """Ids for so many new rows; None on SQLite, which gives them as rows are written."""
    if session.get_bind().dialect.name == "sqlite":
        return None
    # As a subquery it is looked up once, and not for each number: 0.4 µs instead of 5.
    sequence = select(func.pg_get_serial_sequence(table(model).name, "id").cast(postgresql.REGCLASS)).scalar_subquery()
    asked = select(func.nextval(sequence)).select_from(func.generate_series(1, count))
    return list(session.execute(asked).scalars().all())


def insert_new(
    session: Session, model: type[DeclarativeBase], names: Sequence[str], rows: Iterable[Sequence[Any]]
) -> bool:
    """Insert rows of which most likely no key is taken, without looking.

    False, and no row is there, when the key of one of them is taken; and on SQLite, where it is no faster.
    """
    return session.get_bind().dialect.name != "sqlite" and _copy_in(session, table(model), names, rows)


def upsert(
    session: Session,
    model: type[DeclarativeBase],
    rows: Sequence[dict[str, Any]],
    *,
    keys: Sequence[str],
    then: Callable[[Any], tuple[dict[str, Any], Any]],
) -> None:
    """Insert rows in bulk, updating those whose key is taken. COPY and one INSERT on PostgreSQL.

    Args:
        session: the transaction.
        model: whose table.
        rows: of one form, no key twice, in the order in which rows shall be locked.
        keys: the columns of the key.
        then: from the row that was excluded what to set, and the condition under which.
    """
    if not rows:
        return
    target = table(model)
    if session.get_bind().dialect.name == "sqlite":
        plain = sqlite.insert(target)
        values, condition = then(plain.excluded)
        session.execute(
            plain.on_conflict_do_update(index_elements=list(keys), set_=values, where=condition), list(rows)
        )
        return
    names = list(rows[0])
    copied = _copy(session, target, names, ([row[name] for name in names] for row in rows))
    statement = postgresql.insert(target).from_select(names, select(*(copied.c[name] for name in names)))
    values, condition = then(statement.excluded)
    session.execute(statement.on_conflict_do_update(index_elements=list(keys), set_=values, where=condition))


def update_from(
    session: Session,
    model: type[DeclarativeBase],
    *,
    key: str,
    value: str,
    rows: Iterable[tuple[Any, Any]],
    fixed: dict[str, Any],
    where: dict[str, Any],
) -> None:
    """Set column ``value``, and the ``fixed`` ones, of every row whose ``key`` is given with it, in bulk.

    ``where`` names columns that must have a value besides. COPY and one UPDATE on PostgreSQL.
    """
    target = table(model)
    if session.get_bind().dialect.name == "sqlite":
        sets = ", ".join([f'"{value}" = :p_value', *(f'"{name}" = :s_{name}' for name in fixed)])
        conditions = " AND ".join([f'"{key}" = :p_key', *(f'"{name}" = :w_{name}' for name in where)])
        common = {f"s_{name}": item for name, item in fixed.items()} | {f"w_{n}": item for n, item in where.items()}
        plain = text(f"UPDATE {target.name} SET {sets} WHERE {conditions}")  # noqa: S608
        rows = iter(rows)
        while part := [common | {"p_key": first, "p_value": second} for first, second in islice(rows, AT_ONCE)]:
            session.connection().execute(plain, part)
        return
    copied = _copy(session, target, (key, value), rows)
    session.execute(text(f"ANALYZE {copied.name}"))  # a join of unknown sizes may be planned as a loop in a loop
    matches = [target.c[key] == copied.c[key], *(target.c[name] == item for name, item in where.items())]
    statement = update(target).where(*matches).values({value: copied.c[value]} | fixed)
    session.execute(statement.execution_options(synchronize_session=False))


def go_on_counting(connection: Connection, target: Table) -> None:
    """After rows were copied with their ids: let the next id be a new one. SQLite looks at the rows itself."""
    if connection.dialect.name == "sqlite":
        return
    for item in target.primary_key.columns:
        sequence = connection.execute(select(func.pg_get_serial_sequence(target.name, item.name))).scalar_one()
        if sequence is not None:
            highest = connection.execute(select(func.max(item))).scalar_one()
            connection.execute(select(func.setval(sequence, highest or 1, highest is not None)))


def _copy_in(session: Session, target: Table, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> bool:
    """Copy rows to where they belong; False, and no row is there, when the key of one of them is taken.

    What is not named gets the table's own defaults. It takes three quarters of the time that a temporary table and an
    INSERT with ON CONFLICT take (20,000 sources: 0.15 s, 0.20 s), and empties no temporary table at each commit.
    """
    from psycopg.errors import UniqueViolation  # who has SQLite need not load it

    connection = session.connection()
    driver: Any = connection.connection.driver_connection
    savepoint = connection.begin_nested()  # the session's own is not there before its next statement
    try:
        with driver.cursor() as cursor:
            _copy_to(cursor, target.name, target, names, rows)
    except UniqueViolation:
        savepoint.rollback()
        return False
    savepoint.commit()
    return True


def _copy(session: Session, target: Table, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> TableClause:
    """The rows in a temporary table of this connection, with some columns of ``target``; until the next use."""
    name = "_".join(("copied", target.name, *(item[:4] for item in names)))[:60]
    columns = ", ".join(f'"{item}"' for item in names)
    driver: Any = session.connection().connection.driver_connection
    with driver.cursor() as cursor:
        # Made once per connection: a table for every unit would be a burden on the database's own catalog.
        cursor.execute(
            f"CREATE TEMPORARY TABLE IF NOT EXISTS {name} ON COMMIT DELETE ROWS AS "  # noqa: S608
            f"SELECT {columns} FROM {target.name} LIMIT 0"
        )
        cursor.execute(f"DELETE FROM {name}")  # noqa: S608 -- of an earlier use in this transaction; mostly none
        _copy_to(cursor, name, target, names, rows)
    return table_clause(name, *(table_column(item, target.c[item].type) for item in names))


def _copy_to(cursor: Any, name: str, target: Table, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Copy rows into a table that has columns of ``target``."""
    columns = ", ".join(f'"{item}"' for item in names)
    json = [position for position, item in enumerate(names) if isinstance(target.c[item].type, JSON)]
    with cursor.copy(f"COPY {name} ({columns}) FROM STDIN") as copy:
        for row in rows:
            if json:
                cells = list(row)
                for position in json:
                    if cells[position] is not None:
                        cells[position] = orjson.dumps(cells[position]).decode()
                copy.write_row(cells)
            else:
                copy.write_row(row)


def leave_room(connection: Connection, name: str, percent: int) -> None:
    """Fill pages of a table with new rows so far and no farther; 100: wholly. SQLite updates rows where they lie."""
    if connection.dialect.name != "sqlite":
        connection.execute(text(f'ALTER TABLE "{name}" SET (fillfactor = {percent})'))


def _begin_wal(connection: sqlite3.Connection) -> None:
    """Have a write-ahead log, whoever else is just about to.

    The busy handler is not asked where another connection has the database reserved, since two that wait for each
    other would wait for ever: of four processes that met at a new catalog one in a thousand was told that it is locked.
    """
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
        time.sleep(0.01)


def _prepare_sqlite(engine: Engine) -> None:
    """Make SQLite behave: WAL, foreign keys, waiting writers, and transactions that we begin ourselves.

    pysqlite's own BEGIN comes late, at the first write, so two readers that turn writers deadlock. Ours is BEGIN
    IMMEDIATE for a unit of work that writes: it waits for its turn at the start.
    """

    @event.listens_for(engine, "connect")
    def connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout={BUSY_SECONDS * 1000}")
        _begin_wal(connection)
        for pragma in ("synchronous=NORMAL", "foreign_keys=ON", "cache_size=-16000"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin(connection: Any) -> None:
        write = connection.get_execution_options().get(WRITE, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
