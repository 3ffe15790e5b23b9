"""``/v1/mirrors``."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from typing import Annotated, Any

import zstandard
from fastapi import APIRouter, Depends, Query
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse

from blendex.builds import access, describe, verifying
from blendex.builds.control import not_found
from blendex.builds.resolve import Answer
from blendex.catalog import mirrors, verifications
from blendex.errors import BlendexError, Code
from blendex.units.receipt import read_receipt
from service import lookup, text
from service.api.v1 import schemas
from service.api.v1.builds import read_body
from service.bodies import hint
from service.house import House, HouseOf
from service.problems import reply
from service.query import Limit, Options, Wait, refuse_unknown, submission_options
from service.replies import Json

router = APIRouter(prefix="/v1/mirrors", tags=["mirrors"], dependencies=[Depends(refuse_unknown)])

NAMED_MISSING = 10
PIECE = 1 << 18


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
        start = None
        if before is not None:
            row = mirrors.get(session, lookup.mirror_key(before))
            if row is None:
                raise not_found("mirror", before)
            start = row.id
        rows = mirrors.page(session, before=start, limit=limit)
        verified = verifications.of(session, [row.key for row in rows])
        found = [
            _linked(describe.mirror_summary(house.site, row, verifying.summary(verified.get(row.key)))) for row in rows
        ]
    following = f"/v1/mirrors?before={found[-1]['key']}&limit={limit}" if len(found) == limit else None
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
        found = await run_in_threadpool(house.previews.run, submission)
    except BlendexError as failure:
        raise hint(failure, request, await request.body()) from None
    if found.mirror is not None:
        answer = Answer("ready", key=found.mirror, path=found.path)
        return text.path_reply(request, house.site, answer, text.Ask(None, None, None))
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


def _from_disk(house: House, key: str) -> dict[str, Any]:
    """A mirror that another catalog published under this root."""
    path = house.site.root.mirror(key)
    receipt = read_receipt(path, key)
    published = receipt["published_ns"] / 1e9
    return {
        "key": key,
        "state": "published",
        "path": path,
        **receipt["counts"],
        "source_set": receipt["source_set"],
        "content": receipt["content"],
        "created_at": published,
        "used_at": published,
    }


@router.get("/{key}", summary="Look at a mirror", responses={200: {"model": schemas.Mirror}})
def show(house: HouseOf, key: str) -> Response:
    """Its counts and where it is."""
    answer = house.resolver.mirror(key)
    with house.site.work.read() as session:
        row = mirrors.get(session, key)
        verified = verifying.summary(verifications.of(session, [key]).get(key))
        summary = describe.mirror_summary(house.site, row, verified) if row is not None else None
        if summary is not None:
            summary["access"] = access.of_mirror(house.site, key)
    if answer.state == "collected":
        summary = (summary or {"key": key}) | {"state": "collected", "path": None}
    return Json(_linked(summary or _from_disk(house, key)))


@router.get("/{key}/path", summary="Its path, while it is there", responses=schemas.PATH_ANSWERS)
def path(
    request: Request, house: HouseOf, key: str, ask: Annotated[text.Ask, Depends(text.ask)], wait: Wait = 0
) -> Response:
    """One line of text for shells. A mirror is there or not: ``wait`` is taken and never needed."""
    del wait
    return text.path_reply(request, house.site, house.resolver.mirror(lookup.mirror_key(key)), ask)


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
    house.verifier.ask(lookup.mirror_key(key), with_sources=sources)
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
    if answer.path is not None:
        return FileResponse(os.path.join(answer.path, name), media_type=kind)
    return StreamingResponse(_archived(house.site.root.receipt(key), sources), media_type=kind)


def _archived(file: str, sources: bool) -> Iterator[bytes]:
    """From the archive of a receipt: its first line, or the lines after it."""
    with open(file, "rb") as packed, zstandard.ZstdDecompressor().stream_reader(packed) as raw:
        lines = io.BufferedReader(raw, PIECE)
        first = lines.readline()
        if not sources:
            yield first
            return
        while piece := lines.read(PIECE):
            yield piece
