"""Text answers for shells: one line, a status that says what to do, snippets without any text of a user."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import yaml
from fastapi import Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from blendex.builds import access
from blendex.builds.answers import Answer
from blendex.builds.degraded import CATALOG
from blendex.builds.site import Site
from blendex.errors import BlendexError, Code
from blendex.mirrors import holds
from blendex.mirrors.holds import Wish
from service.addresses import public
from service.house import get_house
from service.problems import reply
from service.replies import DEGRADED, Json, line, retry_after, text_reply, wants_text

SECTION = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
KEY = re.compile(r"[0-9a-f]{64}")
_PLAIN = re.compile(r"[A-Za-z0-9_./-]+")


@dataclass(frozen=True, slots=True)
class Ask:
    """How the path of a mirror was asked for."""

    expect: str | None = None
    format: str | None = None
    section: str | None = None
    hold: Wish | None = None


def hold(
    job: Annotated[str | None, Query(description="A job of the scheduler that holds the mirror until it ends.")] = None,
    end: Annotated[
        str | None, Query(description="When it ends: seconds since the epoch, or ISO 8601 with an offset.")
    ] = None,
    holder: Annotated[str | None, Query(description="`chain:NAME`: a chain of jobs, renewed by each of them.")] = None,
) -> Wish | None:
    """The hold that a look-up takes.

    Raises:
        BlendexError: bad_request.
    """
    if job is not None and holder is not None:
        raise _bad("job and holder exclude each other.", "A chain holds for all of its jobs: say holder=chain:NAME.")
    if job is not None:
        return holds.job(job, end)
    if end is not None:
        raise _bad("end goes with job.", "Add job=$SLURM_JOB_ID, or leave end out.")
    if holder is None:
        return None
    kind, _, name = holder.partition(":")
    if kind != "chain":
        raise _bad(f"holder={holder[:60]!r} is not chain:NAME.", "For one job say job=$SLURM_JOB_ID&end=….")
    return holds.chain(name)


def refuse_hold(hold: Wish | None) -> None:
    """Who only looks holds nothing: nobody shall believe that they do.

    Raises:
        BlendexError: bad_request.
    """
    if hold is not None:
        raise _bad("a description takes no hold.", "Ask for its path (…/path), or with Accept: text/plain.")


def ask(
    expect: Annotated[str | None, Query(description="The mirror key that it must be: 409 when it is another.")] = None,
    format: Annotated[  # noqa: A002 -- its name in the URL
        Literal["export", "hydra"] | None,
        Query(description="Shell lines, or overrides for Hydra, instead of a path."),
    ] = None,
    section: Annotated[str | None, Query(description="With format=hydra: the section of the config to set.")] = None,
    hold: Annotated[Wish | None, Depends(hold)] = None,
) -> Ask:
    """The part of a query that shapes a text answer.

    Raises:
        BlendexError: bad_request.
    """
    if expect is not None and not KEY.fullmatch(expect):
        raise _bad("expect is not the key of a mirror.", "Give the 64 hex digits that the ETag shows.")
    if format == "hydra":
        if section is None or not SECTION.fullmatch(section):
            raise _bad("format=hydra needs a section such as data.train_ds.", "Use letters, digits, _ and dots.")
    elif section is not None:
        raise _bad("section goes with format=hydra.", "Add format=hydra, or leave section out.")
    return Ask(expect, format, section, hold)


def _bad(message: str, next_step: str) -> BlendexError:
    return BlendexError(Code.BAD_REQUEST, message, next_step=next_step)


def quoted(text: str) -> str:
    """``text`` as one word of a POSIX shell, always in single quotes."""
    return "'" + text.replace("'", "'\"'\"'") + "'"


def _hydra_value(text: str) -> str:
    """``text`` as a value in Hydra's override grammar."""
    if _PLAIN.fullmatch(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("${", "\\${") + '"'


def ready_blend(site: Site, build: str) -> str:
    """The ready blend of a build."""
    return os.path.join(site.root.build(build), "blend.yaml")


def export_lines(site: Site, answer: Answer) -> list[str]:
    """What a shell may evaluate to know the mirror."""
    assert answer.path is not None
    values = {"BLENDEX_MIRROR": answer.path, "LHOTSE_INDEXES_ROOT": os.path.join(answer.path, "idx")}
    if answer.build is not None:
        values["BLENDEX_BLEND"] = ready_blend(site, answer.build)
        values |= access.environment(site, answer.build)
    return [f"export {name}={quoted(value)}" for name, value in values.items()]


def hydra_lines(site: Site, answer: Answer, section: str) -> list[str]:
    """Overrides that let a section of a training config read the ready blend.

    Raises:
        BlendexError: bad_request for a mirror without a build; wrong_state when the blend is a whole config,
            which an input_cfg cannot name.
    """
    assert answer.path is not None
    if answer.build is None:
        raise _bad("format=hydra points at a ready blend, and a mirror has none.", "Ask for a build or a name.")
    path = ready_blend(site, answer.build)
    with open(path, "rb") as file:
        events = yaml.parse(file, Loader=yaml.CSafeLoader)
        is_list = any(isinstance(event, yaml.SequenceStartEvent) for event in _first(events))
    if not is_list:
        raise BlendexError(
            Code.WRONG_STATE,
            "the blend of this build is a whole config, not a list of entries.",
            next_step=f"Train with it as the config: {path}.",
        )
    values = {"input_cfg": path, "indexed": "true", "indexes_root": os.path.join(answer.path, "idx")}
    return [quoted(f"++{section}.{key}={_hydra_value(value)}") for key, value in values.items()]


def _first(events: Any) -> list[Any]:
    """The event that begins the content: after the beginnings of stream and document."""
    return [event for _, event in zip(range(3), events, strict=False)][2:]


def _etag(answer: Answer, wish: Ask) -> str:
    # The lines name the build too, and two builds may share a mirror.
    return f'"{answer.key}-{answer.build}"' if wish.format else f'"{answer.key}"'


def _matches(header: str | None, etag: str) -> bool:
    if header is None:
        return False
    tags = [tag.strip().removeprefix("W/") for tag in header.split(",")]
    return "*" in tags or etag in tags


def path_reply(request: Request, site: Site, answer: Answer, wish: Ask) -> Response:
    """The answer to "where is it?", by the table of states.

    Ready 200, unchanged 304, building 503, failed or other than expected 409, collected 410; never 202, which
    ``curl -f --retry`` takes for success. Whoever is answered 200 or 304 may use the mirror: the hold they asked for is
    committed before.
    """
    expected = wish.expect is None or wish.expect == answer.key
    if answer.state == "ready" and expected:
        answer = get_house(request).uses.keep(answer, wish.hold)
    headers = {"X-Mirror-State": answer.state, "Cache-Control": "private, no-cache"}
    if answer.degraded:
        headers[DEGRADED] = CATALOG
    if answer.state == "building":
        return _building(request, answer, headers)
    if answer.state == "collected":
        error = BlendexError(
            Code.NOT_FOUND,
            f"mirror {answer.key} was collected.",
            next_step="Post the blend again (POST /v1/builds): it is made from what was indexed, unless sources "
            f"changed. What it was made from: /v1/mirrors/{answer.key}/receipt.",
        )
        return _no(request, error, answer, 410, headers)
    if answer.state != "ready":
        return _failed(request, answer, headers)
    assert answer.path is not None
    if not expected:
        error = BlendexError(
            Code.WRONG_STATE,
            f"it is mirror {answer.key} now, not the expected one.",
            next_step="Look what changed (GET /v1/mirrors/{key}/receipt), then expect the new key.",
        )
        return _no(request, error, answer, 409, headers)
    if line(answer.path) != answer.path:
        raise BlendexError(Code.INTERNAL, "the root's path is no plain line.", next_step="Move BLENDEX_ROOT.")
    if wish.format == "hydra":
        assert wish.section is not None
        lines = hydra_lines(site, answer, wish.section)
    else:
        lines = export_lines(site, answer) if wish.format else [answer.path]
    headers |= {"X-Mirror-Excluded": str(answer.excluded), "ETag": _etag(answer, wish)}
    if wish.hold is not None:
        headers["Cache-Control"] = "no-store"
        headers["X-Lease-Until"] = _moment(answer.lease_until)
    if _matches(request.headers.get("if-none-match"), headers["ETag"]):
        return Response(None, 304, headers)
    if wants_text(request):
        return Response("".join(item + "\n" for item in lines), 200, headers, "text/plain")
    blend = ready_blend(site, answer.build) if answer.build is not None else None
    values: dict[str, Any] = {"state": "ready", "build": answer.build, "key": answer.key, "path": answer.path}
    values |= {"lease_until": answer.lease_until} if wish.hold is not None else {}
    values |= {"excluded": answer.excluded, "blend": blend}
    return Json(values | ({"degraded": CATALOG} if answer.degraded else {}), 200, headers)


def _moment(at: float | None) -> str:
    """Whole seconds, rounded down: nobody is promised more than is kept."""
    return "never" if at is None else datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _no(request: Request, error: BlendexError, answer: Answer, status: int, headers: dict[str, str]) -> Response:
    extra: dict[str, Any] = {"state": answer.state, "build": answer.build, "key": answer.key}
    if answer.degraded:
        extra["degraded"] = CATALOG
    return reply(request, error, status=status, headers=headers, extra=extra)


def _building(request: Request, answer: Answer, headers: dict[str, str]) -> Response:
    eta = answer.eta_seconds
    headers |= {"Retry-After": retry_after(eta)}
    expected = "ETA unknown" if eta is None else f"ETA {max(1, round(eta))} s"
    text = f"building: {answer.stage} {answer.done}/{answer.total} sources, {expected}"
    if wants_text(request):
        return text_reply(request, text, 503, headers)
    error = BlendexError(Code.WRONG_STATE, f"{text}.", next_step="Ask again after Retry-After, or add wait=20.")
    extra = {
        "state": answer.state, "build": answer.build, "stage": answer.stage,
        "done": answer.done, "total": answer.total, "eta_seconds": eta,
    }  # fmt: skip
    return reply(request, error, status=503, headers=headers, extra=extra)


def _failed(request: Request, answer: Answer, headers: dict[str, str]) -> Response:
    error = answer.error or BlendexError(Code.CANCELLED, f"the build was {answer.state}.", next_step="Retry it.")
    report = f"{public(request)}/v1/builds/{answer.build}/problems"
    if wants_text(request):
        return text_reply(request, f"{answer.state}: {error} All problems: {report}", 409, headers)
    return _no(request, error, answer, 409, headers)
