"""Quotas: how much a team may have at one time, looked at when it submits, and when a plan says how much it is.

A quota says what may be begun, and takes nothing away: what runs goes on, and what is published stays.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from blendex.builds.site import Site
from blendex.catalog import teams_usage
from blendex.catalog.models import Build
from blendex.catalog.teams_usage import team_of
from blendex.errors import BlendexError, Code
from blendex.observability import metrics
from blendex.settings import QuotaSettings

EVERYBODY = "*"
# What passes by itself is answered with 429, and may be asked for again.
_PASSING = {
    "running_builds": "builds run",
    "running_sources": "sources are in builds that run",
    "bytes_per_day": "bytes were read for it in a day",
}
_STAYING = {
    "mirror_bytes": "bytes of mirrors are held by its builds",
    "mirror_files": "files of mirrors are held by its builds",
}


def quota_of(site: Site, team: str) -> QuotaSettings:
    """The quota of a team: its own, or everybody's."""
    quotas = site.settings.quotas
    return quotas.get(team) or quotas.get(EVERYBODY) or QuotaSettings()


def report(site: Site, session: Session, team: str) -> dict[str, Any]:
    """What a team uses, and what it may; None in a quota: any number."""
    return {
        "team": team,
        "usage": teams_usage.of_team(session, team).as_dict(),
        "quota": quota_of(site, team).model_dump(),
    }


def check(site: Site, session: Session, build: Build) -> None:
    """Refuse a build that was just made, when its team has as much as it may.

    Raises:
        BlendexError: quota_full, when some of it ends by itself; quota_exceeded, when somebody must act.
    """
    team = team_of(build.team, build.owner)
    quota = quota_of(site, team).model_dump()
    if all(quota[name] is None for name in (*_PASSING, *_STAYING)):
        return
    used = teams_usage.of_team(session, team).as_dict()
    used["running_builds"] -= 1  # itself
    for names, code, step in (
        (_PASSING, Code.QUOTA_FULL, "Wait for what runs, and ask again; what runs already can be joined."),
        (_STAYING, Code.QUOTA_EXCEEDED, "Let go of mirrors that nobody needs, or have the quota raised."),
    ):
        for name, words in names.items():
            if quota[name] is not None and used[name] >= quota[name]:
                metrics.REFUSED.inc()
                raise BlendexError(
                    code, f"the quota {name} of team {team} is used up: {used[name]} {words}, of {quota[name]}.",
                    next_step=step,
                )  # fmt: skip


def check_plan(site: Site, build: Build, sources: int) -> None:
    """Refuse a build that names more sources than one may.

    Raises:
        BlendexError: quota_exceeded.
    """
    team = team_of(build.team, build.owner)
    most = quota_of(site, team).build_sources
    if most is not None and sources > most:
        raise BlendexError(
            Code.QUOTA_EXCEEDED,
            f"the quota build_sources of team {team} is {most}, and this blend names {sources} sources.",
            next_step="Split the blend, or have the quota raised.",
        )
