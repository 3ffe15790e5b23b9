"""``python -m tests.storm``: storms until there were enough kills in every place; prints its seed and a table."""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

from tests.storm.rounds import one, prepare, table
from tests.storm.storm import PLACES, Storm


def main() -> None:
    """Blow until ``--kills`` in all and ``--each`` in every place."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--each", type=int, default=20)
    parser.add_argument("--shards", type=int, default=1000)
    parser.add_argument("--variants", type=int, default=12)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    began = time.monotonic()
    storms: list[Storm] = []

    def kills(place: str) -> int:
        return sum(storm.kills[place] for storm in storms)

    each = -(-options.kills // len(PLACES) // 3)
    with tempfile.TemporaryDirectory(prefix="blendex-storm-") as ground_name:
        ground = prepare(Path(ground_name), shards=options.shards, variants=options.variants)
        print(f"calm builds: {time.monotonic() - began:.0f} s", flush=True)
        while sum(map(kills, PLACES)) < options.kills or min(map(kills, PLACES)) < options.each:
            number = len(storms)
            with tempfile.TemporaryDirectory(prefix="blendex-storm-") as name:
                storm = one(Path(name), ground, seed + number, each=each, seconds=400)
            storms.append(storm)
            print(f"storm {number}, seed {seed + number}: {dict(storm.kills)}, {storm.seconds:.0f} s", flush=True)
    print(table(storms))
    print(f"{len(storms)} storms, 0 violations, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
