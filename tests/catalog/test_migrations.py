"""Migrations, on both databases: up from nothing, down one and up again, no drift, and several at one time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Engine, inspect, text

from blendex.catalog import migrate, revision
from blendex.catalog.dialect import open_engine
from blendex.errors import BlendexError, Code

DatabaseUrl = Callable[[Path], str | None]


@pytest.fixture
def engine(database_url: DatabaseUrl, tmp_path: Path) -> Engine:
    return open_engine(database_url(tmp_path) or f"sqlite:///{tmp_path}/catalog.sqlite")


def test_up_from_nothing_leaves_no_drift(engine: Engine) -> None:
    migrate.upgrade(engine)
    assert migrate.drift(engine) == []
    migrate.upgrade(engine)  # nothing to do
    engine.dispose()


def test_down_one_and_up_again_keeps_what_was_there(engine: Engine) -> None:
    migrate.upgrade(engine)
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO units (work, build, state, fence, attempts, priority, cost, turn, memory, payload) "
                "VALUES ('index', 'b', 'waiting', 0, 0, 0, 0, 7, 1, '')"
            )
        )
    migrate.downgrade(engine, "0002")
    assert "packs" not in inspect(engine).get_table_names()
    with engine.begin() as connection:
        assert connection.execute(text("SELECT work, turn FROM units")).one() == ("index", 7)
    migrate.downgrade(engine, "0001")
    assert "workers" not in inspect(engine).get_table_names()
    migrate.upgrade(engine)
    assert migrate.drift(engine) == []
    with engine.begin() as connection:
        assert connection.execute(text("SELECT work, turn FROM units")).one() == ("index", 0)
    engine.dispose()


def test_down_to_nothing(engine: Engine) -> None:
    migrate.upgrade(engine)
    migrate.downgrade(engine, "base")
    assert set(inspect(engine).get_table_names()) <= {"alembic_version"}
    engine.dispose()


def test_several_that_start_at_once_migrate_once(engine: Engine, dialect: str) -> None:
    barrier = threading.Barrier(4)

    def start(_: int) -> None:
        own = open_engine(engine.url.render_as_string(hide_password=False))
        barrier.wait()
        migrate.upgrade(own)
        own.dispose()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(start, range(4)))
    assert migrate.drift(engine) == []
    engine.dispose()


def test_who_does_not_migrate_waits_for_who_does(engine: Engine) -> None:
    with pytest.raises(BlendexError) as raised:
        revision.wait_for_head(engine, 0.1)
    assert raised.value.code is Code.CATALOG_VERSION
    timer = threading.Timer(0.3, migrate.upgrade, [engine])
    timer.start()
    revision.wait_for_head(engine, 20)
    timer.join()
    engine.dispose()
