"""The list of builds, and the form that starts one."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import urlencode

import orjson
from fastapi import APIRouter, Depends, Query
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from blendex.builds import describe, labels
from blendex.catalog import builds, states
from blendex.catalog.models import RUNNING
from service import lookup
from service.dashboard.forms import Form, ask, packed, read_form, refused
from service.dashboard.live import Part, stream
from service.dashboard.pages import PageRoute, clock, page, render, see
from service.house import House, HouseOf
from service.query import refuse_unknown

router = APIRouter(route_class=PageRoute, include_in_schema=False, dependencies=[Depends(refuse_unknown)])

PAGE = 50
MOST_RUNNING = 100
GROUPS: dict[str, tuple[str, ...]] = {
    "": (),
    "running": ("planning", "indexing", "packing", "publishing"),
    "waiting": ("queued",),
    "ready": ("ready",),
    "failed": ("failed",),
    "cancelled": ("cancelled",),
}
Text = Annotated[str, Query(max_length=200)]


class Filter:
    """What of the builds is shown, as it stands in the address."""

    def __init__(
        self, state: Text = "", name: Text = "", owner: Text = "", text: Text = "", label: Text = "", before: Text = ""
    ) -> None:
        self.state = state if state in GROUPS else ""
        self.name, self.owner, self.text, self.before = name.strip(), owner.strip(), text.strip(), before
        self.label = " ".join(label.split())
        self.labels = labels.parse(self.label.split())

    def query(self, **changed: str) -> str:
        """The query of an address, with some things changed; empty ones are left out."""
        names = ("state", "name", "owner", "text", "label")
        values = {name: getattr(self, name) for name in names} | changed
        told = urlencode({key: value for key, value in values.items() if value})
        return f"?{told}" if told else ""

    @property
    def plain(self) -> bool:
        """Whether everything is shown, from the newest on."""
        return not (self.state or self.before or self.narrowed)

    @property
    def narrowed(self) -> bool:
        """Whether something is asked for besides the state."""
        return bool(self.name or self.owner or self.text or self.labels)


def _row(house: House, session: Any, build: Any) -> dict[str, Any]:
    return describe.build_summary(house.site, session, build) | {"label": build.file.rpartition("/")[2] or build.file}


def _read(house: House, wish: Filter) -> tuple[dict[str, Any], float]:
    """What the list shows: builds that run apart, when nothing is filtered."""
    before = lookup.build_id(wish.before) if wish.before else None
    with house.site.work.read() as session:
        team = house.site.who.only
        census = builds.census(session, team)
        wanted = GROUPS[wish.state] or (states.ENDED if wish.plain or wish.before else ())
        if wish.narrowed:
            wanted = GROUPS[wish.state]
        found = builds.page(
            session, team=team, states=wanted, name=wish.name or None, owner=wish.owner or None, text=wish.text or None,
            labels=wish.labels, before=before, limit=PAGE + 1,
        )  # fmt: skip
        running = builds.page(session, team=team, states=RUNNING, limit=MOST_RUNNING) if wish.plain else []
        rows = [_row(house, session, build) for build in found[:PAGE]]
        values = {
            "running": [_row(house, session, build) for build in running],
            "rows": rows,
            "next": wish.query(before=rows[-1]["id"]) if len(found) > PAGE else None,
            "counts": {name: sum(census.get(state, 0) for state in GROUPS[name] or census) for name in GROUPS},
            "wish": wish,
        }
        return values, states.now(session)


@router.get("/builds")
def listed(request: Request, house: HouseOf, wish: Annotated[Filter, Depends()]) -> Response:
    """Builds: what runs, then what ended, newest first."""
    values, now = _read(house, wish)
    with house.site.work.read() as session:
        owners = builds.owners(session, team=house.site.who.only)
    return page(request, "builds.html", now, owners=owners, **values)


@router.get("/builds/live")
async def live(request: Request, house: HouseOf, wish: Annotated[Filter, Depends()]) -> Response:
    """The table of the same list, whenever something in it changed."""

    def make() -> Part:
        values, now = _read(house, wish)
        return render("_builds.html", now, **values), ()

    return stream(request, house, "builds", f"builds{wish.query(before=wish.before)}", make)


@router.get("/builds/new")
def new(request: Request, house: HouseOf) -> Response:
    """The form that starts a build."""
    return _form(request, house, Form(), None, [])


def _form(
    request: Request, house: House, form: Form, error: Any, findings: list[dict[str, Any]], status: int = 200
) -> Response:
    return page(
        request, "new.html", clock(house), status, form=form, error=error, findings=findings, roots=house.site.roots
    )


@router.post("/builds/new")
async def start(request: Request, house: HouseOf) -> Response:
    """Post what was filled in; on to the build, or back to the form with what was refused."""
    form = await read_form(request)
    query = [(name, form.get(name)) for name in ("base", "name", "packs", "on_bad", "lint") if form.get(name)]
    query += [(name, line) for name in ("var", "env", "view", "allow") for line in form.lines(name)]
    query += [("label", item) for item in form.get("labels").split()]
    files = form.files.get("files", [])
    text = form.fields.get("text", "")
    if form.get("path") and not text.strip() and not files:
        content, kind = orjson.dumps({"path": form.get("path")}), "application/json"
    elif len(files) > 1:
        content, kind = packed(files), "application/x-tar"
        query.append(("main", form.get("main") or files[0][0]))
    else:
        content, kind = (files[0][1] if files and not text.strip() else text.encode()), "application/yaml"
    answer = await ask(request, "/v1/builds", query=query, content=content, kind=kind)
    if answer.status >= 400:
        told = answer.value
        return await run_in_threadpool(
            _form, request, house, form, refused(told), told.get("findings", []), answer.status
        )
    return see(f"/builds/{answer.value['id']}")
