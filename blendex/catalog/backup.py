"""A catalog in one file, and back: a copy of every table as SQLite, whatever database it came from.

The root proves mirrors, names and contents without any database (``adopt``); what only the catalog knows are builds
under way, failed ones with their reasons, and who submitted what. A backup keeps that, and moves a catalog from SQLite
to PostgreSQL.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import JSON, Connection, Engine, MetaData, Table, func, select

from blendex.catalog import dialect, migrate, revision
from blendex.catalog.engine import CATALOG_ID, catalog_id
from blendex.errors import BlendexError, Code
from blendex.storage.root import flush_file, flush_folder

ALEMBIC = "alembic_version"


def save(engine: Engine, path: str) -> dict[str, int]:
    """Copy the catalog, as it is at one instant, into a new file; how many rows of each table.

    The file has the revision of the catalog, which may be older than this version works with: a backup is what one
    makes before an upgrade. It appears under its name when it is complete and flushed, and replaces nothing.

    Raises:
        BlendexError: bad_request when the file is there already; catalog_version when the catalog is empty or newer.
    """
    if os.path.lexists(path):
        raise BlendexError(
            Code.BAD_REQUEST, "there is such a file already.", file=path, next_step="Give a name that is not taken."
        )
    current = revision.current(engine)
    if current is None:
        raise BlendexError(
            Code.CATALOG_VERSION, "this database holds no catalog.", next_step="Look at BLENDEX_DATABASE_URL."
        )
    folder, name = os.path.split(os.path.abspath(path))
    private = os.path.join(folder, f".{name}.{os.urandom(8).hex()}")
    os.close(os.open(private, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))  # it holds what people submitted
    try:
        with _open(dialect.open_engine(f"sqlite:///{private}")) as copy:
            migrate.upgrade(copy, current)
            with dialect.reader(engine).connect() as source, dialect.writer(copy).begin() as target:
                counts = _copy_all(source, target)
        dialect.close_file(private)
        flush_file(private)
        os.link(private, path)
    finally:
        for suffix in ("", "-wal", "-shm"):
            if os.path.exists(private + suffix):
                os.unlink(private + suffix)
    flush_folder(folder)
    return counts


def load(engine: Engine, path: str, root: str) -> dict[str, int]:
    """Fill an empty database from a backup, and bring it to the revision of this version; rows of each table.

    The database is left untied from the root: whoever opens it next adopts what the root holds and the backup does not
    know, everything that was published since. What the backup knows and the root no longer holds stays known as
    collected.

    Raises:
        BlendexError: bad_request when the database is not empty or the file is no backup; catalog_mismatch when it is
            of another root; catalog_version when it is newer than this version.
    """
    if not os.path.isfile(path):
        raise BlendexError(Code.BAD_REQUEST, "there is no such file.", file=path, next_step="Give a backup.")
    if revision.current(engine) is not None:
        raise BlendexError(
            Code.BAD_REQUEST,
            "this database holds a catalog already.",
            next_step="Restore into an empty database; stop all processes first.",
        )
    with _open(dialect.open_file(os.path.abspath(path))) as backup:
        try:
            wanted = revision.current(backup)
        except dialect.UNUSABLE:
            wanted = None
        if wanted is None:
            raise BlendexError(Code.BAD_REQUEST, "this is no backup of a catalog.", file=path, next_step="Give one.")
        _same_root(backup, path, root)
        migrate.upgrade(engine, wanted)
        with dialect.reader(backup).connect() as source, dialect.writer(engine).begin() as target:
            counts = _copy_all(source, target)
            meta = _tables(target)["meta"]
            target.execute(meta.delete().where(meta.c.key == CATALOG_ID))
    migrate.upgrade(engine)
    return counts


@contextmanager
def _open(engine: Engine) -> Iterator[Engine]:
    try:
        yield engine
    finally:
        engine.dispose()


def _same_root(backup: Engine, path: str, root: str) -> None:
    with dialect.reader(backup).connect() as connection:
        meta = _tables(connection)["meta"]
        found = connection.execute(select(meta.c.value).where(meta.c.key == CATALOG_ID)).scalar_one_or_none()
    if found is not None and found != catalog_id(root):
        raise BlendexError(
            Code.CATALOG_MISMATCH,
            f"this backup belongs to catalog {found}, the root to {catalog_id(root)}.",
            file=path,
            next_step=f"Give the backup of this root, or the root of this backup; the id is in {root}/catalog-id.",
        )


def _tables(connection: Connection) -> dict[str, Table]:
    """The tables as they are, not as this version would have them, those that others refer to first."""
    metadata = MetaData()
    metadata.reflect(connection)
    for table in metadata.tables.values():
        for column in table.columns:
            if isinstance(column.type, JSON):
                column.type.none_as_null = True  # as in all of ours; reflection cannot know
    return {str(table.name): table for table in metadata.sorted_tables if table.name != ALEMBIC}


def _copy_all(source: Connection, target: Connection) -> dict[str, int]:
    tables = _tables(target)
    for table in reversed(tables.values()):
        target.execute(table.delete())
    counts = {}
    for name, table in _tables(source).items():
        result = source.execution_options(yield_per=dialect.AT_ONCE).execute(select(table))
        for part in result.mappings().partitions():
            rows: list[dict[str, Any]] = [dict(row) for row in part]
            target.execute(tables[name].insert(), rows)
        counts[name] = target.execute(select(func.count()).select_from(tables[name])).scalar_one()
        dialect.go_on_counting(target, tables[name])
    return counts
