"""How fast a build goes, when it will be done, and what it waits for.

The rate is a median, so that neither a burst at the start nor a pause in the middle decides it: the time that the last
units took is cut into slices, and the slice in the middle counts. Where the end depends on a few units that have run
for much longer than was predicted, no time is told; the units are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

from sqlalchemy.orm import Session

from blendex.catalog import states, trace
from blendex.catalog.models import Build
from blendex.catalog.trace import Running

LAST = 64
SLICES = 8
# A unit is a straggler when it has run this many times longer than its like, and for more than a moment.
LONGER = 4.0
LEAST_SECONDS = 5.0
SHOWN = 10


@dataclass(frozen=True, slots=True)
class Straggler:
    """A unit that takes much longer than its like."""

    unit: Running
    seconds: float
    times: float


@dataclass(frozen=True, slots=True)
class Pace:
    """How a build goes; rates in predicted bytes and sources per second."""

    bytes_per_second: float | None
    sources_per_second: float | None
    eta_seconds: float | None
    in_hand: list[tuple[Running, float]]  # a unit, and for how long somebody has it
    stragglers: list[Straggler]
    ended: list[Running] = field(default_factory=list)  # the last ones, the newest first


def _rate(ended: list[Running], now: float, since: float) -> tuple[float, float] | None:
    """(bytes, sources) per second of the last units, by the median slice of their time."""
    if not ended or ended[-1].ended_at is None:
        return None
    first = since if len(ended) < LAST else ended[-1].ended_at
    seconds = now - first
    if seconds <= 0:
        return None
    count = max(1, min(SLICES, len(ended) // 4))
    costs, sources = [0.0] * count, [0.0] * count
    for item in ended:
        assert item.ended_at is not None
        place = min(count - 1, max(0, int((item.ended_at - first) / seconds * count)))
        costs[place] += item.cost
        sources[place] += item.sources
    width = seconds / count
    # When most slices saw no unit end, the middle one says nothing; the mean does.
    middle = (median(costs), median(sources)) if median(costs) > 0 else (sum(costs) / count, sum(sources) / count)
    return middle[0] / width, middle[1] / width


def pace(session: Session, build: Build, seen: trace.Seen | None = None) -> Pace:
    """How a build that is indexing goes; nothing is told of others. ``seen`` of its units, when somebody looked."""
    if build.state not in ("indexing", "packing"):
        return Pace(None, None, None, [], [])
    now = states.now(session)
    ended = trace.ended(session, build.id, LAST, seen.ended_last(LAST) if seen is not None else None)
    held = [
        (item, max(0.0, now - item.leased_at)) for item in trace.in_hand(session, build.id, SHOWN) if item.leased_at
    ]
    rate = _rate(ended, now, build.stages.get("indexing", now))
    per_byte = [item.seconds / item.cost for item in ended if item.seconds is not None and item.cost > 0]
    usual = median(per_byte) if per_byte else None
    stragglers = []
    eta = 0.0
    for item, seconds in held:
        if usual is None or item.work != "index" or item.cost <= 0:
            continue
        expected = max(item.cost * usual, 0.05)
        eta = max(eta, expected - seconds)
        if seconds > LEAST_SECONDS and seconds > LONGER * expected:
            stragglers.append(Straggler(item, seconds, seconds / expected))
    if rate is None or rate[0] <= 0 or build.state != "indexing":
        return Pace(None, None, None, held, stragglers, ended[:SHOWN])
    sums = trace.sums(session, build.id) if seen is None else seen.sums
    waiting = sums.get("waiting", {"cost": 0})["cost"]
    left = waiting + sums.get("leased", {"cost": 0})["cost"]
    # Only stragglers are left: a rate says nothing of when they end.
    known = None if stragglers and not waiting else round(max(eta, left / rate[0]), 1)
    return Pace(rate[0], rate[1], known, held, stragglers, ended[:SHOWN])
