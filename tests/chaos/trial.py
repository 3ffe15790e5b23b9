"""One trial: a scenario, a crash point, a restart, and the checks of promises 2 and 3."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import text

from blendex.builds import reap
from blendex.builds.run import run_build
from blendex.builds.submission import Submission
from blendex.formats.packreader import PackReader
from blendex.formats.packreader import verify as prove
from blendex.units.verify import run as verify
from tests.chaos.crash import Counter, in_child
from tests.chaos.opening import opened
from tests.support.corpus import corpus, empty_catalog, sidecars, submission
from tests.support.inline import InlineRunner

LOST_SHARE = 0.25  # of random trials


@dataclass(frozen=True)
class Scenario:
    """A root as it was before, and the submission whose build is interrupted."""

    name: str
    before: Path  # a root to copy
    submission: Submission
    key: str
    expected: dict[str, bytes]
    steps: int  # changes that a calm run makes
    trail: tuple[str, ...]


def prepare(folder: Path) -> list[Scenario]:
    """Four scenarios: the first mirror of a root, a delta on it, a hit after a touch, packs of what is known."""
    data = folder / "data"
    first = corpus(data, shards=2, name="a")
    second = first + corpus(data, shards=1, name="b")
    third = corpus(data, shards=1, name="c")
    empty = folder / "empty"
    opened(empty).work.engine.dispose()
    one = folder / "one"
    _calm(one, submission(first, data, name="stable"))
    touched = folder / "touched"
    _calm(touched, submission(third, data))
    future = 4_000_000_000_000_000_000  # a source from the future: its sidecar's time must be raised beyond now
    os.utime(data / "c/manifest_0.json", ns=(future, future))
    return [
        _scenario(folder, "first", empty, submission(first, data, name="stable")),
        _scenario(folder, "delta", one, submission(second, data, name="stable")),
        _scenario(folder, "touch", touched, submission(third, data)),
        _scenario(folder, "packs", one, submission(second, data, packs="all")),
    ]


def _run(root: Path, what: Submission, counter: Counter | None = None) -> dict[str, Any]:
    place = opened(root)
    if counter is not None:
        counter.watch(place.work.engine)
        with counter.patched():
            result = run_build(place, what, runner=InlineRunner())
    else:
        result = run_build(place, what, runner=InlineRunner())
    place.work.engine.dispose()
    return result


def _calm(root: Path, what: Submission) -> dict[str, Any]:
    result = _run(root, what)
    assert result["state"] == "ready", result
    return result


def _scenario(folder: Path, name: str, before: Path, what: Submission) -> Scenario:
    root = folder / f"calm-{name}"
    _copy(before, root)
    counter = Counter()
    result = _run(root, what, counter)
    assert result["state"] == "ready", result
    return Scenario(name, before, what, result["mirror"], _held(result["path"]), counter.count, tuple(counter.trail))


def _held(mirror: str) -> dict[str, bytes]:
    """Sidecars and packs."""
    return sidecars(mirror) | {f"packs/{path.name}": path.read_bytes() for path in Path(mirror, "packs").glob("*")}


def _check_packs(root: Path) -> None:
    """No partial pack is visible: every object that calls itself one is whole."""
    for path in (root / "objects").rglob("*.idxpack"):
        with PackReader(str(path)) as pack:
            prove(pack)
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.stem


def _copy(before: Path, root: Path) -> None:
    shutil.copytree(before, root, symlinks=True)


def check_mirrors(root: Path) -> None:
    """Promise 2 and 3: whatever stands under mirrors/ is whole, and nobody can write to it."""
    for mirror in (root / "mirrors").iterdir():
        result = verify({"mirror": str(mirror), "sources": False}, lambda _: None)
        assert not result["faults"], result
        assert result["key"] == mirror.name
        for path in mirror.rglob("*"):
            mode = stat.S_IMODE(path.stat().st_mode)
            assert mode == (0o555 if path.is_dir() else 0o444), (path, oct(mode))
    for pointer in (root / "builds").glob("*/path"):
        assert Path(pointer.read_text().strip(), "READY").exists(), pointer
    for name in (root / "names").iterdir():
        if "." not in name.name:
            assert Path(name.read_text().strip(), "READY").exists(), name


def trial(folder: Path, scenario: Scenario, stop_at: int, *, lost: bool) -> None:
    """Stop ``scenario`` before its ``stop_at``-th change, restart, check everything.

    ``lost``: it is restarted without its catalog; else the dead worker's leases have run out.
    """
    root = folder / "root"
    _copy(scenario.before, root)
    status = in_child(lambda: _forked(root, scenario, stop_at))
    assert status in (0, -9), f"{scenario.name} at {stop_at}: exit status {status}"
    check_mirrors(root)
    if lost:
        _lose_catalog(root)
    else:
        _expire(root)
    result = _run(root, scenario.submission)
    assert result["state"] == "ready", result
    assert result["mirror"] == scenario.key
    assert _held(result["path"]) == scenario.expected
    _check_packs(root)
    check_mirrors(root)
    assert os.stat(result["path"]).st_mode & 0o777 == 0o555
    if scenario.submission.name:
        assert (root / "names" / scenario.submission.name).read_text().strip() == result["path"]
    place = opened(root)
    if not lost:
        reap.reap(place)
        assert sorted(os.listdir(root / "staging")) == []
    place.work.engine.dispose()
    if scenario.name == "touch":
        for path in Path(result["path"]).rglob("*.idx"):
            if path.name.startswith("manifest_0"):
                assert path.stat().st_mtime_ns >= 4_000_000_000_000_000_000
    shutil.rmtree(root)


def _forked(root: Path, scenario: Scenario, stop_at: int) -> None:
    _run(root, scenario.submission, Counter(stop_at))


def _expire(root: Path) -> None:
    """Time passes: the dead worker's leases run out."""
    place = opened(root)
    with place.work.write() as session:
        session.execute(text("UPDATE units SET lease_until = 0 WHERE state = 'leased'"))
    place.work.engine.dispose()


def _lose_catalog(root: Path) -> None:
    """In its place, one as the first opening makes it: the migrations themselves are tested elsewhere."""
    for path in root.glob("catalog.sqlite*"):
        path.unlink()
    shutil.copyfile(empty_catalog(), root / "catalog.sqlite")
