"""What the file between the databases promises, on both."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Column, Integer, LargeBinary, MetaData, String, Table, insert, select
from sqlalchemy.orm import Session

from blendex.builds.site import Site
from blendex.catalog import dialect

NAMES = ["a", 'b"x', "c\\y", "\\", "d,e", "{f}", "", "NULL", "é ü", "x'y", "\n", " sp ", "%s", ":n", "$1", "𝄞", "\x01"]


def test_one_of_finds_each_value_and_no_other(open_site: Callable[..., Site]) -> None:
    columns = Column("text", String(16)), Column("data", LargeBinary), Column("number", Integer)
    table = Table("values_of_a_test", MetaData(), *columns)
    rows = [{"text": name, "data": name.encode(), "number": number} for number, name in enumerate(NAMES)]

    def found(session: Session, name: str, values: list[object]) -> list[int]:
        wanted = select(table.c.number).where(dialect.one_of(session, table.c[name], values))
        return sorted(session.execute(wanted).scalars())

    site = open_site()
    with site.work.write() as session:
        table.create(session.connection())
        session.execute(insert(table), rows)
        for row in rows:
            for name, value in row.items():
                assert found(session, name, [value]) == [row["number"]]
                others = [other for other in rows if other is not row]
                assert found(session, name, [other[name] for other in others]) == [item["number"] for item in others]
        for name in ("text", "data", "number"):
            assert found(session, name, []) == []
        # No database keeps such a text; it must not be taken for the two on its sides.
        assert found(session, "text", ["a\0d,e"]) == []
        assert found(session, "text", ["", "a\0d,e", "a"]) == [0, NAMES.index("")]
