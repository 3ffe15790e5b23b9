"""Sources: what is known of any path."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from blendex.builds import history
from blendex.builds.usage import usage
from blendex.catalog import sources, states
from blendex.formats.crosscheck import CROSS_FINDINGS
from blendex.formats.findings import FINDINGS
from service.dashboard.pages import PageRoute, page
from service.house import HouseOf
from service.query import refuse_unknown

router = APIRouter(route_class=PageRoute, include_in_schema=False, dependencies=[Depends(refuse_unknown)])

PAGE = 50
MOST_USES = 100
Text = Annotated[str, Query(max_length=4096)]


@router.get("/sources")
def listed(request: Request, house: HouseOf, path: Text = "", after: Text = "", recipe: Text = "") -> Response:
    """Sources whose path begins as given; of one that is given whole, who uses it."""
    text = path.strip()
    with house.site.work.read() as session:
        place = (after, recipe) if after else None
        found = sources.look(session, text, after=place, limit=PAGE + 1)
        exact = [item for item in found if text in (item.address, item.path)] if text else []
        used = usage(session, text) if text and (exact or not found) else None
        contents = [history.contents(house.site, session, item, used, text) for item in exact] if used else []
        now = states.now(session)
    rows = found[:PAGE]
    following = None
    if len(found) > PAGE:
        following = urlencode({"path": text, "after": rows[-1].address, "recipe": rows[-1].recipe})
    return page(
        request, "sources.html", now,
        text=text, rows=[] if exact and len(exact) == len(found) else rows, used=used, next=following,
        exact=list(zip(exact, contents, strict=True)),
        most=MOST_USES, classes={**FINDINGS, **CROSS_FINDINGS},
    )  # fmt: skip
