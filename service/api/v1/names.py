"""``/v1/names``."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from blendex.builds import degraded, describe, naming
from blendex.catalog import mirrors
from blendex.errors import BlendexError, Code
from blendex.mirrors.holds import Wish
from blendex.mirrors.names import check_name
from service import lookup, text
from service.api.v1 import schemas
from service.bodies import read_fields
from service.house import House, HouseOf
from service.query import Limit, Wait, refuse_unknown
from service.replies import Json, next_page, told, wants_text

router = APIRouter(prefix="/v1/names", tags=["names"], dependencies=[Depends(refuse_unknown)])


def _linked(summary: dict[str, Any]) -> dict[str, Any]:
    own = f"/v1/names/{summary['name']}"
    return summary | {"links": {"self": own, "path": f"{own}/path", "build": f"/v1/builds/{summary['build']}"}}


def _shown(house: House, name: str) -> dict[str, Any]:
    with house.site.work.read() as session:
        return _linked(describe.name_summary(house.site, session, lookup.get_name(house, session, name)))


def _published(house: House, name: str) -> dict[str, Any]:
    """The same by the root alone."""
    return _linked(degraded.name(house.site, name, house.resolver.name(lookup.name_of(name))))


@router.get("", summary="List names", responses={200: {"model": schemas.Names}})
def page(
    house: HouseOf,
    after: Annotated[str, Query(description="The name after which the page begins.", max_length=128)] = "",
    limit: Limit = 50,
) -> Response:
    """In order."""
    start = lookup.name_of(after) if after else ""
    with house.site.work.read() as session:
        rows = mirrors.names(session, after=start, limit=limit, team=house.site.who.only)
        found = [_linked(describe.name_summary(house.site, session, row)) for row in rows]
    following = next_page("/v1/names", limit, after=found[-1]["name"]) if len(found) == limit else None
    return Json({"names": found, "next": following})


@router.get(
    "/{name}",
    summary="Look at a name",
    responses=schemas.PATH_ANSWERS | {200: {"model": schemas.Name, "content": schemas.TEXT}},
)
def show(
    request: Request, house: HouseOf, name: str, hold: Annotated[Wish | None, Depends(text.hold)] = None
) -> Response:
    """Where it points now, and where it pointed; with ``Accept: text/plain`` the answer of its ``/path``."""
    if wants_text(request):
        answer = house.resolver.name(lookup.name_of(name))
        return text.path_reply(request, house.site, answer, text.Ask(hold=hold))
    text.refuse_hold(hold)
    return told(degraded.either(house.site, lambda: _shown(house, name), lambda: _published(house, name)))


@router.get("/{name}/path", summary="The path of the mirror it points at", responses=schemas.PATH_ANSWERS)
async def path(
    request: Request, house: HouseOf, name: str, ask: Annotated[text.Ask, Depends(text.ask)], wait: Wait = 0
) -> Response:
    """One line of text for shells."""
    known = lookup.name_of(name)
    answer = await lookup.answer(house, lambda: house.resolver.name(known), wait)
    return await run_in_threadpool(text.path_reply, request, house.site, answer, ask)


@router.put(
    "/{name}",
    summary="Point a name at a build",
    responses={200: {"model": schemas.Name}},
    openapi_extra=schemas.json_body(("build",), (), {"build": schemas.ID}),
)
async def put(request: Request, house: HouseOf, name: str) -> Response:
    """The build must be ready; where the name pointed stays in its history. A name is of the team that made it."""
    check_name(name)
    fields = await read_fields(request, ("build",))
    if "build" not in fields:
        raise BlendexError(Code.BAD_REQUEST, "the body names no build.", next_step='Send {"build": "<id>"}.')
    return await run_in_threadpool(_point, house, name, fields["build"])


def _point(house: House, name: str, build: str) -> Response:
    answer = house.resolver.build(lookup.build_id(build))
    if answer.state != "ready":
        raise BlendexError(
            Code.WRONG_STATE,
            f"build {build} is {answer.stage or answer.state}; a name points at what is ready.",
            next_step="Wait for it, or post with name=: then it is pointed at when it is ready.",
        )
    naming.point(house.site, name, build)
    return Json(_shown(house, name))
