"""Crash points of collecting: a root with something for every step, stopped anywhere, started again, checked."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import text

from blendex.builds import keeping
from blendex.builds.resolve import Resolver
from blendex.builds.run import run_build
from blendex.builds.site import Site
from blendex.builds.uses import Uses
from blendex.catalog.models import Object
from blendex.mirrors import holds
from blendex.units.receipt import read_receipt
from blendex.units.verify import run as verify
from tests.chaos.crash import Counter, in_child
from tests.chaos.opening import opened
from tests.support.aging import age
from tests.support.corpus import corpus, submission
from tests.support.inline import InlineRunner

DYING, STRAY = "0" * 64 + ".bundle", "1" * 64 + ".bundle"


@dataclass(frozen=True)
class Ground:
    """A root in which two mirrors are due, one is to be condemned, and three are held."""

    before: Path
    due: tuple[dict[str, Any], ...]
    held: tuple[dict[str, Any], ...]
    fresh: dict[str, Any]
    steps: int
    trail: tuple[str, ...]


def _build(place: Site, data: Path, which: str, **values: Any) -> dict[str, Any]:
    return run_build(place, submission(corpus(data, 1, name=which), data, **values), runner=InlineRunner())


def prepare(folder: Path) -> Ground:
    """The ground, and how many changes collecting makes on it when nobody stops it."""
    data, before = folder / "data", folder / "before"
    place = opened(before)
    due = tuple(_build(place, data, name) for name in ("due1", "due2"))
    named = _build(place, data, "named", name="stable")
    pinned, jobbed = _build(place, data, "pinned"), _build(place, data, "jobbed")
    age(place)
    keeping.take(place, pinned["mirror"], holds.pin("ada", "the paper"))
    keeping.take(place, jobbed["mirror"], holds.job("4711", None))
    with place.work.write() as session:
        session.execute(text("UPDATE mirrors SET used_at = 0"))
        for name in (DYING, STRAY):
            session.add(Object(name=name, size=1, state="live", created_at=0.0))
    keeping.collected(place, dry=False)
    fresh = _build(place, data, "fresh")
    age(place)
    with place.work.write() as session:
        session.execute(text("UPDATE objects SET state = 'live' WHERE name = :name"), {"name": STRAY})
        session.execute(text("UPDATE holds SET until = 9e9 WHERE kind = 'job'"))
        # Held after they were condemned, as far as the mark goes: only looking at the holds themselves saves them.
        for built in (named, pinned, jobbed):
            session.execute(
                text("UPDATE mirrors SET state = 'condemned', condemned_at = 0 WHERE key = :key"),
                {"key": built["mirror"]},
            )
    for name in (DYING, STRAY):
        path = Path(place.root.object(name))
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    os.unlink(place.root.receipt(due[0]["mirror"]))  # never archived: its collector does that
    place.work.engine.dispose()
    calm = folder / "calm"
    shutil.copytree(before, calm, symlinks=True)
    counter = Counter()
    run(calm, counter)
    return Ground(before, due, (named, pinned, jobbed), fresh, counter.count, tuple(counter.trail))


def run(root: Path, counter: Counter | None = None) -> dict[str, Any]:
    """Collect once."""
    place = opened(root)
    try:
        if counter is None:
            return keeping.collected(place, dry=False)
        counter.watch(place.work.engine)
        with counter.patched():
            return keeping.collected(place, dry=False)
    finally:
        place.work.engine.dispose()


def _at(root: Path, built: dict[str, Any]) -> Path:
    return root / "mirrors" / str(built["mirror"])


def check(root: Path, ground: Ground) -> None:
    """What is true at every instant: held mirrors are whole, the others whole or gone, and answers say which."""
    for mirror in (root / "mirrors").iterdir():
        assert not verify({"mirror": str(mirror), "sources": False}, lambda _: None)["faults"], mirror
    for built in (*ground.held, ground.fresh):
        assert _at(root, built).exists(), f"{built['id']} is held and gone"
    place = opened(root)
    resolver = Resolver(place)
    for built in (*ground.due, *ground.held, ground.fresh):
        answer = resolver.build(built["id"])
        if answer.state == "ready":
            assert answer.path is not None
            read_receipt(answer.path, answer.key)
        else:
            assert answer.state == "collected"
            assert built in ground.due
            assert os.path.exists(place.root.receipt(built["mirror"])), "its receipt outlives it"
    place.work.engine.dispose()


def trial(folder: Path, ground: Ground, stop_at: int) -> None:
    """Stop collecting before its ``stop_at``-th change, look; want one of what was due, collect again, look again."""
    root = folder / "root"
    shutil.copytree(ground.before, root, symlinks=True)
    status = in_child(lambda: run(root, Counter(stop_at)))
    assert status in (0, -9), f"stopped at {stop_at}: exit status {status}"
    check(root, ground)
    wanted = ground.due[stop_at % 2]
    place = opened(root)
    resolver = Resolver(place)
    kept = Uses(place).keep(resolver.build(wanted["id"]), holds.chain("late"))
    assert (kept.state == "ready") == _at(root, wanted).exists()
    with place.work.write() as session:
        session.execute(text("UPDATE mirrors SET used_at = 0"))
    place.work.engine.dispose()
    done = run(root)
    assert not done["kept"], done
    check(root, ground)
    assert _at(root, wanted).exists() == (kept.state == "ready")
    assert not _at(root, ground.due[1 - stop_at % 2]).exists()
    assert not os.path.exists(root / "objects/00" / DYING)
    place = opened(root)
    for built in ground.due:
        assert (Resolver(place).build(built["id"]).state == "ready") == _at(root, built).exists()
        assert (root / "builds" / built["id"]).exists() == _at(root, built).exists()
    with place.work.read() as session:
        assert session.execute(text("SELECT count(*) FROM mirrors WHERE state = 'collecting'")).scalar_one() == 0
    place.work.engine.dispose()
    shutil.rmtree(root)
