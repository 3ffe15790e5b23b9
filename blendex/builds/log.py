"""The log of a build as people read it: what happened to it, attempts that came to nothing, and the units of late.

Lines of the log and attempts are kept; the units that ended are told only while they are there, so a build that runs
shows what was read last.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from blendex.catalog import deaths, events, trace
from blendex.catalog.models import RUNNING, Build
from blendex.catalog.trace import Running

UNITS = 10
MOST = events.KEPT


def tail(
    session: Session, build: Build, limit: int = MOST, ended: list[Running] | None = None
) -> list[dict[str, Any]]:
    """The last lines of the log, the newest first: at, event, says, and what belongs to the event.

    Args:
        session: of the catalog.
        build: whose log.
        limit: most lines.
        ended: the units that ended last, when they are known already.
    """
    lines = events.of_build(session, build.id, limit)
    lines += [_attempt(item) for item in deaths.of_build(session, build.id)]
    if build.state in RUNNING:
        ended = trace.ended(session, build.id, UNITS) if ended is None else ended[:UNITS]
        lines += [_unit(item) for item in ended]
    # Of one moment the later line of its own sort stays above the earlier one.
    lines.sort(key=lambda line: -line["at"])
    return [line | {"says": says(line)} for line in lines[:limit]]


def _attempt(item: dict[str, Any]) -> dict[str, Any]:
    told = {name: item[name] for name in ("work", "unit", "attempt", "cause", "how", "worker")}
    return {"at": item["at"], "event": "attempt_failed", "file": item["in_hand"]} | told


def _unit(item: Running) -> dict[str, Any]:
    seconds = None if item.seconds is None else round(item.seconds, 3)
    return {
        "at": round(item.ended_at or 0.0, 3), "event": "unit_done", "work": item.work, "unit": item.unit,
        "sources": item.sources, "seconds": seconds, "worker": item.worker,
    }  # fmt: skip


def _count(number: int) -> str:
    return f"{number:,} source" if number == 1 else f"{number:,} sources"


def says(line: dict[str, Any]) -> str:
    """A line in words."""
    event, about = line["event"], line
    if event == "submitted":
        return f"asked for by {about.get('who', 'somebody')}"
    if event == "joined":
        return f"the same was asked for by {about.get('who', 'somebody')}"
    if event == "planning":
        return f"planned again ({about['again']}): sources changed" if about.get("again") else "planning"
    if event == "indexing":
        return f"planned: {_count(about.get('sources', 0))}, {about.get('reused', 0):,} known already"
    if event == "ready":
        return f"published, entries left out: {about['excluded']:,}" if about.get("excluded") else "published"
    if event == "failed":
        return f"failed: {about.get('code', 'see the problems')}"
    if event == "retried":
        return f"retried, of what failed only {about['source']}" if about.get("source") else "retried"
    if event == "accepted":
        return f"to be published without the bad entries, says {about.get('who')}: {about.get('why')}"
    if event == "attempt_failed":
        how = f" ({about['how']})" if about.get("how") else ""
        return f"{about['work']} unit {about['unit']}, attempt {about['attempt']}: {about['cause']}{how}"
    if event == "unit_done":
        took = "" if about["seconds"] is None else f" in {about['seconds']:.1f} s"
        return f"{about['work']} unit {about['unit']}: {_count(about['sources'])}{took}"
    return "making what is derived from other sources" if event == "deriving" else str(event)
