"""One build: what it does, what is wrong with it, and what may be done about it."""

from __future__ import annotations

import os
import shlex
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Query
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from blendex.builds import describe, findings, log
from blendex.builds.pace import pace
from blendex.builds.visibility import reader
from blendex.catalog import blobs, builds, deaths, notices, states, trace, workers
from blendex.catalog.models import RUNNING, Build
from service import lookup
from service.addresses import public
from service.dashboard import words
from service.dashboard.forms import ask, read_form
from service.dashboard.live import VERSION, Part, stream
from service.dashboard.pages import PageRoute, page, render, see
from service.house import House, HouseOf
from service.query import refuse_unknown
from service.replies import Json

router = APIRouter(
    prefix="/builds/{build}", route_class=PageRoute, include_in_schema=False, dependencies=[Depends(refuse_unknown)]
)

PROBLEMS = 25
UNITS = 100
DEATHS = 10
LOG = 40
TABLE = 40
DATASETS = 200
LINES = 120
FULL_LINES = 500
DIFF_LINES = 400
# What is parsed for a page: more of it is told where to get.
MOST_BYTES = 32 * 2**20
# Sources whose findings are counted with the page; of more, when somebody asks.
COUNTED = 5_000
STAGES = ("queued", "planning", "indexing", "deriving", "packing", "publishing")
Page = Annotated[int, Query(ge=0, le=10_000_000)]


def _stages(summary: dict[str, Any], now: float) -> list[dict[str, Any]]:
    """The stages that were reached, in the order of time, with how long each took."""
    times = sorted((at, name) for name, at in summary["stages"].items() if name in STAGES)
    ended = next((summary["stages"][name] for name in states.ENDED if name in summary["stages"]), None)
    found = []
    for position, (at, name) in enumerate(times):
        following = times[position + 1][0] if position + 1 < len(times) else ended
        is_now = following is None
        found.append({"name": name, "at": at, "seconds": max(0.0, (following or now) - at), "now": is_now})
    reached = {item["name"] for item in found}
    if summary["state"] in RUNNING:
        for name in ("planning", "indexing", "publishing"):
            if name not in reached and (not found or STAGES.index(name) > STAGES.index(found[-1]["name"])):
                found.append({"name": name, "at": None, "seconds": 0.0, "now": False})
    return found


def _amount(sums: dict[str, dict[str, int]]) -> dict[str, int]:
    """Predicted bytes, all and done. What a unit died of was handed to others: it counts with them."""
    alive = {state: item["cost"] for state, item in sums.items() if state != "failed"}
    return {"all": sum(alive.values()), "done": alive.get("done", 0)}


def _by_state(cells: list[dict[str, Any]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for cell in cells:
        for state, number in cell["units"].items():
            total[state] = total.get(state, 0) + number
    return total


def _strip_label(total: dict[str, int]) -> str:
    words = {"done": "done", "leased": "being read", "waiting": "waiting", "failed": "died and were tried again"}
    told = ", ".join(f"{total[state]:,} {words[state]}" for state in words if total.get(state))
    count = sum(total.values())
    return f"{count:,} {'unit' if count == 1 else 'units'} of work: {told}"


def _kept(session: Session, build: Build) -> dict[str, Any] | None:
    """What was kept of the units of a build that ended; one that is done again has what was kept before."""
    return None if describe.is_running(build) else trace.kept(session, build)


def moving(house: House, session: Session, build: Build, now: float, kept: dict[str, Any] | None) -> dict[str, Any]:
    """What of a build moves while it runs, or what was ``kept`` of it."""
    running = describe.is_running(build)
    seen = house.looks.seen(session, build) if running else None
    cells = seen.cells if seen else kept["cells"] if kept else []
    sums = seen.sums if seen else kept["sums"] if kept else {}
    total = _by_state(cells)
    speed = pace(session, build, seen)
    summary = describe.build_summary(house.site, session, build, seen, speed)
    may = reader(house.site)  # what a unit reads may be for others as well
    hands = workers.in_hand(session, sorted({unit.worker for unit, _ in speed.in_hand if unit.worker}))
    hands = {unit: source for unit, source in hands.items() if may(source)}
    return {
        "build": summary,
        "running": running,
        "hands": hands,
        "log": log.tail(session, build, LOG + 1, speed.ended),
        "most_log": LOG,
        "stages": _stages(summary, now),
        "amount": _amount(sums) if cells else None,
        "cells": cells,
        "strip_label": _strip_label(total),
        "units": sum(total.values()),
        "speed": speed,
        "slowest": trace.kept_slowest(kept) if kept else [],
        "waits": describe.stragglers(house.site, session, build, seen),
        "died": deaths.of_build(session, build.id)[:DEATHS],
    }


def _bins(house: House, session: Session, build: Build, kept: dict[str, Any] | None) -> dict[str, Any] | None:
    """What of a build ended when, as it is or as it was ``kept``."""
    if describe.is_running(build):
        return house.looks.bins(session, build)
    return kept["bins"] if kept else None


def _found(session: Session, build: Build) -> list[dict[str, Any]] | None:
    """Every problem, when they can be parsed for a page."""
    value: list[dict[str, Any]] | None = []
    if build.problems is not None:
        value = blobs.get_json_up_to(session, build.problems, MOST_BYTES)
    return value


def _problems(every: list[dict[str, Any]] | None, start: int) -> dict[str, Any]:
    """A page of the problems, failed sources first."""
    if every is None:
        return {"items": [], "count": 0, "start": 0, "next": None, "too_many": True}
    found = sorted(every, key=lambda item: item.get("scope") != "source")
    end = start + PROBLEMS
    return {
        "items": found[start:end],
        "count": len(found),
        "start": start,
        "next": end if end < len(found) else None,
        "too_many": False,
    }


def _plan(session: Session, build: Build) -> dict[str, Any]:
    """What was planned, when that can be parsed for a page."""
    value: dict[str, Any] | None = None
    if build.plan is not None:
        value = blobs.get_json_up_to(session, build.plan, MOST_BYTES)
    return {"warnings": []} if value is None else value


def _notes(build: Build, problems: list[dict[str, Any]], plan: dict[str, Any]) -> dict[int, list[str]]:
    """What is to be said in the margin of the posted text, by line."""
    notes: dict[int, list[str]] = {}

    def add(item: dict[str, Any], line: Any) -> None:
        told = notes.setdefault(int(line), [])
        text = f"{item.get('code', 'note')}: {item.get('message', '')}"
        if len(told) < 3 and text not in told:
            told.append(text)

    for item in (*problems, *plan["warnings"]):
        about = "blend_" if "blend_file" in item else ""
        line = item.get(f"{about}line")
        if line and item.get(f"{about}file") == build.file:
            add(item, line)
    return notes


def _posted(
    session: Session,
    build: Build,
    problems: list[dict[str, Any]] | None,
    plan: dict[str, Any],
    start: int,
    most: int,
) -> dict[str, Any] | None:
    """Lines of the text as it was posted, with the margin."""
    if build.submission is None:
        return None
    submission = blobs.get_json_up_to(session, build.submission, MOST_BYTES)
    if submission is None:
        return {"lines": [], "start": 0, "count": 0, "next": None, "too_large": True}
    lines = submission["text"].splitlines()
    notes = _notes(build, problems or [], plan)
    shown = [
        {"number": number, "text": text[:2_000], "notes": notes.get(number, [])}
        for number, text in enumerate(lines[start : start + most], start + 1)
    ]
    following = start + most if start + most < len(lines) else None
    return {"lines": shown, "start": start, "count": len(lines), "next": following, "too_large": False}


def _diff(house: House, build: Build) -> dict[str, Any]:
    """The first lines of what the ready blend changed."""
    if build.state != "ready":
        return {"lines": [], "more": False}
    try:
        with open(os.path.join(house.site.root.build(build.id), "blend.diff"), encoding="utf-8") as file:
            lines = [line.rstrip("\n")[:2_000] for _, line in zip(range(DIFF_LINES + 1), file, strict=False)]
    except FileNotFoundError:
        return {"lines": [], "more": False}
    return {"lines": words.diff(lines[:DIFF_LINES]), "more": len(lines) > DIFF_LINES}


def _packing(datasets: list[dict[str, Any]], packs: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """The datasets, each with its pack or why it has none."""
    told = {item["dataset"]: item for item in packs or []}
    for item in datasets:
        pack = told.get(item["name"])
        item["pack"] = pack.get("file") if pack else None
        reasons = [reason.get("message", reason.get("code", "")) for reason in (pack or {}).get("reasons", [])]
        item["unpacked"] = reasons[0] if reasons else None
    return datasets


def snippets(request: Request, build: str) -> dict[str, str]:
    """Lines to copy; what is in them is the address of this service and an id, quoted."""
    address = shlex.quote(f"{public(request)}/v1/builds/{build}/path?wait=60")
    # The header comes from a file: what stands in a command is seen by everybody on the machine, by ps.
    token = ' -H @"$HOME/.blendex-token"' if request.app.state.house.site.settings.auth != "none" else ""
    line = f"curl -fsS{token} --retry 60 --retry-max-time 3600 {address}"
    job = (
        "# once per job, in the batch script, before srun\n"
        f"BLENDEX_MIRROR=$(curl -fsS{token} --retry 60 --retry-max-time 3600 --max-time 90 \\\n"
        f"  {address}) || exit 1\n"
        'test -f "$BLENDEX_MIRROR/READY" || exit 1\n'
        'export BLENDEX_MIRROR LHOTSE_INDEXES_ROOT="$BLENDEX_MIRROR/idx"\n'
    )
    return {"curl": line, "slurm": job}


@router.get("")
def show(request: Request, house: HouseOf, build: str, problems: Page = 0) -> Response:
    """The build."""
    with house.site.work.read() as session:
        row = lookup.get_build(house, session, build)
        now = states.now(session)
        kept = _kept(session, row)
        values = moving(house, session, row, now, kept)
        rows = builds.datasets(session, row.id)
        plan, every = _plan(session, row), _found(session, row)
        datasets = describe.datasets(rows[:DATASETS], plan)
        counted = row.state not in ("queued", "planning") and 0 < row.sources <= COUNTED
        values |= {
            "problems": _problems(every, problems),
            "datasets": _packing(datasets, row.packs),
            "more_datasets": max(0, len(rows) - DATASETS),
            "posted": _posted(session, row, every, plan, 0, LINES),
            "findings": findings.report(house.site, session, row, 0) if counted else None,
            "countable": row.sources > COUNTED,
            "why": row.options.get("accepted_why"),
            "who": row.options.get("accepted_by"),
            "owner": house.site.who.owner,
            "again": row.again,
            "notices": notices.of_build(session, row.id),
            "speeds": speeds(_bins(house, session, row, kept), TABLE),
        }
        diff = _diff(house, row)
    return page(request, "build.html", now, diff=diff, snippets=snippets(request, row.id), **values)


def _row(house: House, build: str) -> Build:
    with house.site.work.read() as session:
        return lookup.get_build(house, session, build)


@router.get("/live")
async def live(
    request: Request, house: HouseOf, build: str, shown: Annotated[str, Query(max_length=20)] = ""
) -> Response:
    """What moves, whenever it moved; ``turn`` is told when the state is not the one that the page shows."""
    known = lookup.build_id(build)
    row = await run_in_threadpool(_row, house, known)
    given = request.headers.get("last-event-id", "")
    if not describe.is_running(row) and VERSION.fullmatch(given) and int(given) == row.version:
        return Response(status_code=204)

    def make() -> Part:
        with house.site.work.read() as session:
            current = lookup.get_build(house, session, known)
            now = states.now(session)
            values = moving(house, session, current, now, _kept(session, current))
        turned = ("turn",) if values["build"]["state"] != shown else ()
        return render("_build.html", now, **values), turned

    return stream(request, house, known, f"build/{known}/{shown}", make)


def speeds(bins: dict[str, Any] | None, most: int = trace.BINS) -> list[tuple[float, float, float]]:
    """(time, MB/s, sources/s), at most so many."""
    if not bins or not bins["cost"]:
        return []
    together = -(-len(bins["cost"]) // most)
    width = bins["width"] * together
    return [
        (
            round(bins["start"] + start * bins["width"] + width / 2, 3),
            round(sum(bins["cost"][start : start + together]) / width / 1e6, 3),
            round(sum(bins["sources"][start : start + together]) / width, 3),
        )
        for start in range(0, len(bins["cost"]), together)
    ]


@router.get("/plot.json")
def plot(house: HouseOf, build: str) -> Response:
    """Bytes and sources per second over time: what the plot shows."""
    with house.site.work.read() as session:
        row = lookup.get_build(house, session, build)
        bins = _bins(house, session, row, _kept(session, row))
    rows = speeds(bins)
    return Json(
        {
            "time": [row[0] for row in rows],
            "megabytes_per_second": [row[1] for row in rows],
            "sources_per_second": [row[2] for row in rows],
        }
    )


@router.get("/units")
def units(
    request: Request, house: HouseOf, build: str, after: Page = 0, state: Annotated[str, Query(max_length=8)] = ""
) -> Response:
    """The table behind the strip: units while they are there, cells when they went."""
    with house.site.work.read() as session:
        row = lookup.get_build(house, session, build)
        now = states.now(session)
        running = describe.is_running(row)
        rows = trace.page(session, row.id, state=state or None, after=after, limit=UNITS + 1) if running else []
        kept = _kept(session, row)
    cells = kept["cells"][after : after + UNITS + 1] if kept else []
    more = len(rows) > UNITS or len(cells) > UNITS
    following = (rows[UNITS - 1].unit if rows else after + UNITS) if more else None
    return page(
        request, "units.html", now,
        build=row, running=running, state=state, rows=rows[:UNITS], cells=cells[:UNITS], next=following, after=after,
        slowest=trace.kept_slowest(kept) if kept else [],
    )  # fmt: skip


@router.get("/posted")
def posted(request: Request, house: HouseOf, build: str, line: Page = 0) -> Response:
    """The posted blend, some hundred lines at a time."""
    with house.site.work.read() as session:
        row = lookup.get_build(house, session, build)
        text = _posted(session, row, _found(session, row), _plan(session, row), line, FULL_LINES)
        now = states.now(session)
    return page(request, "posted.html", now, build=row, posted=text)


@router.get("/findings")
def found(request: Request, house: HouseOf, build: str) -> Response:
    """What was found in its sources, counted now."""
    with house.site.work.read() as session:
        row = lookup.get_build(house, session, build)
        report = findings.report(house.site, session, row, 100)
        now = states.now(session)
    return page(request, "findings.html", now, build=row, findings=report)


@router.post("/cancel")
async def cancel(request: Request, build: str) -> Response:
    """Withdraw it."""
    await read_form(request)
    (await ask(request, f"/v1/builds/{lookup.build_id(build)}/cancel")).check()
    return see(f"/builds/{build}")


@router.post("/retry")
async def retry(request: Request, build: str) -> Response:
    """Try again what failed, or one source of it."""
    form = await read_form(request)
    body = {"source": form.fields["source"]} if form.fields.get("source") else {}
    (await ask(request, f"/v1/builds/{lookup.build_id(build)}/retry", content=orjson.dumps(body))).check()
    return see(f"/builds/{build}")


@router.post("/accept")
async def accept(request: Request, build: str) -> Response:
    """Publish without the bad entries; the reason and the person go into the receipt."""
    form = await read_form(request)
    body = {"why": form.get("why")} | ({"who": form.get("who")} if form.get("who") else {})
    (await ask(request, f"/v1/builds/{lookup.build_id(build)}/accept", content=orjson.dumps(body))).check()
    return see(f"/builds/{build}")
