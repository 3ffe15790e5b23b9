"""Which revision a database is at, and which one it should be at, without loading Alembic (0.3 s) to find out."""

from __future__ import annotations

import importlib.resources

from sqlalchemy import Engine, inspect, text


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
