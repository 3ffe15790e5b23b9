"""``python -m tests.fuzz``: many damaged archives; prints its seed and what became of them."""

from __future__ import annotations

import argparse
import random
from collections import Counter

from tests.fuzz.tars import one


def main() -> None:
    """Run ``--count`` archives; each has a seed of its own, made of ``--seed`` and its number."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if arguments.seed is None else arguments.seed
    print(f"seed {seed}")
    seen: Counter[str] = Counter()
    for number in range(arguments.count):
        try:
            seen[one(random.Random(f"{seed}/{number}"))] += 1
        except BaseException as error:
            raise RuntimeError(f"archive {number} of seed {seed}") from error
    print(", ".join(f"{count} {what}" for what, count in sorted(seen.items())))


if __name__ == "__main__":
    main()
