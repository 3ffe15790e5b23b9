"""Who asks: what every limit, quota and build is put down to."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request

from service.house import get_house

SCOPES = frozenset({"lookup", "read", "build", "admin"})


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever sent a request; ``team`` empty: the owner is a team of one."""

    owner: str
    team: str
    scopes: frozenset[str]
    token_id: str | None


def caller(request: Request) -> Caller:
    """Everybody is the owner of the settings."""
    return Caller(get_house(request).site.settings.owner, "", SCOPES, None)
