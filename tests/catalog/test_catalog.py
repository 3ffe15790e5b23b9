"""The catalog: migrations, transitions, claims."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import select, text

from blendex.builds.site import Site
from blendex.catalog import blobs, builds, migrate, revision, sources, states, units
from blendex.catalog.dialect import open_engine
from blendex.catalog.engine import UnitOfWork, default_url
from blendex.catalog.models import Build, Unit
from blendex.errors import BlendexError, Code

OpenSite = Callable[..., Site]


def make_build(site: Site, identity: str = "x") -> Build:
    with site.work.write() as session:
        build, made = builds.create(session, owner="o", identity=identity, submission={"a": 1}, file="f", options={})
        assert made
        session.flush()
        session.expunge(build)
    return build


def test_migrations_agree_with_the_models_and_go_down(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/c.sqlite")
    migrate.upgrade(engine)
    assert migrate.drift(engine) == []
    migrate.upgrade(engine)
    migrate.downgrade(engine, "-1")
    migrate.upgrade(engine)
    assert migrate.drift(engine) == []
    engine.dispose()


def test_the_newest_revision_is_alembics_head(tmp_path: Path) -> None:
    from alembic.script import ScriptDirectory

    assert ScriptDirectory.from_config(migrate._config()).get_current_head() == revision.head()
    engine = open_engine(f"sqlite:///{tmp_path}/c.sqlite")
    assert revision.current(engine) is None
    migrate.upgrade(engine)
    assert revision.current(engine) == revision.head()
    engine.dispose()


def test_a_newer_database_is_refused(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/c.sqlite")
    migrate.upgrade(engine)
    with UnitOfWork(engine).write() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        session.execute(text("UPDATE meta SET value = '9999' WHERE key = 'additive_since'"))
    with pytest.raises(BlendexError) as raised:
        migrate.upgrade(engine)
    assert raised.value.code is Code.CATALOG_VERSION
    engine.dispose()


def test_sqlite_leaves_a_network_filesystem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from blendex.catalog import engine

    assert default_url(str(tmp_path), tmp_path / "state") == (f"sqlite:///{tmp_path}/catalog.sqlite", None)
    monkeypatch.setattr(engine, "filesystem_type", lambda _: 0x0BD00BD0)
    url, warning = default_url(str(tmp_path), tmp_path / "state")
    assert str(tmp_path / "state") in url
    assert warning is not None
    assert "network filesystem" in warning


def test_same_identity_while_one_runs_is_the_same_build(open_site: OpenSite) -> None:
    site = open_site()
    first = make_build(site)
    with site.work.write() as session:
        again, made = builds.create(session, owner="o", identity="x", submission={}, file="f", options={})
        assert (again.id, made) == (first.id, False)
        assert states.move_build(session, first.id, "failed", 0)
    assert make_build(site).id != first.id


def test_a_transition_needs_its_state_and_its_fence(open_site: OpenSite) -> None:
    site = open_site()
    build = make_build(site)
    with site.work.write() as session:
        assert not states.move_build(session, build.id, "ready", 0)
        assert not states.move_build(session, build.id, "planning", 1)
        assert states.move_build(session, build.id, "planning", 0)
        assert states.move_build(session, build.id, "cancelled", 0)
        assert not states.move_build(session, build.id, "failed", 0)
        assert states.move_build(session, build.id, "queued", 0)
        assert not states.move_build(session, build.id, "planning", 0)  # an earlier attempt comes too late
        assert states.move_build(session, build.id, "planning", 1)


def test_each_unit_is_claimed_once(open_site: OpenSite) -> None:
    site = open_site()
    build = make_build(site)
    with site.work.write() as session:
        for number in range(60):
            units.create(session, "index", build.id, {"n": number}, memory=1)
    claimed: list[int] = []

    def claim(worker: str) -> None:
        while True:
            with site.work.write() as session:
                unit = states.claim_unit(session, worker, 30, 10)
                if unit is None:
                    return
                claimed.append(unit.id)

    threads = [threading.Thread(target=claim, args=(f"w{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(claimed) == len(set(claimed)) == 60


def test_publishing_goes_before_planning_before_indexing_and_large_before_small(open_site: OpenSite) -> None:
    site = open_site()
    build = make_build(site)
    with site.work.write() as session:
        made = [
            units.create(session, work, build.id, {}, memory=1, cost=cost)
            for work, cost in (("index", 1), ("index", 9), ("plan", 0), ("publish", 0), ("index", 5))
        ]
        order = [states.claim_unit(session, "w", 30, 10) for _ in made]
    assert [unit.id for unit in order if unit] == [made[3], made[2], made[1], made[4], made[0]]


def test_a_unit_that_does_not_fit_is_left(open_site: OpenSite) -> None:
    site = open_site()
    build = make_build(site)
    with site.work.write() as session:
        units.create(session, "index", build.id, {}, memory=100, cost=9)
        small = units.create(session, "index", build.id, {}, memory=10)
        found = states.claim_unit(session, "w", 30, 50)
        assert found is not None
        assert found.id == small


def test_an_expired_lease_goes_back_and_its_fence_is_worth_nothing(open_site: OpenSite) -> None:
    site = open_site()
    build = make_build(site)
    with site.work.write() as session:
        unit = units.create(session, "index", build.id, {}, memory=1)
        first = states.claim_unit(session, "one", 30, 10)
        assert first is not None
        fence = first.fence
        assert states.expire_leases(session) == []
        assert states.renew_leases(session, "one", -1, [unit]) == {(unit, fence)}
        assert states.expire_leases(session) == [unit]
        assert states.renew_leases(session, "one", 30, [unit]) == set()
        second = states.claim_unit(session, "two", 30, 10)
        assert second is not None
        assert not states.end_unit(session, unit, fence, "done")
        assert not states.hand_back(session, unit, fence, count=False)
        assert states.end_unit(session, unit, fence + 1, "done")
        assert session.execute(select(Unit.attempts, Unit.losses).where(Unit.id == unit)).one() == (0, 1)


def test_units_nobody_waits_for_go(open_site: OpenSite) -> None:
    site = open_site()
    one, two = make_build(site, "1"), make_build(site, "2")
    with site.work.write() as session:
        shared = units.create(session, "index", one.id, {}, memory=1)
        alone = units.create(session, "index", one.id, {}, memory=1)
        units.announce(session, [("/a", "r", alone)])
        for unit, build in ((shared, one.id), (alone, one.id), (shared, two.id)):
            units.subscribe(session, unit, build, 1)
        units.unsubscribe(session, one.id)
        assert [row.id for row in session.execute(select(Unit)).scalars()] == [shared]
        assert units.under_way(session, [("/a", "r")]) == {}


def test_blobs_are_stored_once(open_site: OpenSite) -> None:
    site = open_site()
    rows = [("jsonl", f"/d/manifest_{number}.json") for number in range(20_000)]
    data = blobs.pack_list(rows)
    with site.work.write() as session:
        name = blobs.put(session, data)
        assert blobs.put(session, data) == name
        assert blobs.unpack_list(blobs.get(session, name)) == rows
        assert builds.bytes_of_blobs(session) < len(data) // 5


def test_a_content_whose_object_has_no_row_is_read_again(open_site: OpenSite) -> None:
    site = open_site()
    entry = {
        "address": "/s", "recipe": "jsonl/1", "strength": "full", "content_hash": "ab" * 32, "size": 1, "records": 1,
        "offset": 0, "length": 8, "digest": "00" * 32, "findings": [], "facts": {}, "token": "t", "racy": False,
    }  # fmt: skip
    found = []
    for name in ("00.bundle", "01.bundle"):
        with site.work.write() as session:
            sources.record(session, sources.add_object(session, name, 8), [entry])
        with site.work.read() as session:
            found += sources.known(session, "jsonl/1", ["/s"])
        with site.work.write() as session:
            session.execute(text("DELETE FROM objects"))
        with site.work.read() as session:
            found += sources.known(session, "jsonl/1", ["/s"])
    assert [item.has_content for item in found] == [True, False, True, False]
    assert [item.object for item in found] == ["00.bundle", "", "01.bundle", ""]


def test_a_failed_unit_of_work_changes_nothing(open_site: OpenSite) -> None:
    site = open_site()

    def fails() -> None:
        with site.work.write() as session:
            blobs.put(session, b"x")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    with site.work.read() as session:
        assert builds.bytes_of_blobs(session) == 0
