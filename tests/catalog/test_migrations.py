"""Migrations, on both databases: up from nothing, down one and up again, no drift, and several at one time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Engine, inspect, text

from blendex.builds import site as site_module
from blendex.builds.run import run_build
from blendex.builds.site import Site
from blendex.catalog import migrate, revision
from blendex.catalog.dialect import open_engine
from blendex.errors import BlendexError, Code
from tests.support import corpus


@pytest.fixture
def engine(empty_database_url: str) -> Engine:
    return open_engine(empty_database_url)


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
        revision.wait_for_fit(engine, 0.1)
    assert raised.value.code is Code.CATALOG_VERSION
    timer = threading.Timer(0.3, migrate.upgrade, [engine])
    timer.start()
    revision.wait_for_fit(engine, 20)
    timer.join()
    engine.dispose()


def takes_away(old: Engine, new: Engine) -> list[str]:
    """What a program that knows ``old`` would miss or be refused in ``new``."""
    before, after = inspect(old), inspect(new)
    wrong = []
    for table in before.get_table_names():
        if table not in after.get_table_names():
            wrong.append(f"{table} is gone")
            continue
        columns = {column["name"]: column for column in after.get_columns(table)}
        for column in before.get_columns(table):
            there = columns.pop(column["name"], None)
            if there is None:
                wrong.append(f"{table}.{column['name']} is gone")
            elif str(there["type"]) != str(column["type"]) or there["nullable"] < column["nullable"]:
                wrong.append(f"{table}.{column['name']} takes less")
        wrong += [
            f"{table}.{name} must be given"
            for name, column in columns.items()
            if not column["nullable"] and column["default"] is None
        ]
        known = {tuple(item["column_names"]) for item in before.get_unique_constraints(table)}
        for item in after.get_unique_constraints(table):
            if tuple(item["column_names"]) not in known:
                wrong.append(f"{table} lets {item['column_names']} be there once only")
    return wrong


def test_migrations_only_add_since_they_say_so(engine: Engine, tmp_path: Path) -> None:
    """An image that is rolled back works with the newer schema: revision.ADDITIVE_SINCE must be true."""
    old = open_engine(f"sqlite:///{tmp_path}/old.sqlite")
    new = open_engine(f"sqlite:///{tmp_path}/new.sqlite")
    migrate.upgrade(old, revision.ADDITIVE_SINCE)
    migrate.upgrade(new)
    assert takes_away(old, new) == []
    with new.begin() as connection:
        connection.execute(text("ALTER TABLE units ADD COLUMN must INTEGER NOT NULL DEFAULT 1"))
        connection.execute(text("ALTER TABLE meta RENAME COLUMN value TO text"))
        connection.execute(text("CREATE TABLE more (a INTEGER NOT NULL)"))
        connection.execute(text("DROP TABLE outbox"))
    assert set(takes_away(old, new)) == {"meta.value is gone", "meta.text must be given", "outbox is gone"}
    old.dispose()
    new.dispose()


@pytest.mark.parametrize("migrates", [True, False])
def test_an_image_that_was_rolled_back_works_with_what_was_only_added_to(
    open_site: Callable[..., Site], data: Path, monkeypatch: pytest.MonkeyPatch, migrates: bool
) -> None:
    monkeypatch.setattr(site_module, "MIGRATION_SECONDS", 0.1)
    site = open_site()
    submission = corpus.submission(corpus.corpus(data, 2), data)
    built = run_build(site, submission)

    def newer(since: str) -> None:
        with site.work.engine.begin() as connection:
            connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
            connection.execute(text("UPDATE meta SET value = :since WHERE key = 'additive_since'"), {"since": since})

    newer(revision.head())
    rolled_back = open_site(migrate=migrates)
    assert run_build(rolled_back, submission)["mirror"] == built["mirror"]
    assert revision.current(site.work.engine) == "9999"

    newer("9998")
    with pytest.raises(BlendexError) as refused:
        open_site(migrate=migrates)
    assert refused.value.code == Code.CATALOG_VERSION
    assert "restore the backup" in refused.value.next_step
