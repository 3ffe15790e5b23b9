"""Mistakes that the checker must notice, planted into a process before it starts."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Update, update
from sqlalchemy.orm import Session


def plant(bug: str) -> None:
    """Plant one."""
    {
        "fence ignored": _fence_ignored,
        "lease check off": _lease_check_off,
        "outbox row dropped": _outbox_row_dropped,
    }[bug]()


def _fence_ignored() -> None:
    """An outcome counts whatever became of the lease, even when somebody else took the unit and ended it."""
    from blendex.catalog import states
    from blendex.catalog.models import Unit

    def end_unit(session: Session, unit: int, fence: int, state: str, error: dict[str, Any] | None = None) -> bool:
        return states._changed(
            session, update(Unit).where(Unit.id == unit).values(state=state, error=error, lease_until=None)
        )

    states.end_unit = end_unit


def _lease_check_off() -> None:
    """Leases are taken back without asking whether they ran out."""
    from sqlalchemy import select

    from blendex.catalog import dialect, states
    from blendex.catalog.models import Unit

    def any_expired(session: Session) -> bool:
        return session.execute(select(Unit.id).where(Unit.state == "leased").limit(1)).scalar_one_or_none() is not None

    def expire_leases(session: Session) -> list[int]:
        statement: Update = update(Unit).where(Unit.state == "leased")
        rows = session.execute(
            statement.values(
                state="waiting", worker=None, lease_until=None, waiting_since=dialect.now(session),
                attempts=Unit.attempts + 1,
            ).returning(Unit.id)
        )  # fmt: skip
        return [row.id for row in rows]

    states.any_expired = any_expired
    states.expire_leases = expire_leases


def _outbox_row_dropped() -> None:
    """Work is written without the row that tells of it."""
    from blendex.catalog import builds

    builds.wake = lambda session, work: None
