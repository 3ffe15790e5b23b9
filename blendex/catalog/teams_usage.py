"""What each team uses: builds that run, what was read for it, and its part of the mirrors that its builds hold."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import ColumnElement, case, func, select
from sqlalchemy.orm import Session

from blendex.catalog import dialect
from blendex.catalog.models import RUNNING, Build, Mirror
from blendex.catalog.usage import FILES_OF_A_MIRROR

DAY = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class TeamUsage:
    """Of one team: ``bytes_per_day`` is what builds submitted in the last 24 hours were read for."""

    running_builds: int
    running_sources: int
    bytes_per_day: int
    mirrors: int
    mirror_bytes: int
    mirror_files: int

    def as_dict(self) -> dict[str, int]:
        """As JSON."""
        return asdict(self)


def team_of(team: str, owner: str) -> str:
    """What stands for a team: its name, or that of an owner without one."""
    return team or owner


def _team() -> ColumnElement[str]:
    return case((Build.team == "", Build.owner), else_=Build.team)


def of_team(session: Session, team: str) -> TeamUsage:
    """What a team uses now."""
    mine = _team() == team
    running, sources = session.execute(
        select(func.count(), func.coalesce(func.sum(Build.sources), 0)).where(mine, Build.state.in_(RUNNING))
    ).one()
    since = dialect.now(session) - DAY
    read = select(func.coalesce(func.sum(Build.read_bytes), 0)).where(mine, Build.created_at >= since)
    mirrors, size, files = session.execute(_parts(team)).one()
    return TeamUsage(
        int(running), int(sources), int(session.execute(read).scalar_one()),
        int(mirrors), round(float(size)), round(float(files)),
    )  # fmt: skip


def _parts(team: str) -> Any:
    """Mirrors that ready builds of a team hold, and its part of them: equal ones of all teams whose builds do."""
    ready = (Build.state == "ready", Build.mirror.is_not(None))
    held = select(Build.mirror.label("key")).where(*ready, _team() == team).distinct().subquery()
    holders = (
        select(Build.mirror.label("key"), func.count(func.distinct(_team())).label("teams"))
        .where(*ready, Build.mirror.in_(select(held.c.key)))
        .group_by(Build.mirror)
        .subquery()
    )
    part = 1.0 / holders.c.teams
    files = func.coalesce(Mirror.own_files, 0) + FILES_OF_A_MIRROR
    return (
        select(
            func.count(),
            func.coalesce(func.sum(func.coalesce(Mirror.own_bytes, 0) * part), 0),
            func.coalesce(func.sum(files * part), 0),
        )
        .select_from(Mirror)
        .join(holders, holders.c.key == Mirror.key)
        .where(Mirror.state == "published")
    )


def teams(session: Session) -> list[str]:
    """Every team that has builds."""
    return sorted(session.execute(select(_team()).distinct()).scalars())
