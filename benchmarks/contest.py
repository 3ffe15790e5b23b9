"""How two ways of doing the same are compared: in one process, in turns, by ratios within a round.

Absolute times on a shared machine vary by 2 and more; ratios of neighbours by a tenth. CPU time decides, since
everything is in the page cache and single-threaded; wall time is reported beside it.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

Run = Callable[[Path], object]


@dataclass(frozen=True)
class Ratio:
    """How many times longer another takes than ours: the median over rounds, and its range."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:6.2f} [{self.low:.2f}-{self.high:.2f}]"


@dataclass(frozen=True)
class Times:
    """CPU and wall seconds of each contestant, by round."""

    cpu: Mapping[str, list[float]]
    wall: Mapping[str, list[float]]

    def ratio(self, other: str, ours: str, clock: str = "cpu") -> Ratio:
        times = self.cpu if clock == "cpu" else self.wall
        ratios = [b / a for a, b in zip(times[ours], times[other], strict=True)]
        return Ratio(statistics.median(ratios), min(ratios), max(ratios))


def contest(contestants: Mapping[str, Run], folder: Path, rounds: int) -> Times:
    """Runs all contestants ``rounds`` times after one round to warm up, every second round in reverse order.

    Args:
        contestants: each gets a new folder per round: writing over deleted files costs several times more.
        folder: for those folders.
        rounds: how many count.
    """
    cpu: dict[str, list[float]] = {name: [] for name in contestants}
    wall: dict[str, list[float]] = {name: [] for name in contestants}
    names = list(contestants)
    for number in range(rounds + 1):
        for name in names if number % 2 else reversed(names):
            target = folder / f"{number}-{name}"
            target.mkdir(parents=True)
            gc.collect()
            gc.disable()
            try:
                began, busy = time.perf_counter(), time.process_time()
                contestants[name](target)
                busy, began = time.process_time() - busy, time.perf_counter() - began
            finally:
                gc.enable()
            if number:
                cpu[name].append(busy)
                wall[name].append(began)
    return Times(cpu, wall)
