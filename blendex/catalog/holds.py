"""Holds: what keeps mirrors. Small rows, one per (mirror, kind, team, holder); whoever holds twice holds once.

Kinds: ``pin`` (a person), ``job`` (a job of the scheduler, until it ends), ``chain`` (a chain of jobs, renewed by each
of them), ``build`` (one under way that publishes this mirror, or has found it there). A name keeps the mirror of the
build that it points at, and has no row.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import ColumnElement, CursorResult, and_, case, delete, or_, select, true
from sqlalchemy.orm import Session

from blendex.catalog import dialect
from blendex.catalog.models import RUNNING, Build, Hold, Mirror, Name

TAKEN = ("pin", "job", "chain")
"""What somebody takes and releases; names and builds hold by what they are."""


@dataclass(frozen=True, slots=True)
class Held:
    """One hold on a mirror; ``until`` None: until it is released, or its name moves, or its build ends."""

    kind: str
    holder: str
    since: float | None
    until: float | None
    reason: str | None

    def as_dict(self) -> dict[str, Any]:
        """JSON."""
        return asdict(self)


def take(
    session: Session,
    mirror: str,
    kind: str,
    holder: str,
    until: float | None,
    reason: str | None = None,
    team: str = "",
) -> None:
    """Take a hold, or renew it. Two teams that call a chain or a job the same hold two.

    A look-up that tells an earlier end never shortens the hold of a job or a chain: of two nodes of one job the one
    with the longer view is right. A pin is what was said last.
    """
    statement = dialect.insert(session, Hold).values(
        mirror=mirror, kind=kind, team=team, holder=holder, since=dialect.now(session), until=until, reason=reason
    )
    new = statement.excluded.until
    later = new if kind == "pin" else case((Hold.until > new, Hold.until), else_=new)
    session.execute(
        statement.on_conflict_do_update(
            index_elements=["mirror", "kind", "team", "holder"],
            set_={"until": later, "reason": statement.excluded.reason},
        )
    )


def get(session: Session, mirror: str, kind: str, holder: str, team: str = "") -> Held | None:
    """One hold."""
    row = session.get(Hold, (mirror, kind, team, holder), populate_existing=True)
    return None if row is None else Held(row.kind, row.holder, row.since, row.until, row.reason)


def release(session: Session, mirror: str, kind: str, holder: str, team: str | None = None) -> bool:
    """Let go, of what a team holds, or of whatever team's it is (None); False when nothing was held."""
    mine = Hold.team == team if team is not None else true()
    result: CursorResult[Any] = session.execute(  # type: ignore[assignment]
        delete(Hold).where(Hold.mirror == mirror, Hold.kind == kind, Hold.holder == holder, mine)
    )
    return result.rowcount > 0


def _lasts(session: Session) -> ColumnElement[bool]:
    """Whether a hold is one now: an end that has passed holds nothing, nor does a build that has ended."""
    runs = select(Build.id).where(Build.id == Hold.holder, Build.state.in_(RUNNING)).exists()
    return or_(
        and_(Hold.kind != "build", or_(Hold.until.is_(None), Hold.until > dialect.now(session))),
        and_(Hold.kind == "build", runs),
    )


def of_mirror(session: Session, mirror: str, team: str | None = None, limit: int = 200) -> list[Held]:
    """What keeps a mirror now, of one team or of all (None): names first, then the others, the oldest first."""
    builds_of = select(Build.id).where(Build.id == Hold.holder, Build.team == team).exists()
    mine = or_(Hold.team == team, and_(Hold.kind == "build", builds_of)) if team is not None else true()
    named = session.execute(
        select(Name.name, Name.updated_at)
        .join(Build, Build.id == Name.build)
        .where(Build.mirror == mirror, Name.team == team if team is not None else true())
        .order_by(Name.name)
        .limit(limit)
    )
    found = [Held("name", row.name, row.updated_at, None, None) for row in named]
    rows = session.execute(
        select(Hold).where(Hold.mirror == mirror, mine, _lasts(session)).order_by(Hold.since, Hold.holder).limit(limit)
    ).scalars()
    return found + [Held(row.kind, row.holder, row.since, row.until, row.reason) for row in rows]


def nobody(session: Session) -> ColumnElement[bool]:
    """Nothing keeps the mirror of this row.

    To decide by it, lock the row first, in a statement of its own: on PostgreSQL a statement that waited for a lock
    sees the row as it is then, and everything else as it was before it waited.
    """
    named = select(Name.name).join(Build, Build.id == Name.build).where(Build.mirror == Mirror.key)
    held = select(Hold.holder).where(Hold.mirror == Mirror.key, _lasts(session))
    return and_(~named.exists(), ~held.exists())


def forget(session: Session) -> None:
    """Remove the rows that hold nothing any more."""
    session.execute(delete(Hold).where(~_lasts(session)).execution_options(synchronize_session=False))
