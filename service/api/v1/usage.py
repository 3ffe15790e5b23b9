"""``/v1/usage``."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from blendex.builds import quotas
from blendex.builds.naming import not_found
from blendex.catalog.teams_usage import team_of
from service.api.v1 import schemas
from service.callers import caller
from service.house import HouseOf
from service.query import refuse_unknown
from service.replies import Json

router = APIRouter(prefix="/v1/usage", tags=["usage"], dependencies=[Depends(refuse_unknown)])


@router.get("", summary="What a team uses, and may", responses={200: {"model": schemas.Usage}})
def usage(
    request: Request,
    house: HouseOf,
    team: Annotated[str | None, Query(description="Another one than the caller's: for admins.", max_length=128)] = None,
) -> Response:
    """Builds that run, what was read in a day, and the team's part of the mirrors that its builds hold."""
    who = caller(request)
    own = team_of(who.team, who.owner)
    if team is not None and team != own and "admin" not in who.scopes:
        raise not_found("team", repr(team))
    with house.site.work.read() as session:
        return Json(quotas.report(house.site, session, team or own))
