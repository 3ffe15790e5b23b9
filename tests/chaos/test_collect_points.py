"""Collecting, stopped at every step that changes the disk or the catalog, and proof that the checks can fail."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest
from sqlalchemy import true

from blendex.catalog import waste
from blendex.errors import BlendexError
from blendex.mirrors import collect
from blendex.storage.root import Root
from tests.chaos import collecting
from tests.chaos.collecting import Ground, prepare, trial

COUNT = 6


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    return prepare(tmp_path_factory.mktemp("collecting"))


def test_the_trail_holds_every_step_of_the_protocol(ground: Ground) -> None:
    assert {"mkdir", "commit", "fsync", "chmod", "rename", "unlink"} <= set(ground.trail)
    assert ground.trail.count("rename") == 6  # two mirrors, two folders of builds, a receipt, an object


def test_stopped_anywhere_what_is_held_stays_and_a_restart_ends_well(ground: Ground, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    for stop_at in random.Random(seed).sample(range(1, ground.steps + 1), min(COUNT, ground.steps)):
        print(f"seed {seed}: stopped before change {stop_at} of {ground.steps} ({ground.trail[stop_at - 1]})")
        trial(tmp_path, ground, stop_at)


@pytest.mark.long
def test_stopped_at_every_step(ground: Ground, tmp_path: Path) -> None:
    all_of(tmp_path, ground, range(1, ground.steps + 1))


def test_the_checks_see_a_hold_that_is_not_looked_at(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted mistake: pins and jobs hold nothing."""
    monkeypatch.setattr(waste.holds, "nobody", lambda _session: true())
    with pytest.raises(AssertionError):
        trial(tmp_path, ground, ground.steps)


def test_the_checks_see_a_mirror_that_is_deleted_where_it_stands(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted mistake: no rename, and so a partial mirror at some instant."""

    def bury(self: Root, path: str, grave: str) -> bool:
        list(collect._removed(path))
        return True

    monkeypatch.setattr(Root, "bury", bury)
    counter = collecting.Counter()
    calm = tmp_path / "calm"
    shutil.copytree(ground.before, calm, symlinks=True)
    collecting.run(calm, counter)
    with pytest.raises((AssertionError, BlendexError)):
        all_of(tmp_path, ground, range(counter.trail.index("unlink") + 2, counter.count, 3))


def all_of(folder: Path, ground: Ground, points: Iterable[int]) -> None:
    for stop_at in points:
        trial(folder, ground, stop_at)
