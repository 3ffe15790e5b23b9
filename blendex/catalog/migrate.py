"""Bring a database to the revision that this version of Blendex works with."""

from __future__ import annotations

import importlib.resources

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine

from blendex.catalog import dialect, revision
from blendex.catalog.models import Base
from blendex.errors import BlendexError, Code


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(importlib.resources.files("migrations")))
    if connection is not None:
        config.attributes["connection"] = connection
    return config


def upgrade(engine: Engine, target: str | None = None) -> None:
    """Migrate to the newest revision, or up to ``target``; nothing to do is nothing done.

    Raises:
        BlendexError: catalog_version, when the database or the target is newer than this program.
    """
    target = target or revision.head()
    current = revision.current(engine)
    if current == target:
        return
    known = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
    for found in (current, target):
        if found is not None and found not in known:
            raise BlendexError(
                Code.CATALOG_VERSION,
                f"the catalog is at revision {found}, which this version of Blendex does not know.",
                next_step="Use the newer version that migrated it, or an empty database.",
            )
    with dialect.writer(engine).begin() as connection:
        # Several processes start at once: the first migrates, the others find it done.
        dialect.lock_migrations(connection)
        command.upgrade(_config(connection), target)


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
