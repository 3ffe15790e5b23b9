"""Which revision a database is at, and which one it should be at, without loading Alembic (0.3 s) to find out."""

from __future__ import annotations

import importlib.resources
import time

from sqlalchemy import Engine, inspect, text

from blendex.catalog import dialect
from blendex.errors import BlendexError, Code


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


def wait_for_head(engine: Engine, seconds: float) -> None:
    """Wait for somebody else to bring the database to the newest revision.

    Raises:
        BlendexError: catalog_version, when nobody did.
    """
    deadline = time.monotonic() + seconds
    while True:
        found = None
        try:
            found = current(engine)
        except dialect.AWAY:
            if time.monotonic() >= deadline:
                raise
        if found == head():
            return
        if time.monotonic() >= deadline:
            raise BlendexError(
                Code.CATALOG_VERSION,
                f"the catalog is at revision {found}, this version of Blendex works with {head()}.",
                next_step="Run blendex db upgrade, once, before its processes start.",
            )
        time.sleep(min(0.5, seconds))
