"""``python -m tests.chaos``: every crash point of all scenarios, then random ones; prints its seed."""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections import Counter as Tally
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path

from rich.progress import track

from tests.chaos import collecting
from tests.chaos.trial import LOST_SHARE, Scenario, prepare, trial
from tests.support.corpus import wait_until_calm


def point(scenarios: list[Scenario], seed: int, number: int) -> tuple[Scenario, int, bool]:
    """What trial ``number`` stops, before which change, and whether the catalog is lost then: each once, then any."""
    for scenario in scenarios:
        if number < 2 * scenario.steps:
            return scenario, number // 2 + 1, number % 2 == 1
        number -= 2 * scenario.steps
    chance = random.Random(f"{seed}/{number}")
    scenario = chance.choice(scenarios)
    return scenario, chance.randint(1, scenario.steps), chance.random() < LOST_SHARE


def _place(folder: Path) -> Path:
    """Where this process tries."""
    place = folder / f"process-{os.getpid()}"
    place.mkdir(exist_ok=True)
    return place


def one(folder: Path, scenarios: list[Scenario], seed: int, number: int) -> str:
    """One trial; what the process was about to do when it was stopped."""
    scenario, stop_at, lost = point(scenarios, seed, number)
    try:
        trial(_place(folder), scenario, stop_at, lost=lost)
    except BaseException as error:
        what = f"{scenario.name}, stopped at {stop_at} of {scenario.steps}{', its catalog lost' * lost}"
        raise RuntimeError(f"{what}, seed {seed}") from error
    return f"{scenario.name} {scenario.trail[stop_at - 1]}"


def one_collecting(folder: Path, ground: collecting.Ground, stop_at: int) -> str:
    """One trial of collecting; what the process was about to do when it was stopped."""
    collecting.trial(_place(folder), ground, stop_at)
    return f"collect {ground.trail[stop_at - 1]}"


def main() -> None:
    """Run ``--count`` trials on ``--processes`` processes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    print(f"seed {seed}, {options.count} crash points", flush=True)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scenarios = prepare(folder)
        steps = sum(scenario.steps for scenario in scenarios)
        print(f"{steps} points, each with and without its catalog, then any of them at random", flush=True)
        wait_until_calm()
        tally: Tally[str] = Tally()
        ground = collecting.prepare(folder / "collecting")
        with ProcessPoolExecutor(options.processes) as pool:
            work = chain(
                pool.map(partial(one_collecting, folder, ground), range(1, ground.steps + 1), chunksize=8),
                pool.map(partial(one, folder, scenarios, seed), range(options.count), chunksize=8),
            )
            total = ground.steps + options.count
            for number, place in enumerate(track(work, total=total, description="crash points"), start=1):
                tally[place] += 1
                if number % 100 == 0:
                    print(f"{number} of {total}, 0 violations, {time.monotonic() - started:.0f} s", flush=True)
    for place, count in sorted(tally.items()):
        print(f"{count:6} {place}")
    print(f"{sum(tally.values())} stopped and restarted, 0 violations, {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
