"""Bring a database to the revision that this version of Blendex works with."""

from __future__ import annotations

import importlib.resources

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, delete

from blendex.catalog import dialect, revision
from blendex.catalog.models import Base, Meta


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(importlib.resources.files("migrations")))
    if connection is not None:
        config.attributes["connection"] = connection
    return config


def upgrade(engine: Engine, target: str | None = None) -> None:
    """Migrate to the newest revision, or up to ``target``; nothing to do is nothing done.

    A database that a newer program migrated, and only added to, is left as it is.

    Raises:
        BlendexError: catalog_version, when the database or the target is newer than this program can work with.
    """
    target = target or revision.head()
    current = revision.current(engine)
    if current == target or (target == revision.head() and revision.fits(engine)):
        return
    known = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
    for found in (current, target):
        if found is not None and found not in known:
            raise revision.misfit(found)
    with dialect.writer(engine).begin() as connection:
        # Several processes start at once: the first migrates, the others find it done.
        dialect.lock_migrations(connection)
        command.upgrade(_config(connection), target)
        if target == revision.head():
            connection.execute(delete(Meta).where(Meta.key == revision.ADDITIVE_KEY))
            values = {"key": revision.ADDITIVE_KEY, "value": revision.ADDITIVE_SINCE}
            connection.execute(dialect.table(Meta).insert().values(values))


def downgrade(engine: Engine, target: str) -> None:
    """Go back to ``target`` (``-1``: one step)."""
    with dialect.writer(engine).begin() as connection:
        dialect.lock_migrations(connection)
        command.downgrade(_config(connection), target)


def drift(engine: Engine) -> list[object]:
    """Differences between the database and the models; empty when they agree."""
    with engine.begin() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return list(compare_metadata(context, Base.metadata))
