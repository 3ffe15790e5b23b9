"""A short form of ``make fuzz``, with another seed each time."""

from __future__ import annotations

import random

from tests.fuzz.tars import one


def test_damaged_archives() -> None:
    seed = random.SystemRandom().randrange(2**32)
    seen = set()
    for number in range(600):
        try:
            seen.add(one(random.Random(f"{seed}/{number}")))
        except BaseException as error:
            raise AssertionError(f"archive {number} of seed {seed}: make fuzz repeats it with --seed {seed}") from error
    assert seen == {"indexed", "refused"}
