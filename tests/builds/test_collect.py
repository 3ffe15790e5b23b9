"""What is held stays, whatever collects; what nobody holds goes in two steps, and comes back from its bundles."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, text

from blendex.builds import control, disk, keeping, naming, reap
from blendex.builds.answers import Answer
from blendex.builds.resolve import Resolver
from blendex.builds.run import run_build
from blendex.builds.site import Site
from blendex.builds.submit import submit
from blendex.builds.uses import Uses
from blendex.catalog import backup, mirrors, usage, waste
from blendex.catalog.dialect import open_engine
from blendex.catalog.models import Hold, Mirror, Object
from blendex.errors import BlendexError, Code
from blendex.mirrors import collect, holds
from blendex.mirrors.holds import is_there
from blendex.runtime.slots import Call
from blendex.storage.root import Root
from tests.support.aging import age
from tests.support.corpus import corpus, sidecars, submission, wait_until_calm
from tests.support.inline import InlineRunner

OpenSite = Callable[..., Site]
DAY = 24 * 3600.0
Half = tuple[Site, dict[str, Any], Callable[[], bool]]
on_sqlite = pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)


def blend_of(folder: Path, which: str) -> str:
    """The blend of a small dataset, written once: written again its files would be others."""
    kept = folder / f"{which}.yaml"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(corpus(folder, 2, name=which))
    return kept.read_text()


def build(site: Site, folder: Path, which: str, **values: Any) -> dict[str, Any]:
    """A small mirror of its own."""
    return run_build(site, submission(blend_of(folder, which), folder, **values), runner=InlineRunner())


def run(site: Site) -> dict[str, Any]:
    return keeping.collected(site, dry=False)


def condemned_and_due(site: Site) -> None:
    """Mark what nobody holds, and let the days pass."""
    age(site)
    run(site)
    age(site)


def state_of(site: Site, key: str) -> str:
    with site.work.read() as session:
        row = mirrors.get(session, key)
        assert row is not None
        return row.state


def test_what_nobody_holds_goes_in_two_steps_and_what_is_held_stays(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    named = build(site, data, "named", name="stable")
    pinned, jobbed, chained, lost = (build(site, data, name) for name in ("pinned", "jobbed", "chained", "lost"))
    age(site)
    keeping.take(site, pinned["mirror"], holds.pin("ada", "the paper"))
    with site.work.read() as session:
        now = mirrors.get(session, pinned["mirror"]).used_at  # type: ignore[union-attr]
    keeping.take(site, jobbed["mirror"], holds.job("4711_3", str(int(now + 3 * DAY))))
    keeping.take(site, chained["mirror"], holds.chain("granary"))
    with site.work.write() as session:  # a hold is enough: nobody has asked for them lately
        session.execute(text("UPDATE mirrors SET used_at = used_at - 9000000"))
    first = run(site)
    assert (first["condemned"], first["mirrors"]) == (1, [])
    assert state_of(site, lost["mirror"]) == "condemned"
    assert Resolver(site).build(lost["id"]).state == "ready"
    plan = keeping.collected(site, dry=True)
    assert (plan["collect"], plan["condemn"]) == ([], [])
    with site.work.write() as session:
        session.execute(text("UPDATE mirrors SET condemned_at = condemned_at - 9000000"))
    plan = keeping.collected(site, dry=True)
    assert [row["key"] for row in plan["collect"]] == [lost["mirror"]]
    assert Path(lost["path"]).exists()
    assert run(site)["mirrors"] == [lost["mirror"]]
    assert not Path(lost["path"]).exists()
    assert not (Path(site.root.path) / "builds" / lost["id"]).exists()
    assert Path(site.root.receipt(lost["mirror"])).exists()
    for kept in (named, pinned, jobbed, chained):
        assert Resolver(site).build(kept["id"]).state == "ready"
    gone = Resolver(site).build(lost["id"])
    assert (gone.state, gone.key) == ("collected", lost["mirror"])
    assert Resolver(site).mirror(lost["mirror"]).state == "collected"
    # A job that ended holds nothing; a name that moved on, neither.
    keeping.release(site, chained["mirror"], "chain", "granary")
    naming.point(site, "stable", pinned["id"])
    condemned_and_due(site)
    assert set(run(site)["mirrors"]) == {named["mirror"], jobbed["mirror"], chained["mirror"]}
    assert [item.name for item in Path(site.root.path, "mirrors").iterdir()] == [pinned["mirror"]]


@on_sqlite
def test_the_same_submission_is_built_again_from_its_bundles(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    blend_of(data, "a")
    wait_until_calm()
    first = build(site, data, "a")
    before = sidecars(first["path"])
    condemned_and_due(site)
    assert run(site)["mirrors"] == [first["mirror"]]
    again = build(site, data, "a")
    assert (again["state"], again["mirror"], again["reused"]) == ("ready", first["mirror"], first["sources"])
    assert sidecars(again["path"]) == before
    assert state_of(site, first["mirror"]) == "published"
    # Its old build is gone for good: its ready blend went with the mirror.
    assert Resolver(site).build(first["id"]).state == "collected"
    assert Resolver(site).build(again["id"]).state == "ready"


@on_sqlite
def test_a_look_up_revives_and_keeps_for_a_day(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    built = build(site, data, "a")
    condemned_and_due(site)
    assert state_of(site, built["mirror"]) == "condemned"
    resolver = Resolver(site)
    assert Uses(site).keep(resolver.build(built["id"])).state == "ready"
    assert state_of(site, built["mirror"]) == "published"
    assert (run(site)["condemned"], state_of(site, built["mirror"])) == (0, "published")
    age(site, 2 * DAY)
    assert run(site)["condemned"] == 1


@on_sqlite
def test_a_hit_and_a_name_keep_what_is_condemned(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    hit, named = build(site, data, "hit"), build(site, data, "named")
    condemned_and_due(site)
    assert build(site, data, "hit")["mirror"] == hit["mirror"]
    naming.point(site, "stable", named["id"])
    assert run(site)["mirrors"] == []
    assert is_there(site.root, hit["mirror"])
    assert is_there(site.root, named["mirror"])


class CollectsMeanwhile(InlineRunner):
    """Collects, with all patience gone, before and after every call of a child that publishes."""

    def __init__(self, site: Site) -> None:
        super().__init__()
        self.site = site
        self.seen: list[list[str]] = []

    def start(self, call: Call) -> int:
        for _ in range(2):
            if call.function.startswith("blendex.units.stage"):
                self._collect()
        ticket = super().start(call)
        if call.function.startswith("blendex.units.stage"):
            self._collect()
        return ticket

    def _collect(self) -> None:
        condemned_and_due(self.site)
        self.seen.append(run(self.site)["mirrors"])


def test_what_a_running_build_found_or_published_is_not_collected_under_it(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    first = build(site, data, "a")
    runner = CollectsMeanwhile(site)
    again = run_build(site, submission(blend_of(data, "a"), data), runner=runner)
    assert (again["state"], again["mirror"]) == ("ready", first["mirror"])
    assert runner.seen
    assert not any(runner.seen), runner.seen
    with site.work.read() as session:
        assert [row.kind for row in session.execute(select(Hold)).scalars()] == ["build"]
    # Ended, it holds nothing.
    condemned_and_due(site)
    assert run(site)["mirrors"] == [first["mirror"]]
    with site.work.read() as session:
        assert session.execute(select(Hold)).all() == []


@on_sqlite
def test_a_mirror_that_nobody_told_of_is_found_and_goes_in_its_time(open_site: OpenSite, data: Path) -> None:
    """Published by a build that was cancelled before it could say so."""
    site = open_site()
    built = build(site, data, "a")
    with site.work.write() as session:
        session.execute(text("DELETE FROM mirrors"))
    age(site)
    assert run(site)["condemned"] == 0
    assert state_of(site, built["mirror"]) == "published"
    condemned_and_due(site)
    assert run(site)["mirrors"] == [built["mirror"]]


class Stopped(BaseException):
    """The collector is stopped here, for long."""


@pytest.fixture
def half(open_site: OpenSite, data: Path, monkeypatch: pytest.MonkeyPatch) -> Half:
    """A collector that decided, and was stopped before it moved anything; and its going on after all."""
    site = open_site()
    built = build(site, data, "a")
    condemned_and_due(site)
    moves: list[tuple[str, str]] = []

    def stop(self: Root, path: str, grave: str) -> bool:
        moves.append((path, grave))
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(Root, "bury", stop)
        with pytest.raises(Stopped):
            run(site)
    assert state_of(site, built["mirror"]) == "collecting"
    return site, built, lambda: site.root.bury(*moves[0])


def test_who_wants_a_mirror_stops_a_collector_that_sleeps(half: Half) -> None:
    site, built, go_on = half
    resolver = Resolver(site)
    wish = holds.job("4711", None)
    kept = Uses(site).keep(resolver.build(built["id"]), wish)
    assert (kept.state, kept.path) == ("ready", built["path"])
    assert state_of(site, built["mirror"]) == "published"
    assert go_on() is False
    assert is_there(site.root, built["mirror"])
    assert Path(built["path"]).stat().st_mode & 0o777 == 0o555


@on_sqlite
def test_a_collector_that_sleeps_is_in_nobodys_way(half: Half) -> None:
    """Another one collects under a grave of its own; the mirror is built anew; then the first one wakes up."""
    site, built, go_on = half
    assert run(site)["mirrors"] == [built["mirror"]]
    again = build(site, Path(built["file"]).parent, "a")
    assert again["mirror"] == built["mirror"]
    assert go_on() is False
    assert is_there(site.root, built["mirror"])


@on_sqlite
def test_who_comes_after_the_move_is_told_that_it_is_gone(half: Half) -> None:
    site, built, go_on = half
    resolver = Resolver(site)
    answer = resolver.build(built["id"])
    assert go_on() is True
    assert Uses(site).keep(answer, holds.chain("granary")).state == "collected"
    assert state_of(site, built["mirror"]) == "collected"
    with site.work.read() as session:
        assert session.execute(select(Hold).where(Hold.kind == "chain")).all() == []
    with pytest.raises(BlendexError, match="was collected"):
        naming.point(site, "stable", built["id"])


@on_sqlite
def test_nothing_goes_while_holds_may_be_unknown(open_site: OpenSite, data: Path, tmp_path: Path) -> None:
    """A backup older than one publish and one collect is restored."""
    site = open_site()
    blend_of(data, "new")
    wait_until_calm()
    old, kept = build(site, data, "old"), build(site, data, "kept")
    file = str(tmp_path / "backup.sqlite")
    condemned_and_due(site)
    backup.save(site.work.engine, file)
    # After the backup: a mirror is published, and held by a job; another one is held; the third is collected.
    new = build(site, data, "new")
    keeping.take(site, new["mirror"], holds.job("1", None))
    keeping.take(site, kept["mirror"], holds.job("2", None))
    assert run(site)["mirrors"] == [old["mirror"]]

    fresh = f"sqlite:///{tmp_path}/fresh.sqlite"
    engine = open_engine(fresh)
    backup.load(engine, file, site.root.path)
    engine.dispose()
    again = open_site(database_url=fresh)
    for _ in range(2):
        with again.work.write() as session:
            session.execute(text("UPDATE mirrors SET used_at = 0, condemned_at = 0 WHERE state != 'collected'"))
        done = run(again)
        assert done["rests"] > 40 * DAY
        assert done["mirrors"] == []
        with again.work.read() as session:
            assert not waste.is_due(session, kept["mirror"], collect.ages(again.settings))
    resolver, uses = Resolver(again), Uses(again)
    for built in (new, kept):
        assert uses.keep(resolver.mirror(built["mirror"])).path == built["path"]
        assert uses.keep(resolver.build(built["id"])).path == built["path"]
    assert resolver.build(old["id"]).state == "collected"
    assert resolver.mirror(old["mirror"]).state == "collected"
    assert state_of(again, old["mirror"]) == "collected"
    hit = build(again, data, "new")
    assert (hit["mirror"], hit["reused"]) == (new["mirror"], new["sources"])
    assert build(again, data, "old")["mirror"] == old["mirror"]
    # When the longest hold is over, collecting goes on.
    with again.work.write() as session:
        session.execute(text("UPDATE meta SET value = '0.0' WHERE key = 'adopted_at'"))
    condemned_and_due(again)
    assert set(run(again)["mirrors"]) == {built["mirror"] for built in (new, kept, old)}


@on_sqlite
def test_a_new_root_rests_from_nothing(open_site: OpenSite) -> None:
    with (site := open_site()).work.read() as session:
        assert waste.rests(session, collect.ages(site.settings)) == 0.0


def objects_of(site: Site) -> list[str]:
    return list(site.root.objects())


def test_objects_that_nothing_refers_to_go(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    build(site, data, "a")
    used = objects_of(site)
    stray = "0" * 64 + ".bundle"
    path = Path(site.root.object(stray))
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"x" * 100)
    with site.work.write() as session:
        session.add(Object(name=stray, size=100, state="live", created_at=0.0))
    with site.work.read() as session:
        assert usage.unreferenced_objects(session).bytes == 100
        assert disk.reclaimable(site, session)["unreferenced_objects"] == 100
    assert run(site)["objects_marked"] == 1
    assert run(site)["objects"] == 0  # marked only: somebody may just be about to use it
    with site.work.write() as session:
        session.execute(text("UPDATE objects SET dying_at = 0 WHERE state = 'dying'"))
    done = run(site)
    assert (done["objects"], done["bytes"]) == (1, 100)
    assert objects_of(site) == used
    with site.work.read() as session:
        assert set(session.execute(select(Object.name)).scalars()) == set(used)


class LosesObject(InlineRunner):
    """The first object of a unit was there already, dying, and goes before the unit is told."""

    def __init__(self, site: Site) -> None:
        super().__init__()
        self.site = site
        self.lost = 0

    def start(self, call: Call) -> int:
        ticket = super().start(call)
        if call.function.startswith("blendex.units.index") and not self.lost:
            outcome = self.outcomes.get()
            assert outcome.result is not None
            os.unlink(self.site.root.object(outcome.result["object"]))
            self.lost = 1
            self.outcomes.put(outcome)
        return ticket


@on_sqlite
def test_a_unit_whose_object_was_collected_is_done_again(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    runner = LosesObject(site)
    built = run_build(site, submission(corpus(data, 2), data), runner=runner)
    assert (built["state"], runner.lost) == ("ready", 1)
    assert sum(call.function.startswith("blendex.units.index") for call in runner.calls) == 2


@on_sqlite
def test_what_a_full_root_says_could_be_freed_is_what_collecting_frees(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    built = build(site, data, "a")
    build(site, data, "named", name="stable")
    with site.work.read() as session:
        before = disk.reclaimable(site, session)
        own = session.execute(select(Mirror.own_bytes).where(Mirror.key == built["mirror"])).scalar_one()
    assert (before["mirrors_that_nobody_holds"], before["condemned_mirrors"]) == (own, 0)
    condemned_and_due(site)
    with site.work.read() as session:
        marked = disk.reclaimable(site, session)
    assert (marked["mirrors_that_nobody_holds"], marked["condemned_mirrors"]) == (0, own)
    assert run(site)["bytes"] >= own
    trash = os.path.join(site.root.path, "trash")
    assert os.listdir(trash) == []
    # A grave that somebody may just have dug is left alone for a while.
    name = site.root.dig("0" * 64)
    assert collect.empty(site.root) == (0, 0)
    os.utime(os.path.join(trash, name), (0, 0))
    assert collect.empty(site.root) == (1, 0)
    assert os.listdir(trash) == []
    with site.work.read() as session:
        assert disk.reclaimable(site, session)["condemned_mirrors"] == 0


@on_sqlite
def test_the_reaper_collects_when_it_is_told_to_and_empties_the_trash(
    open_site: OpenSite, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet = open_site()
    built = build(quiet, data, "a")
    condemned_and_due(quiet)
    reap.reap(quiet)
    assert is_there(quiet.root, built["mirror"])
    site = open_site(collect_hours=1)
    with site.work.write() as session:  # the tests' own run was a moment ago
        session.execute(text("DELETE FROM meta WHERE key = 'collected_at'"))
    reap.reap(site)
    assert not is_there(site.root, built["mirror"])
    monkeypatch.setattr(collect, "GRAVE_SECONDS", 0.0)
    reap.reap(site)
    assert os.listdir(os.path.join(site.root.path, "trash")) == []
    again = build(site, data, "a")
    condemned_and_due(site)
    reap.reap(site)
    assert is_there(site.root, again["mirror"])  # an hour has not passed


def test_of_a_holder_and_a_collector_one_comes_first(open_site: OpenSite) -> None:
    """Two collectors and somebody who wants what they are after, all at once: held means there, and gone is told."""
    site = open_site()
    keys = [f"{number:064x}" for number in range(24)]
    counts = {"sources": 0, "records": 0, "bytes": 0, "sidecar_bytes": 0}
    with site.work.write() as session:
        for key in keys:
            os.mkdir(site.root.mirror(key))
            for path in (os.path.join(site.root.mirror(key), "READY"), site.root.receipt(key)):
                Path(path).touch()
            mirrors.add(session, key=key, source_set="s", content="c", counts=counts)
    condemned_and_due(site)
    uses = Uses(site)
    kept: dict[str, bool] = {}

    def want() -> None:
        for key in reversed(keys):
            kept[key] = uses.keep(Answer("ready", key=key), holds.job("1", None)).state == "ready"

    with ThreadPoolExecutor(3) as pool:
        work = [pool.submit(collect.run, site.work, site.root, collect.ages(site.settings)) for _ in range(2)]
        wanted = pool.submit(want)
        collected = [key for item in work for key in item.result().mirrors]
        wanted.result()
    assert {key for key in keys if is_there(site.root, key)} == {key for key in keys if kept[key]}
    assert sorted(collected) == sorted(set(collected))
    # One that was wanted just after it was moved is told by whoever wanted it.
    assert set(collected) <= {key for key in keys if not kept[key]}
    with site.work.read() as session:
        assert set(mirrors.standing(session)) == {key for key in keys if kept[key]}


@on_sqlite
def test_holds_that_cannot_be_granted_are_named(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    key = build(site, data, "a")["mirror"]
    for make, told in (
        (lambda: holds.job("a b", None), "no id of a job"),
        (lambda: holds.job("1", "tomorrow"), "no time"),
        (lambda: holds.job("1", "2030-01-31T18:00"), "no time"),
        (lambda: holds.job("1", "1000"), "in the past"),
        (lambda: holds.job("1", "9999999999"), "at most 14 days"),
        (lambda: holds.chain("../x"), "no name of a chain"),
        (lambda: holds.pin("ada", " "), "no reason"),
        (lambda: holds.pin("a\nb", "x"), "no holder"),
    ):
        with pytest.raises(BlendexError, match=told) as refused:
            keeping.take(site, key, make())
        assert refused.value.code == Code.BAD_REQUEST
    assert keeping.show(site, key)["holds"] == []
    with pytest.raises(BlendexError) as unknown:
        keeping.take(site, "0" * 64, holds.pin("ada", "x"))
    assert unknown.value.code == Code.NOT_FOUND
    for kind, holder in (("name", "stable"), ("build", "x")):
        with pytest.raises(BlendexError, match="not released"):
            keeping.release(site, key, kind, holder)
    with pytest.raises(BlendexError, match="there is no hold"):
        keeping.release(site, key, "pin", "nobody")


@on_sqlite
def test_who_holds_twice_holds_once_and_nobody_shortens_a_job(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    key = build(site, data, "a")["mirror"]
    with site.work.read() as session:
        now = mirrors.get(session, key).used_at  # type: ignore[union-attr]
    for end in (2, 5, 3):
        held = keeping.take(site, key, holds.job("7", str(int(now + end * DAY))))
    assert held.until == int(now + 5 * DAY)
    keeping.take(site, key, holds.pin("ada", "one"))
    keeping.take(site, key, holds.pin("ada", "two", str(int(now + DAY))))
    shown = keeping.show(site, key)["holds"]
    assert [(item["kind"], item["reason"]) for item in shown] == [("job", None), ("pin", "two")]
    age(site, 3 * DAY)
    assert [item["kind"] for item in keeping.show(site, key)["holds"]] == ["job"]


@on_sqlite
def test_a_cancelled_build_lets_go(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    built = build(site, data, "a")
    key = built["mirror"]
    row, _ = submit(site, submission(corpus(data, 2, name="b"), data))
    with site.work.write() as session:
        holds.keep_for_build(session, site.root, key, row.id)
    condemned_and_due(site)
    assert [item["kind"] for item in keeping.show(site, key)["holds"]] == ["build"]
    assert run(site)["mirrors"] == []
    control.cancel(site, row.id)
    condemned_and_due(site)
    assert run(site)["mirrors"] == [key]
