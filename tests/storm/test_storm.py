"""A short storm, and proof that each check can fail."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.storm.rounds import one, table
from tests.support import services


def pytest_runtest_setup() -> None:
    if not (services.has_postgres() and services.has_redis()) and not os.environ.get("CI"):
        pytest.skip("PostgreSQL or Redis is not installed: apt-get install postgresql redis-server")


def test_a_short_storm_changes_nothing_but_time(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    storm = one(tmp_path, seed, shards=60, variants=1, each=2, seconds=60)
    print(table([storm]))
    assert sum(storm.kills.values()) >= 2
