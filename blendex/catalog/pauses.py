"""A pause of everything that writes: the disk is full, so what runs ends, and nothing is begun until it is not."""

from __future__ import annotations

from typing import Any

import orjson
from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from blendex.catalog import dialect
from blendex.catalog.models import Meta

KEY = "pause"
# As long as a column of the table is wide.
LONGEST = 210


def begin(session: Session, reason: str, seconds: float) -> None:
    """Begin nothing that writes for some seconds, or for as many again."""
    until = session.execute(select(dialect.now(session))).scalar_one() + seconds
    value = orjson.dumps({"until": round(until, 3), "why": reason[:LONGEST].encode("ascii", "replace").decode()})
    statement = dialect.insert(session, Meta).values(key=KEY, value=value.decode()[:256])
    session.execute(statement.on_conflict_do_update(index_elements=["key"], set_={"value": value.decode()[:256]}))


def current(session: Session) -> str | None:
    """Why nothing is begun now; None when it is."""
    row = session.execute(select(Meta.value, dialect.now(session).label("now")).where(Meta.key == KEY)).one_or_none()
    if row is None:
        return None
    told: dict[str, Any] = orjson.loads(row.value)
    return str(told["why"]) if told["until"] > row.now else None


def end(session: Session) -> None:
    """Go on."""
    session.execute(delete(Meta).where(Meta.key == KEY))
