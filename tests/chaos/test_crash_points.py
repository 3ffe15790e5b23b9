"""A hundred crash points, every kind of them, and proof that the checks can fail."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from tests.chaos import trial as trials
from tests.chaos.trial import LOST_SHARE, Scenario, check_mirrors, prepare, trial
from tests.support.corpus import sidecars, wait_until_calm

pytestmark = pytest.mark.slow

SHARES = 4
COUNT = 30


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory: pytest.TempPathFactory) -> list[Scenario]:
    made = prepare(tmp_path_factory.mktemp("chaos"))
    wait_until_calm()
    return made


@pytest.mark.parametrize("share", range(SHARES))
def test_stopped_anywhere_nothing_partial_is_seen_and_a_restart_ends_well(
    scenarios: list[Scenario], tmp_path: Path, share: int
) -> None:
    seed = random.SystemRandom().randrange(2**32)
    chance = random.Random(seed)
    for _ in range(COUNT):
        scenario = chance.choice(scenarios)
        stop_at = chance.randint(1, scenario.steps)
        lost = chance.random() < LOST_SHARE
        what = f"{scenario.name} stopped before change {stop_at} ({scenario.trail[stop_at - 1]})"
        print(f"seed {seed}: {what}{', its catalog lost' * lost}")
        trial(tmp_path, scenario, stop_at, lost=lost)


def test_the_trail_holds_every_step_of_the_protocols(scenarios: list[Scenario]) -> None:
    first = next(item for item in scenarios if item.name == "first")
    assert {"create", "write", "fsync", "link", "rename", "mkdir", "chmod", "unlink", "commit"} <= set(first.trail)
    assert first.steps > 60


def test_the_checks_see_a_publish_that_is_not_one_rename(
    scenarios: list[Scenario], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted bug: the mirror is copied into place instead of renamed. Some crash point must show it."""
    first = next(item for item in scenarios if item.name == "first")
    real = os.rename

    def copied(source: str, target: str) -> None:
        if os.path.isdir(source) and "/mirrors/" in target:
            os.mkdir(target)
            for name in ("READY", "receipt.json", "sources.jsonl", "idx"):
                os.utime(target)  # a counted change between two that are not
                real(os.path.join(source, name), os.path.join(target, name))
        else:
            real(source, target)

    monkeypatch.setattr(trials, "_forked", lambda *arguments: _with_bug(copied, *arguments))
    found = 0
    start = first.trail.index("chmod")
    for stop_at in range(start, first.steps):
        try:
            trial(tmp_path, first, stop_at, lost=False)
        except BaseException:
            found += 1
            break
    assert found


def _with_bug(copied: object, root: Path, scenario: Scenario, stop_at: int) -> None:
    os.rename = copied  # type: ignore[assignment] -- in the forked process only
    trials._run(root, scenario.submission, trials.Counter(stop_at))


def test_the_checks_see_a_missing_sidecar(scenarios: list[Scenario], tmp_path: Path) -> None:
    root = tmp_path / "root"
    delta = next(item for item in scenarios if item.name == "delta")
    shutil.copytree(delta.before, root)
    mirror = next((root / "mirrors").iterdir())
    check_mirrors(root)
    victim = mirror / "idx" / next(iter(sidecars(mirror)))
    victim.parent.chmod(0o755)
    victim.unlink()
    victim.parent.chmod(0o555)
    with pytest.raises(AssertionError):
        check_mirrors(root)
