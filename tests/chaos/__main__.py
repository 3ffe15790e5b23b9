"""``python -m tests.chaos``: many random crash points, on all scenarios; prints its seed."""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections import Counter as Tally
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from rich.progress import track

from tests.chaos import collecting
from tests.chaos.trial import Scenario, prepare, trial
from tests.support.corpus import wait_until_calm


def one(folder: Path, scenarios: list[Scenario], seed: int, number: int) -> str:
    """One random trial; what the process was about to do when it was stopped."""
    chance = random.Random(f"{seed}/{number}")
    scenario = chance.choice(scenarios)
    stop_at = chance.randint(1, scenario.steps)
    place = folder / f"trial-{number}"
    place.mkdir()
    try:
        trial(place, scenario, stop_at)
    except BaseException as error:
        raise RuntimeError(f"{scenario.name}, stopped at {stop_at} of {scenario.steps}, seed {seed}") from error
    place.rmdir()
    return f"{scenario.name} {scenario.trail[stop_at - 1]}"


def main() -> None:
    """Run ``--count`` trials on ``--processes`` processes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    print(f"seed {seed}, {options.count} crash points")
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scenarios = prepare(folder)
        wait_until_calm()
        tally: Tally[str] = Tally()
        with ProcessPoolExecutor(options.processes) as pool:
            work = pool.map(partial(one, folder, scenarios, seed), range(options.count), chunksize=8)
            for place in track(work, total=options.count, description="crash points"):
                tally[place] += 1
        ground = collecting.prepare(folder / "collecting")
        for stop_at in track(range(1, ground.steps + 1), description="crash points of collecting"):
            collecting.trial(folder, ground, stop_at)
            tally[f"collect {ground.trail[stop_at - 1]}"] += 1
    for place, count in sorted(tally.items()):
        print(f"{count:6} {place}")
    print(f"{sum(tally.values())} stopped and restarted, 0 violations, {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
