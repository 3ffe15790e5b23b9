"""A short storm, and proof that each check can fail."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from blendex.builds.run import run_build, work_until_ended
from blendex.builds.submit import submit
from blendex.catalog import units
from tests.storm import checks
from tests.storm.checks import ViolationError
from tests.storm.corpus import POISONS
from tests.storm.plant import StormSlots, work_not_shared
from tests.storm.rounds import one, prepare, table
from tests.storm.storm import MIB, Storm, reads
from tests.support import corpus, services
from tests.support.inline import InlineRunner

# Less than a plan is promised: it runs alone, with all of it; of index units of 160 MiB two fit.
HEAVY_BUDGET_MB = 400


def pytest_runtest_setup() -> None:
    if not (services.has_postgres() and services.has_redis()) and not os.environ.get("CI"):
        pytest.skip("PostgreSQL or Redis is not installed: apt-get install postgresql redis-server")


@pytest.mark.long
def test_a_short_storm_changes_nothing_but_time(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    storm = short(tmp_path, seed, shards=40, each=2)
    print(table([storm]))
    assert sum(storm.kills.values()) >= 2


# Every check sees what it is there for: a mistake planted into the workers, or its trace into a folder.


@pytest.mark.long
def test_workers_that_ignore_each_other_exceed_the_budget(tmp_path: Path) -> None:
    """Twelve heavy ones at a time, where three workers with two slots each think that they are alone."""
    with pytest.raises(ViolationError, match="are the budget"):
        heavy_only(tmp_path, bug="ledger ignored")


@pytest.mark.long
def test_the_same_workers_with_their_ledger_keep_the_budget(tmp_path: Path) -> None:
    heavy_only(tmp_path, bug=None)


@pytest.mark.long
@pytest.mark.parametrize(
    ("bug", "told"),
    [
        ("poison blamed on the worker", "left out"),
        ("holds ignored", "sidecars differ|is failed"),
    ],
)
def test_a_planted_mistake_is_seen(tmp_path: Path, bug: str, told: str) -> None:
    with pytest.raises(ViolationError, match=told):
        short(tmp_path, 7, shards=60, each=3, bug=bug)


@pytest.mark.parametrize("shared", [True, False])
def test_work_that_is_done_twice_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool) -> None:
    """Two builds of the same sources, planned before either reads: one reads for both, unless nobody asks."""
    for name in ("under_way", "announce"):
        monkeypatch.setattr(units, name, getattr(units, name))  # so that it is put back
    if not shared:
        work_not_shared()
    blend = corpus.corpus(tmp_path / "data", shards=2)
    journal = tmp_path / "journal"
    journal.touch()
    site = corpus.site(tmp_path / "root")
    first, second = (
        submit(site, corpus.submission(text, tmp_path))[0].id for text in (blend, blend.replace("0.5", "0.7"))
    )
    for build in (first, second):
        work_until_ended(site, build, runner=StormSlots(1, str(journal), 0.0))
    site.work.engine.dispose()
    read = reads(journal)[0]
    assert read == (4 if shared else 8)
    with contextlib.nullcontext() if shared else pytest.raises(ViolationError, match="8 sources were read"):
        checks.work_bounded(read, 4, killed=0)


def test_a_partial_mirror_a_changed_byte_and_a_wrong_reason_are_seen(tmp_path: Path) -> None:
    with site_of_one_build(tmp_path) as (root, build):
        key = str(build["mirror"])
        checks.whole(root, {key})
        checks.build_as_calm(root, build, build)
        with pytest.raises(ViolationError, match="too many or missing"):
            checks.whole(root, {key, "0" * 64})
        other = tmp_path / "other"
        shutil.copytree(str(build["path"]), other)
        victim = next(path for path in (other / "idx").rglob("*.idx"))
        victim.parent.chmod(0o755)
        victim.chmod(0o644)
        victim.write_bytes(victim.read_bytes()[:-1] + b"\1")
        with pytest.raises(ViolationError, match="sidecars differ"):
            checks.build_as_calm(root, build, build | {"path": str(other)})
        Path(str(build["path"])).chmod(0o755)
        with pytest.raises(ViolationError, match="can be written to"):
            checks.whole(root, {key})
        Path(str(build["path"])).chmod(0o555)
        (root / "names" / ".x.123").touch()
        with pytest.raises(ViolationError, match="temporary files"):
            checks.whole(root, {key})
    named = [{"problem": {"file": f"/x/{name}.json", "code": code}} for name, code in POISONS.items()]
    checks.poisons_named(named, POISONS)
    with pytest.raises(ViolationError):
        checks.poisons_named(named[1:], POISONS)
    with pytest.raises(ViolationError):
        checks.poisons_named([*named, {"problem": {"file": "/x/innocent.json", "code": "child_died"}}], POISONS)
    with pytest.raises(ViolationError):
        checks.work_bounded(1400, 1000, 99)
    checks.work_bounded(1400, 1000, 100)


def test_a_private_file_and_a_child_that_stay_are_seen(tmp_path: Path) -> None:
    with site_of_one_build(tmp_path) as (root, _):
        site = corpus.site(root)
        checks.at_rest(site, root, 1)
        (root / "staging" / "left").touch()
        with pytest.raises(ViolationError, match="staging"):
            checks.at_rest(site, root, 0.5)
        site.work.engine.dispose()
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "tests.storm.nobody"])
    with pytest.raises(ViolationError, match=str(left.pid)):
        checks.no_child_left("tests.storm.nobody", 1)
    left.kill()
    left.wait()
    checks.no_child_left("tests.storm.nobody", 1)


@contextlib.contextmanager
def site_of_one_build(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    site = corpus.site(folder / "root")
    built = run_build(site, corpus.submission(corpus.corpus(folder / "data"), folder), runner=InlineRunner())
    site.work.engine.dispose()
    yield folder / "root", built


def short(folder: Path, seed: int, *, shards: int, each: int, bug: str | None = None) -> Storm:
    """A storm of a minute over two builds."""
    for name in ("ground", "storm"):
        (folder / name).mkdir()
    ground = prepare(folder / "ground", shards=shards, variants=1)
    return one(folder / "storm", ground, seed, each=each, seconds=60, bug=bug)


def heavy_only(folder: Path, bug: str | None) -> None:
    """A build of heavy sources alone on three workers, and the check of the budget."""
    data = folder / "data"
    blend = "".join(
        f"- {{type: nemo, manifest_filepath: {corpus.put(data / f'heavy-{number}.json', corpus.manifest(2))}}}\n"
        for number in range(64)
    )
    storm = Storm(folder, 1, pause=0.0, bug=bug, budget_mb=HEAVY_BUDGET_MB)
    try:
        storm.start(apis=1)
        build = storm.ended(storm.post(blend, data), 120)
        assert build["state"] == "ready", build
        print(f"{storm.most_used / MIB:.0f} MiB at most in {storm.samples} samples, budget {HEAVY_BUDGET_MB} MiB")
        checks.budget_kept(storm.most_used, HEAVY_BUDGET_MB * MIB)
    finally:
        storm.close()
