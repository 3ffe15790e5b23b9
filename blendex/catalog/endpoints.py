"""Endpoints: the pace of each object store, as children measured it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from blendex.catalog import dialect
from blendex.catalog.models import Endpoint

MEASURED = ("latency", "stream", "together", "lookahead")


def paces(session: Session) -> dict[str, dict[str, float]]:
    """What is known of each profile that was measured."""
    return {
        row.profile: {name: getattr(row, name) for name in MEASURED}
        for row in session.execute(select(Endpoint.profile, *(getattr(Endpoint, name) for name in MEASURED)))
    }


def remember(session: Session, measured: Mapping[str, Mapping[str, float]]) -> None:
    """Keep what a child measured: it began from what was known, so the last one counts."""
    for profile in sorted(measured):
        values: dict[str, Any] = {name: float(measured[profile][name]) for name in MEASURED}
        values["updated_at"] = dialect.now(session)
        session.execute(
            dialect.insert(session, Endpoint)
            .values(profile=profile, **values)
            .on_conflict_do_update(index_elements=["profile"], set_=values)
        )
