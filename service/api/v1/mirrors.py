"""``/v1/mirrors``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Query
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse

from blendex.builds import access, degraded, describe, keeping, verifying
from blendex.builds.answers import Answer
from blendex.catalog import mirrors, verifications
from blendex.errors import BlendexError, Code
from blendex.mirrors import holds
from blendex.mirrors.holds import Wish
from blendex.units.receipt import ARCHIVE_PIECE, open_archive
from service import lookup, text
from service.api.v1 import schemas
from service.api.v1.builds import read_body
from service.bodies import hint, read_fields
from service.house import House, HouseOf
from service.problems import reply
from service.query import Limit, Options, Wait, refuse_unknown, submission_options
from service.replies import Json, next_page, told

router = APIRouter(prefix="/v1/mirrors", tags=["mirrors"], dependencies=[Depends(refuse_unknown)])

NAMED_MISSING = 10


def _linked(summary: dict[str, Any]) -> dict[str, Any]:
    own = f"/v1/mirrors/{summary['key']}"
    return summary | {"links": {"self": own, "path": f"{own}/path", "receipt": f"{own}/receipt"}}


@router.get("", summary="List mirrors", responses={200: {"model": schemas.Mirrors}})
def page(
    house: HouseOf,
    before: Annotated[str | None, Query(description="The key after which the page begins.")] = None,
    limit: Limit = 50,
) -> Response:
    """Newest first."""
    with house.site.work.read() as session:
        start = None if before is None else lookup.mirror_after(house, session, before)
        rows, last = house.resolver.verdicts.page(
            house.site, lambda after, most: mirrors.page(session, before=after, limit=most), start, limit
        )
        verified = verifications.of(session, [row.key for row in rows])
        found = [
            _linked(describe.mirror_summary(house.site, row, verifying.summary(verified.get(row.key)))) for row in rows
        ]
    following = next_page("/v1/mirrors", limit, before=last) if last is not None else None
    return Json({"mirrors": found, "next": following})


@router.post(
    "/resolve",
    summary="Is the mirror of this blend there?",
    responses={200: {"content": schemas.TEXT | {"application/json": {"schema": {"type": "object"}}}}},
    openapi_extra=schemas.SUBMISSION,
)
async def resolve(
    request: Request,
    house: HouseOf,
    options: Annotated[Options, Depends(submission_options)],
    dry_run: Annotated[bool, Query(description="Taken so that one query serves both: nothing is built here.")] = True,
    wait: Annotated[float, Query(ge=0, le=60, description="Taken so that one query serves both.")] = 0,
) -> Response:
    """Body and query of ``POST /v1/builds``: 200 when nothing changed and the mirror is there, else 404."""
    del dry_run, wait
    submission = await read_body(request, house, options)
    try:
        found = await run_in_threadpool(house.previews.run, submission, house.site)
    except BlendexError as failure:
        raise hint(failure, request, await request.body()) from None
    if found.mirror is not None:
        answer = Answer("ready", key=found.mirror, path=found.path)
        return await run_in_threadpool(text.path_reply, request, house.site, answer, text.Ask())
    missing = found.sources - found.reused
    if found.problems:
        reason = f"the blend has {len(found.problems)} problems"
        step = "POST /v1/builds with dry_run=1 lists them."
    elif missing:
        named = ", ".join(found.missing[:3])
        reason = f"{missing} of {found.sources} sources are not indexed as they are now: {named}"
        step = "Post it to /v1/builds: only these are read."
    else:
        reason = "every source is known, but no mirror of them is there, or a finding is not allowed"
        step = "Post it to /v1/builds: nothing is read."
    error = BlendexError(Code.NOT_FOUND, f"no mirror: {reason}.", next_step=step)
    extra = {"sources": found.sources, "missing_count": missing, "missing": found.missing[:NAMED_MISSING]}
    return reply(request, error, extra=extra | {"problem_count": len(found.problems)})


@router.get("/{key}", summary="Look at a mirror", responses={200: {"model": schemas.Mirror}})
def show(house: HouseOf, key: str) -> Response:
    """Its counts and where it is."""
    answer = house.resolver.mirror(key)

    def catalog() -> dict[str, Any]:
        with house.site.work.read() as session:
            row = mirrors.get(session, key)
            verified = verifying.summary(verifications.of(session, [key]).get(key))
            found = describe.mirror_summary(house.site, row, verified) if row is not None else {}
        # Whichever build asked: what it tried may be another team's.
        tried = access.of_mirror(house.site, key) if house.site.who.everything else None
        return found | {"access": tried} if found else {}

    summary = degraded.either(house.site, catalog, lambda: {"degraded": degraded.CATALOG})
    if answer.state == "collected":
        summary = {"key": key} | summary | {"state": "collected", "path": None}
    elif "key" not in summary:
        summary = degraded.mirror(house.site, key) | summary
    return told(_linked(summary))


@router.get("/{key}/path", summary="Its path, while it is there", responses=schemas.PATH_ANSWERS)
def path(
    request: Request, house: HouseOf, key: str, ask: Annotated[text.Ask, Depends(text.ask)], wait: Wait = 0
) -> Response:
    """One line of text for shells. A mirror is there or not: ``wait`` is taken and never needed."""
    del wait
    return text.path_reply(request, house.site, house.resolver.mirror(lookup.mirror_key(key)), ask)


@router.get("/{key}/holds", summary="Who holds it", responses={200: {"model": schemas.Holds}})
def holds_of(house: HouseOf, key: str) -> Response:
    """Names, pins, jobs, chains, and builds that are just publishing it. What nobody holds is collected in the end."""
    return Json(keeping.show(house.site, _seen(house, key)))


def _seen(house: House, key: str) -> str:
    """The key of a mirror that whoever asks may know of, also when it was collected."""
    known = lookup.mirror_key(key)
    house.resolver.mirror(known)
    return known


@router.post(
    "/{key}/holds",
    summary="Hold it, or renew a hold",
    responses={200: {"model": schemas.Hold}},
    openapi_extra=schemas.json_body(
        ("kind", "holder"), ("until", "reason"), {"kind": "pin", "holder": "ada", "reason": "the paper's runs"}
    ),
)
async def hold(request: Request, house: HouseOf, key: str) -> Response:
    """A ``pin`` of a person needs a reason, and lasts until it is released, or ``until``; a ``job`` until its end; a
    ``chain`` some weeks from every renewal on. The same holder once more is the same hold, renewed."""
    fields = await read_fields(request, ("kind", "holder", "until", "reason"))
    wish = _wish(fields)
    known = await run_in_threadpool(_seen, house, key)
    held = await run_in_threadpool(keeping.take, house.site, known, wish)
    return Json(held.as_dict())


def _wish(fields: dict[str, str]) -> Wish:
    kind, holder, until = fields.get("kind", ""), fields.get("holder", ""), fields.get("until")
    if kind == "pin":
        return holds.pin(holder, fields.get("reason", ""), until)
    if kind == "job":
        return replace(holds.job(holder, until), reason=fields.get("reason"))
    if kind == "chain" and until is None:
        return replace(holds.chain(holder), reason=fields.get("reason"))
    raise BlendexError(
        Code.BAD_REQUEST,
        f"{kind[:40]!r} is not a kind of hold that can be taken so.",
        next_step="Send kind pin, job or chain, and holder; a chain tells no end: each look-up renews it.",
    )


@router.delete(
    "/{key}/holds/{kind}/{holder:path}",
    summary="Release a hold",
    responses={200: {"model": schemas.Holds}},
)
def release(house: HouseOf, key: str, kind: str, holder: str) -> Response:
    """Of a pin, a job or a chain. Names are moved, and builds end."""
    known = _seen(house, key)
    keeping.release(house.site, known, kind, holder)
    return Json(keeping.show(house.site, known))


@router.post(
    "/{key}/verify",
    summary="Read it whole, and compare it with its receipt",
    status_code=202,
    responses={202: {"model": schemas.Mirror, "description": "Under way; `verification` tells its outcome."}},
)
def verify(
    house: HouseOf,
    key: str,
    sources: Annotated[bool, Query(description="Also ask whether the sources are unchanged.")] = False,
) -> Response:
    """Asking again while it is under way begins no second one."""
    house.verifier.ask(house.site, _seen(house, key), with_sources=sources)
    answer = show(house, key)
    answer.status_code = 202
    return answer


@router.get(
    "/{key}/receipt",
    summary="What it was made from",
    responses={
        200: {
            "content": {
                "application/json": {"schema": {"type": "object"}},
                "application/jsonl": {"schema": {"type": "string"}},
            }
        }
    },
)
def receipt(
    house: HouseOf,
    key: str,
    sources: Annotated[bool, Query(description="The list of sources instead: a line of JSON each.")] = False,
) -> Response:
    """The receipt, also after the mirror was collected."""
    name, kind = ("sources.jsonl", "application/jsonl") if sources else ("receipt.json", "application/json")
    answer = house.resolver.mirror(lookup.mirror_key(key))
    if not sources and not house.site.who.everything:
        return Json(_without_entries(house, key, answer.path))
    if answer.path is not None:
        return FileResponse(os.path.join(answer.path, name), media_type=kind)
    return StreamingResponse(_archived(house.site.root.receipt(key), sources), media_type=kind)


def _without_entries(house: House, key: str, path: str | None) -> dict[str, Any]:
    """A receipt without what the build that made it left out: these entries may be another team's.

    What a build of one's own left out is told by that build.
    """
    if path is not None:
        with open(os.path.join(path, "receipt.json"), "rb") as file:
            line = file.read()
    else:
        with open_archive(house.site.root.receipt(key)) as lines:
            line = lines.readline()
    found: dict[str, Any] = orjson.loads(line)
    found.pop("excluded", None)
    return found


def _archived(file: str, sources: bool) -> Iterator[bytes]:
    """From the archive of a receipt: its first line, or the lines after it."""
    with open_archive(file) as lines:
        first = lines.readline()
        if not sources:
            yield first
            return
        while piece := lines.read(ARCHIVE_PIECE):
            yield piece
