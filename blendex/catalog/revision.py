"""Which revision a database is at, and which one it should be at, without loading Alembic (0.3 s) to find out."""

from __future__ import annotations

import importlib.resources
import time

from sqlalchemy import Engine, inspect, text

from blendex.catalog import dialect
from blendex.errors import BlendexError, Code

# Programs whose newest migration is this one work with the newest schema: what was added since may be left out (a test
# holds migrations against it). Written into the database by whoever migrates it, since an older program cannot know.
ADDITIVE_SINCE = "0004"
ADDITIVE_KEY = "additive_since"


def head() -> str:
    """The newest revision: migrations are numbered, and their files are named after the number."""
    names = (item.name for item in importlib.resources.files("migrations").joinpath("versions").iterdir())
    return max(name.partition("_")[0] for name in names if name[:4].isdigit())


def current(engine: Engine) -> str | None:
    """The revision of a database; None for an empty one."""
    with engine.begin() as connection:
        if not inspect(connection).has_table("alembic_version"):
            return None
        revision: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
        return revision


def fits(engine: Engine) -> bool:
    """Whether this program works with the database: this version migrated it, or a newer one that only added.

    The second is what lets an image be rolled back after the upgrade.
    """
    found = current(engine)
    if found is None or found < head():
        return False
    if found == head():
        return True
    with engine.begin() as connection:
        statement = text("SELECT value FROM meta WHERE key = :key")
        since: str | None = connection.execute(statement, {"key": ADDITIVE_KEY}).scalar_one_or_none()
    return since is not None and since <= head()


def wait_for_fit(engine: Engine, seconds: float) -> None:
    """Wait for somebody else to bring the database to a revision that this program works with.

    Raises:
        BlendexError: catalog_version, when nobody did.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            if fits(engine):
                return
        except dialect.AWAY:
            if time.monotonic() >= deadline:
                raise
        if time.monotonic() >= deadline:
            raise misfit(current(engine))
        time.sleep(min(0.5, seconds))


def misfit(found: str | None) -> BlendexError:
    """Why this program does not work with a database at a revision, and what to do."""
    if found is not None and found > head():
        return BlendexError(
            Code.CATALOG_VERSION,
            f"the catalog is at revision {found}; this version of Blendex knows {head()}, and cannot work with that.",
            next_step="Use the version that migrated it, or restore the backup made before into an empty database.",
        )
    return BlendexError(
        Code.CATALOG_VERSION,
        f"the catalog is at revision {found}, this version of Blendex works with {head()}.",
        next_step="Run blendex db upgrade, once, before its processes start.",
    )
