"""What the file between the databases promises, on both."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Column, Integer, LargeBinary, MetaData, String, Table, insert, select, text
from sqlalchemy.orm import Session

from blendex.builds.site import Site
from blendex.catalog import builds, dialect, sources, units
from blendex.catalog.models import Content, Pending

NAMES = ["a", 'b"x', "c\\y", "\\", "d,e", "{f}", "", "NULL", "é ü", "x'y", "\n", " sp ", "%s", ":n", "$1", "𝄞", "\x01"]


@pytest.mark.parametrize("way", ["one_of", "by_key"])
def test_each_value_is_found_and_no_other(open_site: Callable[..., Site], way: str) -> None:
    columns = Column("text", String(16)), Column("data", LargeBinary), Column("number", Integer)
    table = Table("values_of_a_test", MetaData(), *columns)
    rows = [{"text": name, "data": name.encode(), "number": number} for number, name in enumerate(NAMES)]

    def found(session: Session, name: str, values: list[object]) -> list[int]:
        wanted = select(table.c.number)
        if way == "by_key":
            wanted = dialect.by_key(session, wanted, table.c[name], values)
        else:
            wanted = wanted.where(dialect.one_of(session, table.c[name], values))
        return sorted(session.execute(wanted).scalars())

    site = open_site()
    with site.work.write() as session:
        table.create(session.connection())
        session.execute(insert(table), rows)
        for row in rows:
            for name, value in row.items():
                assert found(session, name, [value, value]) == [row["number"]]
                others = [other for other in rows if other is not row]
                assert found(session, name, [other[name] for other in others]) == [item["number"] for item in others]
        for name in ("text", "data", "number"):
            assert found(session, name, []) == []
        # No database keeps such a text; it must not be taken for the two on its sides.
        assert found(session, "text", ["a\0d,e"]) == []
        assert found(session, "text", ["", "a\0d,e", "a"]) == [0, NAMES.index("")]


def test_rows_that_are_believed_to_be_new_and_are_not(open_site: Callable[..., Site]) -> None:
    """Nothing of the attempt is left, what came before it in the transaction is, and the keys that are taken win."""
    site = open_site()

    def entry(number: int, seconds: float) -> dict[str, object]:
        return {
            "strength": "full", "hash": b"%032d" % number, "recipe": "jsonl:1", "size": 1, "records": 1,
            "object": item, "offset": 0, "length": 1, "digest": bytes(32), "findings": [{"name": "é\\"}],
            "seconds": seconds,
        }  # fmt: skip

    def put(session: Session, numbers: range, seconds: float) -> None:
        rows = [entry(number, seconds) for number in numbers]
        names = list(rows[0])
        if dialect.insert_new(session, Content, names, [list(row.values()) for row in rows]):
            return
        then = lambda excluded: ({"seconds": excluded.seconds}, None)  # noqa: E731
        dialect.upsert(session, Content, rows, keys=("hash", "recipe", "strength"), then=then)

    with site.work.write() as session:
        item = sources.add_object(session, "an object", 1)
        put(session, range(0, 6, 2), 1.0)
        put(session, range(4, 8), 2.0)
    with site.work.read() as session:
        found = session.execute(select(Content).order_by(Content.hash)).scalars().all()
        expected = [(0, 1.0), (2, 1.0), (4, 2.0), (5, 2.0), (6, 2.0), (7, 2.0)]
        assert [(int(row.hash), row.seconds) for row in found] == expected
        assert all(row.learned == 0 and row.findings == [{"name": "é\\"}] for row in found)
    with site.work.write() as session:
        build, _ = builds.create(session, owner="o", identity="x", submission={}, file="f", options={})
        unit = units.create(session, "index", build.id, {}, memory=1, priority=1)
        rows = [(f"/{number}", "jsonl:1", unit) for number in range(4)]
        assert dialect.add_new(session, Pending, ("address", "recipe", "unit"), rows[1:3]) == 2
        assert dialect.add_new(session, Pending, ("address", "recipe", "unit"), rows) == 2
        assert dialect.add_new(session, Pending, ("address", "recipe", "unit"), rows) == 0
        assert units.announced(session, unit) == {row[:2] for row in rows}


def test_a_new_file_that_another_process_just_sets_up_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "catalog.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")  # has it reserved: whoever wants a log meanwhile is told so at once
        threading.Timer(0.3, other.execute, ("COMMIT",)).start()
        engine = dialect.open_engine(f"sqlite:///{path}")
        with engine.begin() as connection:
            assert connection.execute(text("PRAGMA journal_mode")).scalar_one() == "wal"
        engine.dispose()
