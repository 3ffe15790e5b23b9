"""``/v1/lint``."""

from __future__ import annotations

from base64 import b64decode
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from blendex.blend.world import World
from service import linting
from service.api.v1 import schemas
from service.house import HouseOf
from service.query import Options, refuse_unknown, submission_world
from service.replies import Json

router = APIRouter(prefix="/v1/lint", tags=["lint"], dependencies=[Depends(refuse_unknown)])


@router.post("", summary="Lint a training config", responses=schemas.LINTED, openapi_extra=schemas.LINT)
async def post(
    request: Request,
    house: HouseOf,
    world: Annotated[World, Depends(submission_world)],
    main: Annotated[str | None, Query(description="In a tar: the config, by its path in the tar.")] = None,
    upstream: Annotated[
        Literal["main", "2.0.0a7"], Query(description="The version of upstream to hold it against.")
    ] = "main",
    output: Annotated[
        Literal["json", "sarif", "zip"],
        Query(description="`zip`: report, patched files, checklist, and the command that builds the indexes."),
    ] = "json",
) -> Response:
    """The body is multipart (`config`, `blend` for each nested one, `launcher`, `facts`, `baseline`), or as for builds.

    The status is 200 whatever is found: `ready` says whether something blocks a launch.
    """
    body = await request.body()
    options = Options(world, main, (), "", "fail", None, "auto", "unpacked")
    kind = request.headers.get("content-type", "")
    asked = await run_in_threadpool(linting.read_asked, house.site, kind, body, options)
    found = await run_in_threadpool(house.lints.run, asked, upstream, output, house.site)
    if output == "zip":
        headers = {"Content-Disposition": 'attachment; filename="migration.zip"'}
        return Response(b64decode(found), media_type="application/zip", headers=headers)
    if output == "sarif":
        return Json(found, headers={"Content-Type": "application/sarif+json"})
    return Json(found)
