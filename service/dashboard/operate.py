"""Workers and health: for whoever operates this."""

from __future__ import annotations

import os
import platform
import shutil
from collections import Counter, deque
from typing import Any

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from blendex.builds import abilities, degraded
from blendex.builds.figures import worker_summary
from blendex.catalog import builds, deaths, pauses, revision, states, trace, units, workers
from blendex.observability import metrics
from service import health
from service.dashboard.live import Part, stream
from service.dashboard.pages import PageRoute, page, render
from service.house import House, HouseOf
from service.query import refuse_unknown
from service.replies import Json

router = APIRouter(route_class=PageRoute, include_in_schema=False, dependencies=[Depends(refuse_unknown)])

# Shown in places of their own; whatever else a worker tells is shown as it is.
_KNOWN = (
    "id", "state", "host", "pid", "version", "classes", "slots", "busy", "budget_bytes", "taken_bytes", "started_at",
    "seen_at", "used_bytes", "predicted_bytes", "waiting", "ledger", "polled_at", "in_hand",
)  # fmt: skip
# Memory over time, as this process saw it while somebody looked: half an hour of heartbeats.
_SEEN: deque[tuple[float, int, int]] = deque(maxlen=720)


def _told(name: str, value: Any) -> list[tuple[str, str]]:
    """What else a worker tells, as words: a few lines, whatever its shape is."""
    label = name.replace("_bytes", "").replace("_", " ")
    if isinstance(value, dict):
        return [(f"{label}: {key}", f"{item:,}" if isinstance(item, int) else str(item)) for key, item in value.items()]
    if isinstance(value, list):
        return [(label, "; ".join(str(item) for item in value[:5]))] if value else []
    if value is None or value == "":
        return []
    if name.endswith("_bytes") and isinstance(value, int):
        return [(label, f"{value / 1e6:,.0f} MB")]
    return [(label, str(value))]


def _workers(house: House) -> tuple[dict[str, Any], float]:
    with house.site.work.read() as session:
        found = [worker_summary(worker, alive) for worker, alive in workers.page(session)]
        held = trace.of_worker(session, [item["id"] for item in found])
        died = deaths.recent(session)
        lacking = abilities.lacking(session)
        now = states.now(session)
    for item in found:
        item["held"] = held.get(item["id"], [])
        item["hands"] = {hand["unit"]: hand["source"] for hand in item["in_hand"]}
        item["told"] = [
            pair
            for name, value in item.items()
            if name not in (*_KNOWN, "held", "hands")
            for pair in _told(name, value)
        ]
    alive = [item for item in found if item["state"] != "silent"]
    latest = max((item["seen_at"] for item in alive), default=0.0)
    if alive and (not _SEEN or _SEEN[-1][0] < latest):
        _SEEN.append((latest, sum(item["taken_bytes"] for item in alive), sum(item["budget_bytes"] for item in alive)))
    return {"workers": found, "alive": len(alive), "died": died, "lacking": lacking}, now


@router.get("/workers")
def working(request: Request, house: HouseOf) -> Response:
    """Who works, at what, with how much memory."""
    values, now = _workers(house)
    return page(request, "workers.html", now, **values)


@router.get("/workers/live")
async def live(request: Request, house: HouseOf) -> Response:
    """The same, whenever something changed."""

    def make() -> Part:
        values, now = _workers(house)
        return render("_workers.html", now, **values), ()

    return stream(request, house, "workers", "workers", make)


@router.get("/workers/memory.json")
def memory() -> Response:
    """Memory promised, and the budget, of all workers together, while this process looked."""
    seen = list(_SEEN)
    return Json(
        {
            "time": [round(at, 3) for at, _, _ in seen],
            "promised_gigabytes": [round(taken / 1e9, 3) for _, taken, _ in seen],
            "budget_gigabytes": [round(budget / 1e9, 3) for _, _, budget in seen],
        }
    )


def _disk(path: str) -> dict[str, Any]:
    """How full the filesystem of a folder is."""
    try:
        usage, nodes = shutil.disk_usage(path), os.statvfs(path)
    except OSError as error:
        return {"path": path, "trouble": error.strerror or type(error).__name__}
    return {
        "path": path, "trouble": "", "all": usage.total, "used": usage.total - usage.free, "free": usage.free,
        "nodes": nodes.f_files, "nodes_free": nodes.f_favail,
    }  # fmt: skip


def _store(path: str) -> dict[str, Any]:
    """Whether a folder of sources can be listed."""
    try:
        with os.scandir(path) as found:
            next(found, None)
    except OSError as error:
        return {"path": path, "trouble": error.strerror or type(error).__name__}
    return {"path": path, "trouble": ""}


def _answers() -> dict[str, Any]:
    """What this process answered since it began, and what became of attempts of its own workers."""
    by_class: Counter[str] = Counter()
    worst: Counter[tuple[str, str]] = Counter()
    outcomes: Counter[tuple[str, str]] = Counter()
    for family in metrics.REGISTRY.collect():
        for sample in family.samples:
            if sample.name == "blendex_http_requests_total":
                status = sample.labels["status"]
                by_class[f"{status[:1]}xx"] += int(sample.value)
                if status[:1] == "5":
                    worst[sample.labels["route"], status] += int(sample.value)
            elif sample.name == "blendex_units_ended_total":
                outcomes[sample.labels["work"], sample.labels["outcome"]] += int(sample.value)
    return {"classes": sorted(by_class.items()), "worst": worst.most_common(5), "outcomes": sorted(outcomes.items())}


def _work(house: House) -> tuple[dict[str, Any] | None, float]:
    """What is to be done and who is there; the catalog's clock."""
    with house.site.work.read() as session:
        told = workers.page(session)
        return {
            "waiting": units.waiting(session),
            "units": sorted(units.census(session).items()),
            "builds": builds.census(session),
            "outbox": builds.outbox_length(session),
            "paused": pauses.current(session),
            "alive": sum(alive for _, alive in told),
            "silent": sum(not alive for _, alive in told),
        }, states.now(session)


@router.get("/health")
def healthy(request: Request, house: HouseOf) -> Response:
    """Stores, queue, database, disk, errors."""
    checks = [
        ("Catalog", health.database(house), house.site.work.engine.dialect.name),
        ("Root", health.root(house), house.site.root.path),
        ("Work", "" if house.alive() else "has stopped", "claim loop or relay of this process"),
    ]
    values, now = degraded.either(house.site, lambda: _work(house), lambda: (None, 0.0))
    # Of the service, not of the team of whoever looks.
    roots = request.app.state.house.site.roots
    return page(
        request, "health.html", now, work=values,
        checks=checks, disk=_disk(house.site.root.path), stores=[_store(path) for path in roots],
        revision=revision.head(), answers=_answers(), python=platform.python_version(),
        streams=house.watch.streams,
    )  # fmt: skip
