"""``/v1/sources``."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from blendex.builds import history
from blendex.builds.naming import not_found
from blendex.builds.usage import usage
from blendex.builds.visibility import reader
from blendex.catalog import sources
from service.api.v1 import schemas
from service.house import HouseOf
from service.query import refuse_unknown
from service.replies import Json

router = APIRouter(prefix="/v1/sources", tags=["sources"], dependencies=[Depends(refuse_unknown)])

# A path is known under each kind and recipe that it was read as.
RECIPES = 20


@router.get("", summary="What is known of a source", responses={200: {"model": schemas.Sources}})
def look(
    house: HouseOf,
    path: Annotated[str, Query(min_length=1, max_length=4096, description="As blends name it, or its address.")],
) -> Response:
    """Each content it is known to have had, with the mirrors that hold it; and the builds that name it."""
    may = reader(house.site)
    with house.site.work.read() as session:
        seen = [
            item
            for item in sources.look(session, path, limit=RECIPES)
            if path in (item.address, item.path) and may(item.address)
        ]
        used = usage(session, path, house.site.who.only)
        if not seen and not used.uses:
            raise not_found("source", path[:200])
        found = [history.about(house.site, session, item, used, path) for item in seen]
    return Json({"path": path, "sources": found, "uses": used.uses, "builds": used.builds, "whole": used.whole})
