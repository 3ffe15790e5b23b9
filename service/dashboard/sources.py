"""Sources: what is known of any path."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query
from sqlalchemy.orm import Session
from starlette.requests import Request
from starlette.responses import Response

from blendex.builds import history
from blendex.builds.usage import usage
from blendex.builds.visibility import DERIVED, reader, visible
from blendex.catalog import sources, states
from blendex.formats.crosscheck import CROSS_FINDINGS
from blendex.formats.findings import FINDINGS
from service.dashboard.pages import PageRoute, page
from service.house import House, HouseOf
from service.query import refuse_unknown

router = APIRouter(route_class=PageRoute, include_in_schema=False, dependencies=[Depends(refuse_unknown)])

PAGE = 50
MOST_USES = 100
# Sources that are looked through at a time for a page of those that a team may read.
BATCH = 1_000
Text = Annotated[str, Query(max_length=4096)]


def _seen(
    house: House, session: Session, text: str, start: tuple[str, str] | None
) -> tuple[list[sources.Seen], sources.Seen | None]:
    """A page of sources that whoever asks may read, and the one after which the next begins."""

    def fetch(after: sources.Seen | None, most: int) -> list[sources.Seen]:
        place = start if after is None else (after.address, after.recipe)
        return sources.look(session, text, after=place, limit=most)

    if house.site.who.everything:
        return visible(fetch, lambda _: True, PAGE)
    may = reader(house.site)
    return visible(fetch, lambda row: may(row.address) and not row.address.startswith(DERIVED), PAGE, BATCH)


@router.get("/sources")
def listed(request: Request, house: HouseOf, path: Text = "", after: Text = "", recipe: Text = "") -> Response:
    """Sources whose path begins as given; of one that is given whole, who uses it."""
    text = path.strip()
    with house.site.work.read() as session:
        place = (after, recipe) if after else None
        found, last = _seen(house, session, text, place)
        exact = [item for item in found if text in (item.address, item.path)] if text else []
        used = usage(session, text, house.site.who.only) if text and (exact or not found) else None
        contents = [history.contents(house.site, session, item, used, text) for item in exact] if used else []
        now = states.now(session)
    following = None
    if last is not None:
        following = urlencode({"path": text, "after": last.address, "recipe": last.recipe})
    return page(
        request, "sources.html", now,
        text=text, rows=[] if exact and len(exact) == len(found) else found, used=used, next=following,
        exact=list(zip(exact, contents, strict=True)),
        most=MOST_USES, classes={**FINDINGS, **CROSS_FINDINGS},
    )  # fmt: skip
