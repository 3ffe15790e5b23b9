"""``/v1/tokens``, ``/v1/teams``, ``/v1/audit``: for whoever runs the service."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import orjson
from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from blendex.builds import teams, tokens
from blendex.catalog import audit
from blendex.catalog import teams as team_rows
from blendex.catalog import tokens as token_rows
from blendex.errors import BlendexError, Code
from service.api.v1 import schemas
from service.house import HouseOf
from service.query import Limit, refuse_unknown
from service.replies import Json, next_page

router = APIRouter(prefix="/v1", tags=["accounts"], dependencies=[Depends(refuse_unknown)])

Before = Annotated[int | None, Query(ge=1, le=2**62, description="The id after which the page begins.")]


class NewToken(BaseModel):
    """A token that is wanted."""

    model_config = ConfigDict(extra="forbid", strict=True)

    owner: str = Field(max_length=128, examples=["ada"])
    team: str = Field(max_length=64, examples=["speech"])
    scope: str = Field(max_length=16, examples=["build"])
    days: int = Field(ge=1, le=tokens.LONGEST_DAYS, examples=[90])
    label: str = Field("", max_length=tokens.LONGEST_LABEL, examples=["nightly launcher"])


class TeamRules(BaseModel):
    """What a team may read."""

    model_config = ConfigDict(extra="forbid")

    roots: list[str] = Field(default_factory=list, max_length=1_000, examples=[["/data/speech"]])
    stores: dict[str, list[str]] = Field(default_factory=dict, max_length=1_000, examples=[{"lab": ["speech-*"]}])
    views: list[tuple[str, str]] = Field(default_factory=list, max_length=1_000, examples=[[["/data", "/lustre/data"]]])


def _body(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema()
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


Model = TypeVar("Model", bound=BaseModel)


async def _read(request: Request, model: type[Model]) -> Model:
    try:
        return model.model_validate(orjson.loads(await request.body()))
    except orjson.JSONDecodeError as error:
        raise BlendexError(Code.BAD_REQUEST, "the body is not JSON.", next_step="Send an object.") from error
    except ValidationError as error:
        # Never the input itself: it may be anything.
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"]))[:200]
        raise BlendexError(
            Code.BAD_REQUEST, f"the body is wrong at {where or 'its top'}: {first['msg']}.", next_step="See /docs."
        ) from None


@router.get("/tokens", summary="List tokens", responses={200: {"model": schemas.Tokens}})
def page(house: HouseOf, before: Before = None, limit: Limit = 50) -> Response:
    """Newest first, without what lets anybody in."""
    with house.site.work.read() as session:
        found = [tokens.summary(row) for row in token_rows.page(session, before=before, limit=limit)]
    following = next_page("/v1/tokens", limit, before=found[-1]["id"]) if len(found) == limit else None
    return Json({"tokens": found, "next": following})


@router.post(
    "/tokens",
    status_code=201,
    summary="Make a token",
    responses={201: {"model": schemas.MadeToken}},
    openapi_extra=_body(NewToken),
)
async def create(request: Request, house: HouseOf) -> Response:
    """The answer holds the token, this once."""
    wish = await _read(request, NewToken)
    secret, row = await run_in_threadpool(
        lambda: tokens.issue(
            house.site, owner=wish.owner, team=wish.team, scope=wish.scope, days=wish.days, label=wish.label
        )
    )
    return Json(tokens.summary(row) | {"token": secret}, 201)


@router.delete("/tokens/{token}", summary="Revoke a token", responses={200: {"model": schemas.TokenOf}})
def revoke(house: HouseOf, token: int) -> Response:
    """It is worth nothing within seconds, and so are the sessions that were opened with it."""
    if not 0 < token < 2**62:
        raise BlendexError(Code.NOT_FOUND, f"there is no token {token}.", next_step="See /v1/tokens.")
    return Json(tokens.summary(tokens.revoke(house.site, token)))


@router.get("/teams", summary="List teams", responses={200: {"model": schemas.Teams}})
def list_teams(house: HouseOf) -> Response:
    """All of them, with what they may read."""
    with house.site.work.read() as session:
        return Json({"teams": [teams.summary(row) for row in team_rows.page(session)]})


@router.put(
    "/teams/{team}",
    summary="Say what a team may read",
    responses={200: {"model": schemas.TeamOf}},
    openapi_extra=_body(TeamRules),
)
async def put_team(request: Request, house: HouseOf, team: str) -> Response:
    """Instead of what it might before; what is left out it may not. Never more than the service itself may."""
    wish = await _read(request, TeamRules)
    row = await run_in_threadpool(
        lambda: teams.set_team(house.site, team, roots=wish.roots, stores=wish.stores, views=wish.views)
    )
    return Json(teams.summary(row))


@router.get("/audit", summary="Who changed what", responses={200: {"model": schemas.Deeds}})
def record(
    house: HouseOf,
    before: Before = None,
    limit: Limit = 50,
    owner: Annotated[str | None, Query(max_length=128, pattern="^[ -~]*$", description="Only theirs.")] = None,
    object: Annotated[  # noqa: A002 -- its name in the URL
        str | None, Query(max_length=128, pattern="^[ -~]*$", description="Only what was done to it.")
    ] = None,
) -> Response:
    """Newest first."""
    with house.site.work.read() as session:
        rows = audit.page(session, before=before, limit=limit, owner=owner, thing=object)
        return Json({"audit": [teams.deed(row) for row in rows], "next": rows[-1].id if len(rows) == limit else None})
