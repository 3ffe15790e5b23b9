"""``/v1/builds``."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Depends, Header, Query
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from blendex.builds import control, degraded, describe, findings, labels, log, submit
from blendex.builds.submission import Submission
from blendex.catalog import builds
from blendex.catalog.models import RUNNING
from blendex.errors import BlendexError, Code
from blendex.mirrors.holds import Wish
from service import linting, lookup, text
from service import problems as answers
from service.api.v1 import schemas
from service.bodies import hint, read_fields, read_submission
from service.house import House, HouseOf
from service.query import Limit, Options, Wait, prefixes, refuse_unknown, submission_options
from service.replies import Json, next_page, told, wants_text
from service.watch import MOST_STREAMS, Snapshot, read

router = APIRouter(prefix="/v1/builds", tags=["builds"], dependencies=[Depends(refuse_unknown)])

# A shell that posts wants the path, and every further try of curl --retry is a new post: the first one waits.
TEXT_WAIT = 20.0
PING_SECONDS = 15
SEND_SECONDS = 10.0
VERSION = re.compile(r"[0-9]{1,9}")
State = Literal["queued", "planning", "indexing", "packing", "publishing", "ready", "failed", "cancelled"]


def links(summary: dict[str, Any]) -> dict[str, str | None]:
    """Addresses of what belongs to a build."""
    own = f"/v1/builds/{summary['id']}"
    return {
        "self": own,
        "path": f"{own}/path",
        "events": f"{own}/events",
        "problems": f"{own}/problems",
        "findings": f"{own}/findings",
        "log": f"{own}/log",
        "blend": f"{own}/blend" if summary["state"] == "ready" else None,
        "blend_diff": f"{own}/blend.diff" if summary["state"] == "ready" else None,
        "mirror": f"/v1/mirrors/{summary['mirror']}" if summary["mirror"] else None,
    }


def _linked(summary: dict[str, Any]) -> dict[str, Any]:
    return summary | {"links": links(summary)}


def _detail(house: House, build: str) -> dict[str, Any]:
    with house.site.work.read() as session:
        row = lookup.get_build(house, session, build)
        return _linked(describe.build_detail(house.site, session, row))


def _published(house: House, build: str) -> dict[str, Any]:
    """The same by the root alone, of a build that is published."""
    return _linked(degraded.build(house.site, house.resolver.build(lookup.build_id(build))))


async def read_body(request: Request, house: House, options: Options) -> Submission:
    """The submission of a request."""
    body = await request.body()
    kind = request.headers.get("content-type", "")
    return await run_in_threadpool(read_submission, house.site, kind, body, options)


@router.post(
    "",
    summary="Post a blend",
    responses={
        200: {"model": schemas.Build, "description": "Ended (after wait=), or the preview of dry_run=1."},
        202: {"model": schemas.Build, "description": "Under way; the same blend again is the same build."},
        403: schemas.OVER,
        429: schemas.FULL,
        503: schemas.PATH_ANSWERS[503],
    },
    openapi_extra=schemas.SUBMISSION,
)
async def post(
    request: Request,
    house: HouseOf,
    options: Annotated[Options, Depends(submission_options)],
    dry_run: Annotated[bool, Query(description="Only plan: what would be read, and what is there already.")] = False,
    lint: Annotated[
        Literal["on", "off"],
        Query(description="`off`: take the blend also when something in it cannot be read by index."),
    ] = "on",
    wait: Annotated[
        float | None,
        Query(ge=0, le=60, description="Seconds to wait for its end. Text answers wait 20 s unless told."),
    ] = None,
) -> Response:
    """The body is YAML, a tar of a folder (with ``main=``), or ``{"path": …}`` inside an allowed root."""
    submission = await read_body(request, house, options)
    try:
        if dry_run:
            found = await run_in_threadpool(house.previews.run, submission, house.site)
            return Json(found.as_dict())
        if lint == "on" and submission.on_bad == "fail":
            refused = linting.refusal(await run_in_threadpool(linting.check_blend, house.site, submission))
            if refused is not None:
                return answers.reply(request, refused[0], extra={"findings": refused[1]})
        build, _ = await run_in_threadpool(submit.submit, house.site, submission, bounded=True)
    except BlendexError as error:
        raise hint(error, request, await request.body()) from None
    house.wake()
    if wants_text(request):
        found_answer = await lookup.answer(
            house, lambda: house.resolver.build(build.id), TEXT_WAIT if wait is None else wait
        )
        reply = await run_in_threadpool(text.path_reply, request, house.site, found_answer, text.Ask())
        reply.headers["Location"] = f"/v1/builds/{build.id}"
        return reply
    return await _begun(house, build.id, wait)


async def _begun(house: House, build: str, wait: float | None) -> Response:
    """A build that was asked for, once it ended or the time to wait is over."""
    if wait:
        await house.watch.until_ended(build, wait)
    detail = await run_in_threadpool(_detail, house, build)
    return Json(detail, 202 if detail["state"] in RUNNING else 200, {"Location": f"/v1/builds/{build}"})


@router.get("", summary="List builds", responses={200: {"model": schemas.Builds}})
def page(
    house: HouseOf,
    before: Annotated[str | None, Query(description="The id after which the page begins.", max_length=64)] = None,
    limit: Limit = 50,
    state: State | None = None,
    owner: Annotated[str | None, Query(description="Only theirs.", max_length=128)] = None,
    name: Annotated[str | None, Query(description="Only those that this name points or pointed at.")] = None,
    text: Annotated[
        str | None,
        Query(description="The beginning of an id, or a part of a file, a dataset or an error.", max_length=200),
    ] = None,
    label: Annotated[list[str], Query(description="`KEY=VALUE`: only those that have all of these. Repeatable.")] = [],  # noqa: B006
) -> Response:
    """Newest first."""
    wanted = {"state": state, "owner": owner, "name": name, "text": text, "label": label}
    asked = labels.parse(label)
    with house.site.work.read() as session:
        after = lookup.build_id(before) if before is not None else None
        rows = builds.page(
            session, team=house.site.who.only, state=state, owner=owner, name=name, text=text, labels=asked,
            before=after, limit=limit,
        )  # fmt: skip
        found = [_linked(describe.build_summary(house.site, session, row)) for row in rows]
    following = next_page("/v1/builds", limit, before=found[-1]["id"], **wanted) if len(found) == limit else None
    return Json({"builds": found, "next": following})


@router.get(
    "/{build}",
    summary="Look at a build",
    responses=schemas.PATH_ANSWERS | {200: {"model": schemas.Build, "content": schemas.TEXT}},
)
def show(
    request: Request, house: HouseOf, build: str, hold: Annotated[Wish | None, Depends(text.hold)] = None
) -> Response:
    """JSON; with ``Accept: text/plain`` the answer of its ``/path``, and then it may take a hold."""
    if wants_text(request):
        answer = house.resolver.build(lookup.build_id(build))
        return text.path_reply(request, house.site, answer, text.Ask(hold=hold))
    text.refuse_hold(hold)
    return told(degraded.either(house.site, lambda: _detail(house, build), lambda: _published(house, build)))


@router.get("/{build}/path", summary="The path of its mirror", responses=schemas.PATH_ANSWERS)
async def path(
    request: Request, house: HouseOf, build: str, ask: Annotated[text.Ask, Depends(text.ask)], wait: Wait = 0
) -> Response:
    """One line of text for shells."""
    known = lookup.build_id(build)
    answer = await lookup.answer(house, lambda: house.resolver.build(known), wait)
    return await run_in_threadpool(text.path_reply, request, house.site, answer, ask)


@router.get("/{build}/problems", summary="All its problems")
def problems(house: HouseOf, build: str) -> Response:
    """Every problem that was found, not only the first ones."""
    with house.site.work.read() as session:
        found = describe.all_problems(session, lookup.get_build(house, session, build))
    return Json({"id": build, "count": len(found), "problems": found})


@router.get("/{build}/findings", summary="What was found in its sources")
def findings_of(
    house: HouseOf,
    build: str,
    limit: Annotated[int, Query(ge=0, le=10_000, description="Sources told one by one; all are counted.")] = 100,
) -> Response:
    """Per class: how often, where first, what it does to training, what mends it; per source: what was found in it."""
    with house.site.work.read() as session:
        found = findings.report(house.site, session, lookup.get_build(house, session, build), limit)
    return Json(found)


@router.get("/{build}/log", summary="What happened to it", responses={200: {"model": schemas.Log}})
def log_of(
    house: HouseOf,
    build: str,
    limit: Annotated[int, Query(ge=1, le=log.MOST, description="Most lines.")] = log.MOST,
) -> Response:
    """The last lines of its log, the newest first; while it runs, with the units that ended last."""
    with house.site.work.read() as session:
        lines = log.tail(session, lookup.get_build(house, session, build), limit)
    return Json({"id": build, "log": lines})


@router.get(
    "/{build}/blend",
    summary="Its ready blend",
    responses=schemas.content("application/yaml", "The blend to train."),
)
def blend(house: HouseOf, build: str) -> Response:
    """The posted YAML, pointing at the mirror."""
    _must_be_ready(house, build, used=True)
    headers = {"Cache-Control": "private, no-cache"}
    return FileResponse(text.ready_blend(house.site, build), headers=headers, media_type="application/yaml")


def _must_be_ready(house: House, build: str, *, used: bool = False) -> None:
    answer = house.resolver.build(lookup.build_id(build))
    if used:
        answer = house.uses.keep(answer)
    if answer.state == "collected":
        raise BlendexError(Code.WRONG_STATE, "its mirror was collected.", next_step="Post the blend again.")
    if answer.state != "ready":
        raise BlendexError(
            Code.WRONG_STATE,
            f"build {build} is {answer.stage or answer.state}; it has no ready blend.",
            next_step=f"See /v1/builds/{build}.",
        )


@router.get(
    "/{build}/blend.diff",
    summary="What its ready blend changed",
    responses=schemas.content("text/x-diff", "A unified diff of the posted blend and the ready one."),
)
def blend_diff(house: HouseOf, build: str) -> Response:
    """A unified diff; empty when nothing differs."""
    _must_be_ready(house, build)
    path = os.path.join(house.site.root.build(build), "blend.diff")
    if not os.path.exists(path):
        raise BlendexError(Code.NOT_FOUND, f"build {build} kept no difference.", next_step="Post the blend again.")
    return FileResponse(path, headers={"Cache-Control": "private, no-cache"}, media_type="text/x-diff")


def _now(house: House, build: str) -> Snapshot:
    with house.site.work.read() as session:
        lookup.get_build(house, session, build)
        snapshot = read(house.site, house.looks, session, build)
    assert snapshot is not None
    return snapshot


@router.get(
    "/{build}/events",
    summary="Follow a build",
    responses=schemas.content("text/event-stream", "Its state whenever it changed, until it ended.")
    | {204: {"description": "It ended, and the caller has seen how."}},
)
async def events(
    house: HouseOf,
    build: str,
    last_event_id: Annotated[
        str | None, Header(description="The version seen last: only what is newer is sent.")
    ] = None,
) -> Response:
    """Server-sent events: the state of now with its version as id, never a history."""
    now = await run_in_threadpool(_now, house, build)
    seen = int(last_event_id) if last_event_id is not None and VERSION.fullmatch(last_event_id) else None
    if now.ended and seen == now.version:
        return Response(status_code=204)  # tells an EventSource to stop coming back
    if house.watch.streams >= MOST_STREAMS:
        raise BlendexError(Code.BUSY, "too many streams are open.", next_step="Ask for the build every few seconds.")

    async def stream() -> AsyncIterator[ServerSentEvent]:
        house.watch.streams += 1
        try:
            async with aclosing(house.watch.follow(build, seen)) as states:
                async for state in states:
                    data = orjson.dumps(_linked(state.summary)).decode()
                    yield ServerSentEvent(data, event="build", id=str(state.version), retry=2000)
        finally:
            house.watch.streams -= 1

    return EventSourceResponse(stream(), ping=PING_SECONDS, send_timeout=SEND_SECONDS)


def _after(house: House, build: str) -> Response:
    house.wake()
    return Json(_detail(house, build))


@router.post("/{build}/cancel", summary="Cancel a build", responses={200: {"model": schemas.Build}})
def cancel(house: HouseOf, build: str) -> Response:
    """Withdraw it; what others wait for goes on."""
    control.cancel(house.site, lookup.build_id(build))
    return _after(house, build)


@router.post(
    "/{build}/retry",
    summary="Retry a failed or cancelled build",
    responses={200: {"model": schemas.Build}},
    openapi_extra=schemas.json_body((), ("source",), {"source": "/data/shards/audio_17.tar"}),
)
async def retry(request: Request, house: HouseOf, build: str) -> Response:
    """What was done is found, not done twice. With ``source`` only that one is read again of those that failed."""
    fields = await read_fields(request, ("source",))
    await run_in_threadpool(control.retry, house.site, lookup.build_id(build), fields.get("source"))
    return await run_in_threadpool(_after, house, build)


@router.post(
    "/{build}/accept",
    summary="Publish without the bad entries",
    responses={200: {"model": schemas.Build}},
    openapi_extra=schemas.json_body((), ("why", "who"), {"why": "shard 17 is lost", "who": "ada"}),
)
async def accept(
    request: Request,
    house: HouseOf,
    build: str,
    why: Annotated[str | None, Query(max_length=4000)] = None,
    who: Annotated[str | None, Query(max_length=4000)] = None,
) -> Response:
    """Leave the entries with problems out; the receipt keeps reason and person: whoever asks, or as the body says."""
    fields = await read_fields(request, ("why", "who"))
    if (why is not None and "why" in fields) or (who is not None and "who" in fields):
        raise BlendexError(Code.BAD_REQUEST, "body and query say the same twice.", next_step="Say it once.")
    reason = fields.get("why", why or "")
    caller = house.site.who
    # Who has said who they are is named so: the receipt keeps it.
    person = caller.owner if caller.team else fields.get("who", who or "") or caller.owner
    await run_in_threadpool(control.accept, house.site, lookup.build_id(build), who=person, why=reason)
    return await run_in_threadpool(_after, house, build)


@router.post(
    "/{build}/rebind",
    summary="Follow paths that moved",
    responses={
        200: {"model": schemas.Build, "description": "Ended (after wait=)."},
        202: {"model": schemas.Build, "description": "Under way, as a build of its own."},
    },
)
async def rebind(
    request: Request,
    house: HouseOf,
    build: str,
    map: Annotated[  # noqa: A002 -- read in its order from the query itself
        list[str], Query(description="`OLD=NEW`: a prefix of paths as it was, and as it is. Repeatable.")
    ] = [],  # noqa: B006
    wait: Annotated[float | None, Query(ge=0, le=60, description="Seconds to wait for its end.")] = None,
) -> Response:
    """A build of its own: the same blend with moved paths, proven against the mirror that the old build has."""
    made = await run_in_threadpool(
        lambda: control.rebind(house.site, lookup.build_id(build), prefixes(request, ("map",)))
    )
    house.wake()
    return await _begun(house, made, wait)


@router.post(
    "/{build}/packs",
    summary="Pack what a build has",
    responses={
        200: {"model": schemas.Build, "description": "Ended (after wait=)."},
        202: {"model": schemas.Build, "description": "Under way, as a build of its own."},
    },
)
async def pack(
    house: HouseOf,
    build: str,
    packs: Annotated[
        str, Query(description="`all`, `auto`, `none`, or names of datasets with commas between.")
    ] = "all",
    sidecars: Annotated[
        Literal["unpacked", "all"], Query(description="`all`: loose sidecars of packed datasets as well.")
    ] = "unpacked",
    tars: Annotated[
        Literal["offsets", "paths"],
        Query(description="`paths`: tars in AIStore are packed unread; training needs `USE_AIS_GET_BATCH=true`."),
    ] = "offsets",
    wait: Annotated[float | None, Query(ge=0, le=60, description="Seconds to wait for its end.")] = None,
) -> Response:
    """A build of its own: the same blend with other packs. The build that is asked stays as it is."""
    made = await run_in_threadpool(
        lambda: control.pack(house.site, lookup.build_id(build), packs=packs, sidecars=sidecars, tars=tars)
    )
    house.wake()
    return await _begun(house, made, wait)
