"""What the catalog as a whole looks like, for whoever operates it."""

from __future__ import annotations

import os
from typing import Any

from blendex.builds import abilities
from blendex.builds.site import Site
from blendex.catalog import builds, dialect, mirrors, pauses, units, usage, workers
from blendex.catalog.models import Observation, Worker
from blendex.observability.metrics import Figures


def gauges(site: Site) -> Figures:
    """Gauges of the whole catalog, and of the root's disk; every api process shows the same.

    While the database is away only that, and the disk.
    """
    disk = _disk(site.root.path)
    try:
        with site.work.read() as session:
            by_state = units.census(session)
            waiting = units.waiting(session)
            running = builds.census(session)
            alive = sum(is_alive for _, is_alive in workers.page(session))
            untold = builds.outbox_length(session)
            held = usage.used(session)
            lacking = abilities.lacking(session)
            standing = mirrors.count_states(session)
            paused = float(pauses.current(session) is not None)
    except dialect.AWAY:
        return [("blendex_up", "Whether the catalog answers.", (), {(): 0.0}), *disk]
    states_of_units: dict[tuple[str, ...], float] = {key: float(number) for key, number in by_state.items()}
    age: dict[tuple[str, ...], float] = {(work,): seconds for work, (_, seconds) in waiting.items()}
    return [
        ("blendex_up", "Whether the catalog answers.", (), {(): 1.0}),
        ("blendex_units", "Units in the catalog.", ("work", "state"), states_of_units),
        ("blendex_oldest_waiting_seconds", "How long the oldest waiting unit of a class has waited.", ("work",), age),
        ("blendex_builds", "Builds by state.", ("state",), {(key,): float(n) for key, n in running.items()}),
        ("blendex_mirrors", "Mirrors by state.", ("state",), {(key,): float(n) for key, n in standing.items()}),
        ("blendex_workers_alive", "Workers that told of themselves in time.", (), {(): float(alive)}),
        ("blendex_paused", "Whether nothing that writes is begun: the disk is full.", (), {(): paused}),
        (
            "blendex_root_files",
            "Files of objects and mirrors, by the catalog.",
            (),
            {(): float(held.files)},
        ),
        (
            "blendex_root_bytes",
            "Bytes of objects and mirrors, by the catalog.",
            (),
            {(): float(held.bytes)},
        ),
        (
            "blendex_units_without_recipe",
            "Waiting units that need a recipe which no worker has.",
            ("recipe",),
            {(name,): float(count) for name, count in lacking.items()},
        ),
        ("blendex_outbox_rows", "Wake-ups that no relay has told yet.", (), {(): float(untold)}),
        *disk,
    ]


def _disk(path: str) -> list[tuple[str, str, tuple[str, ...], dict[tuple[str, ...], float]]]:
    """What the filesystem of the root has, as the system tells; nothing when it does not."""
    try:
        found = os.statvfs(path)
    except OSError:
        return []
    # What is kept for the superuser is not free for us.
    usable = found.f_blocks - found.f_bfree + found.f_bavail
    return [
        ("blendex_disk_bytes", "Size of the root's filesystem.", (), {(): float(usable * found.f_frsize)}),
        ("blendex_disk_free_bytes", "Of it, free.", (), {(): float(found.f_bavail * found.f_frsize)}),
        ("blendex_disk_inodes", "Inodes of the root's filesystem; 0: any number.", (), {(): float(found.f_files)}),
        ("blendex_disk_free_inodes", "Of them, free.", (), {(): float(found.f_favail)}),
    ]


def worker_summary(worker: Worker, alive: bool) -> dict[str, Any]:
    """A worker, as it last told of itself."""
    return {
        "id": worker.id,
        "state": worker.state if alive else "silent",
        "host": worker.host,
        "pid": worker.pid,
        "version": worker.version,
        "classes": worker.classes,
        "slots": worker.slots,
        "busy": worker.busy,
        "budget_bytes": worker.budget,
        "predicted_bytes": worker.taken,
        "taken_bytes": worker.taken,
        "used_bytes": worker.used,
        "ledger": worker.ledger,
        "waiting": worker.waiting if alive else None,
        "recipes": worker.recipes,
        "in_hand": (worker.in_hand or []) if alive else [],
        "polled_at": worker.polled_at,
        "started_at": worker.started_at,
        "seen_at": worker.seen_at,
    }


def observation_summary(item: Observation) -> dict[str, Any]:
    """What one sort of source was predicted to take in memory, and took."""
    return {
        "sort": item.sort,
        "predicted_bytes": item.predicted,
        "last_bytes": item.last,
        "peak_bytes": item.peak,
        "count": item.count,
    }
