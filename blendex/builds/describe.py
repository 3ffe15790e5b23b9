"""Builds, mirrors and names as JSON: one description for the API, the CLI and the events."""

from __future__ import annotations

import os
from typing import Any

from sqlalchemy.orm import Session

from blendex.builds import abilities, access, causes
from blendex.builds.pace import Pace, pace
from blendex.builds.site import Site
from blendex.builds.visibility import reader
from blendex.catalog import blobs, builds, deaths, mirrors, notices, pauses, states, trace, units, workers
from blendex.catalog.models import RUNNING, Build, BuildDataset, Mirror, Name
from blendex.storage.profiles import place_of

# Problems shown with a build; all of them are at its own address.
SHOWN_PROBLEMS = 20
SHOWN_STRAGGLERS = 5
# Of datasets that are groups: of one, and of all
SHOWN_ENTRIES, MOST_ENTRIES = 50, 1_000


def build_summary(
    site: Site, session: Session, build: Build, seen: trace.Seen | None = None, speed: Pace | None = None
) -> dict[str, Any]:
    """A build in a list: state, progress, path. What was ``seen`` of its units, and their ``speed``, when known."""
    done = build.sources
    if build.state in ("queued", "planning"):
        done = 0
    elif build.state == "indexing":
        sums = trace.sums(session, build.id) if seen is None else seen.sums
        done = build.sources - sum(sums[state]["sources"] for state in ("waiting", "leased") if state in sums)
    speed = pace(session, build, seen) if speed is None else speed
    return {
        "id": build.id,
        "state": build.state,
        "file": build.file,
        "owner": build.owner,
        "names": build.names,
        "labels": build.labels,
        "options": build.options,
        "created_at": build.created_at,
        "updated_at": build.updated_at,
        "stages": build.stages,
        "sources": build.sources,
        "done": done,
        "reused": build.reused,
        "opened": build.opened,
        "bytes": build.bytes,
        "bytes_per_second": _rounded(speed.bytes_per_second),
        "sources_per_second": _rounded(speed.sources_per_second),
        "eta_seconds": speed.eta_seconds,
        "mirror": build.mirror,
        "path": site.root.mirror(build.mirror) if build.mirror else None,
        "error": build.error,
        "excluded": build.excluded,
        "packs": build.packs,
        "checked_at": build.checked_at,
        "version": build.version,
    }


def awaited(site: Site, session: Session, build: Build) -> dict[str, Any] | None:
    """A store or file server that is away and waited for: message, endpoint, seconds waited and patience; or None."""
    found = units.awaited(session, build.id) if build.state not in ("ready", "failed", "cancelled") else None
    if found is None:
        return None
    error, delays = found
    place = place_of(str(error.get("file") or ""))
    profile = next((item for item in site.stores if place is not None and item.name == place.profile), None)
    patience = site.plan_patience if build.state in ("queued", "planning") else site.settings.store_patience
    return {
        "message": error["message"],
        "endpoint": (profile.endpoint if profile is not None else None) or (place.url if place is not None else None),
        "waited_seconds": causes.paused(delays),
        "patience_seconds": patience,
    }


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 3)


def eta(build: Build, done: int) -> float | None:
    """Seconds until the sources are read, at the mean rate so far; None when there is no rate yet.

    For answers that thousands of nodes ask for: it costs no query. ``pace`` tells better.
    """
    if build.state != "indexing":
        return None
    fresh = done - build.reused
    elapsed: float = build.updated_at - build.stages.get("indexing", build.updated_at)
    if fresh <= 0 or elapsed <= 0:
        return None
    return round((build.sources - done) * elapsed / fresh, 1)


def build_detail(site: Site, session: Session, build: Build) -> dict[str, Any]:
    """A build with its datasets, its first problems and its warnings."""
    problems = blobs.get_json(session, build.problems) if build.problems else []
    plan: dict[str, Any] = blobs.get_json(session, build.plan) if build.plan else {"warnings": [], "entries": 0}
    return build_summary(site, session, build) | {
        "datasets": datasets(builds.datasets(session, build.id), plan),
        "entries": plan["entries"],
        "problem_count": len(problems),
        "problems": problems[:SHOWN_PROBLEMS],
        "warnings": plan["warnings"][:SHOWN_PROBLEMS],
        "attempts_failed": deaths.of_build(session, build.id)[:SHOWN_PROBLEMS],
        "stragglers": stragglers(site, session, build),
        "notices": notices.of_build(session, build.id),
        "blend": os.path.join(site.root.build(build.id), "blend.yaml") if build.state == "ready" else None,
        "access": access.report(site, build.id) if build.state == "ready" else None,
    }


def datasets(rows: list[BuildDataset], plan: dict[str, Any]) -> list[dict[str, Any]]:
    """Datasets of a build; those that are groups with their first entries.

    ``share``: how much of what training draws comes from it, by the weights of its list and of those around it.
    """
    entries: dict[str, list[dict[str, Any]]] = {}
    left = MOST_ENTRIES
    for item in plan.get("datasets", ()):
        entries[item["name"]] = _entries(item["leaves"][:left])
        left -= len(entries[item["name"]])
    return [
        {
            "name": item.name,
            "type": item.type,
            "sources": item.sources,
            "weight": item.weight,
            "share": item.share,
            "records": item.records,
            "bytes": item.bytes,
            "hours": None if item.seconds is None else round(item.seconds / 3600, 4),
            "access": item.access,
            "entries": entries.get(item.name, []),
        }
        for item in rows
    ]


def _entries(leaves: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if len(leaves) < 2:
        return []
    names = ("pointer", "type", "file", "line", "weight", "share")
    return [{name: leaf.get(name) for name in names} for leaf in leaves[:SHOWN_ENTRIES]]


def stragglers(site: Site, session: Session, build: Build, seen: trace.Seen | None = None) -> list[dict[str, Any]]:
    """What a build has waited for longest, by name, with what that waits for.

    Of a unit that another team's build asked for only those sources are told that may be read here, too.
    """
    may = reader(site)
    if build.state not in RUNNING:
        return []
    now, paused = states.now(session), pauses.current(session)
    has = workers.recipes(session)
    found = []
    among = seen.waited_longest(SHOWN_STRAGGLERS) if seen is not None else None
    for unit in units.stragglers(session, build.id, SHOWN_STRAGGLERS, among):
        payload = units.payload(unit)
        paths = [item[1] for item in payload["sources"] if may(item[2])] if unit.work == "index" else []
        if unit.state == "leased":
            waits_for = "its worker"
        elif unit.not_before is not None and unit.not_before > now:
            waits_for = f"a store or a disk; tried again in {unit.not_before - now:.0f} s"
        elif has and (lacking := abilities.missing(unit.needs, has)):
            waits_for = f"no worker for recipe {', '.join(lacking)}: start workers of the version that planned it"
        elif paused is not None and unit.work != "plan":
            waits_for = f"paused: {paused}"
        else:
            waits_for = f"a worker with {unit.memory // 2**20} MiB to give"
        found.append(
            {
                "unit": unit.id, "work": unit.work, "state": unit.state, "worker": unit.worker,
                "seconds": round(now - (unit.waiting_since or now), 1), "waits_for": waits_for,
                "sources": len(paths), "first": paths[0] if paths else payload.get("dataset"),
                "memory_bytes": unit.memory, "attempts": unit.attempts, "losses": unit.losses,
            }
        )  # fmt: skip
    return found


def all_problems(session: Session, build: Build) -> list[dict[str, Any]]:
    """Every problem of a build."""
    value: list[dict[str, Any]] = blobs.get_json(session, build.problems) if build.problems else []
    return value


def mirror_summary(site: Site, mirror: Mirror, verified: dict[str, Any] | None = None) -> dict[str, Any]:
    """A mirror in a list, with what came of verifying it."""
    return {
        "key": mirror.key,
        "state": mirror.state,
        "path": site.root.mirror(mirror.key),
        "sources": mirror.sources,
        "records": mirror.records,
        "bytes": mirror.bytes,
        "sidecar_bytes": mirror.sidecar_bytes,
        "source_set": mirror.source_set,
        "content": mirror.content,
        "created_at": mirror.created_at,
        "used_at": mirror.used_at,
        "verification": verified,
    }


def name_summary(site: Site, session: Session, name: Name) -> dict[str, Any]:
    """A name with where it points now."""
    build = builds.get(session, name.build)
    return {
        "name": name.name,
        "build": name.build,
        "version": name.version,
        "updated_at": name.updated_at,
        "mirror": build.mirror if build else None,
        "path": site.root.mirror(build.mirror) if build and build.mirror else None,
        "history": mirrors.history(session, name.name),
    }


def is_running(build: Build) -> bool:
    """True until a build ends."""
    return build.state in RUNNING
