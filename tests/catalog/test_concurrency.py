"""What two transactions may do to each other: both see it or both wait, on both databases."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import func, select, text

from blendex.builds import planning
from blendex.builds.loop import ClaimLoop
from blendex.builds.site import Site
from blendex.builds.submit import submit
from blendex.catalog import builds, states, units
from blendex.catalog.models import Pending, Unit
from tests.support.corpus import corpus, submission
from tests.support.inline import InlineRunner

OpenSite = Callable[..., Site]


def test_no_unit_is_claimed_twice(open_site: OpenSite, tmp_path: Path) -> None:
    site = open_site()
    with site.work.write() as session:
        for number in range(200):
            units.create(session, "index", "b", {}, memory=1, cost=number)

    def claim_all(worker: int) -> list[int]:
        own = open_site()
        mine = []
        while True:
            with own.work.write() as session:
                unit = states.claim_unit(session, f"w{worker}", 30, 10)
                if unit is None:
                    return mine
                mine.append(unit.id)

    with ThreadPoolExecutor(4) as pool:
        claimed = [unit for mine in pool.map(claim_all, range(4)) for unit in mine]
    assert len(claimed) == len(set(claimed)) == 200


def test_classes_and_memory_and_turns_decide_what_is_claimed(open_site: OpenSite) -> None:
    site = open_site()
    with site.work.write() as session:
        large = [units.create(session, "index", "large", {}, memory=10, cost=5 - n) for n in range(3)]
    with site.work.write() as session:
        first = states.claim_unit(session, "w", 30, 100)
        assert first is not None
        assert first.id == large[0]
        # Beside a build that has begun, a small one comes next, whatever the large one still waits for.
        small = units.create(session, "index", "small", {}, memory=10)
        plan = units.create(session, "plan", "other", {}, memory=10)
        wide = units.create(session, "publish", "other", {}, memory=1000)
    order = []
    with site.work.write() as session:
        for classes in (("index",), ("index", "plan"), ("index",), ("index",), ("index",)):
            unit = states.claim_unit(session, "w", 30, 100, classes)
            order.append(unit.id if unit else None)
    assert order[1] == plan
    assert {order[0], order[2]} == {small, large[1]}
    assert order[3:] == [large[2], None]
    with site.work.write() as session:
        unit = states.claim_unit(session, "w", 30, 1000)
        assert unit is not None
        assert unit.id == wide


def test_planners_at_one_time_let_no_source_be_read_twice(open_site: OpenSite, data: Path) -> None:
    """Eight builds over overlapping sources are planned at once, each by a process of its own."""
    site = open_site()
    common = corpus(data, shards=40, name="common")
    blends = [common + corpus(data, shards=2, name=f"own{number}") for number in range(8)]
    made = [submit(site, submission(blend, data))[0].id for blend in blends]
    barrier = threading.Barrier(8)

    def plan(_: int) -> None:
        runner = InlineRunner()
        loop = ClaimLoop(open_site(unit_sources=5), runner, classes=("plan",))
        unit = loop._claim()
        assert unit is not None
        call = planning.prepare(loop.site, unit)
        assert call is not None
        runner.start(call)
        outcome = runner.outcomes.get()
        barrier.wait()
        loop._settle(unit, outcome)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(plan, range(8)))
    with site.work.read() as session:
        assert session.execute(select(func.count()).select_from(Pending)).scalar_one() == 80 + 8 * 4
        read = [
            item[2]
            for unit in session.query(Unit).where(Unit.work == "index")
            for item in units.payload(unit)["sources"]
        ]
        assert len(read) == len(set(read)) == 80 + 8 * 4
        for build in made:
            assert builds.left(session, build)[1] == 84


def test_units_that_end_at_one_time_let_their_build_go_on(open_site: OpenSite, data: Path) -> None:
    """The last two units of a build end together: one of them must see that it was the last."""
    for attempt in range(10):
        site = open_site(unit_sources=1)
        build, _ = submit(site, submission(corpus(data, shards=1, rows=1, name=f"x{attempt}"), data))
        first = ClaimLoop(site, InlineRunner(), classes=("plan",))
        planned = first._claim()
        assert planned is not None
        first._start(planned)
        first._take_outcomes(wait=False)
        barrier = threading.Barrier(2)

        def read(_: int, barrier: threading.Barrier = barrier) -> None:
            runner = InlineRunner()
            loop = ClaimLoop(open_site(), runner, classes=("index",))
            unit = loop._claim()
            assert unit is not None
            loop._start(unit)
            barrier.wait()
            loop._take_outcomes(wait=False)

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(read, range(2)))
        with site.work.read() as session:
            row = builds.get(session, build.id)
            assert row is not None
            assert row.state == "publishing"


def test_a_cancel_beside_a_plan_that_shares(open_site: OpenSite, data: Path) -> None:
    """One build goes while another one subscribes to its units: the units stay, for the other."""
    from blendex.builds import control

    for attempt in range(10):
        site = open_site()
        blend = corpus(data, shards=2, name=f"y{attempt}")
        other = blend + corpus(data, shards=1, name=f"z{attempt}")
        loop = ClaimLoop(site, InlineRunner(), classes=("plan",))
        one, _ = submit(site, submission(blend, data))
        unit = loop._claim()
        assert unit is not None
        loop._start(unit)
        loop._take_outcomes(wait=False)
        two, _ = submit(site, submission(other, data))
        unit = loop._claim()
        assert unit is not None
        loop._start(unit)
        barrier = threading.Barrier(2)

        def plan(loop: ClaimLoop = loop, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            loop._take_outcomes(wait=False)

        thread = threading.Thread(target=plan)
        thread.start()
        barrier.wait()
        control.cancel(site, one.id)
        thread.join()
        with site.work.read() as session:
            assert builds.left(session, two.id)[1] == 6


def test_a_locked_unit_keeps_nobody_from_renewing_or_reaping(open_site: OpenSite) -> None:
    """Taking over a large plan locks its unit for seconds; the other leases of that worker must not run out of it."""
    site = open_site()
    if site.work.engine.dialect.name == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    with site.work.write() as session:
        for _ in range(3):
            units.create(session, "index", "b", {}, memory=1)
    leased = []
    for worker, seconds in (("one", 30), ("one", 30), ("two", -1)):
        with site.work.write() as session:
            unit = states.claim_unit(session, worker, seconds, 10)
            assert unit is not None
            leased.append((unit.id, unit.fence))
    with site.work.write() as taking_over:
        for unit, fence in leased[1:]:
            assert states.end_unit(taking_over, unit, fence, "done")
        with site.work.write() as session:
            session.execute(text("SET LOCAL lock_timeout = '100ms'"))
            before = session.execute(select(Unit.lease_until).where(Unit.id == leased[0][0])).scalar_one()
            assert states.renew_leases(session, "one", 60, [unit for unit, _ in leased]) == set(leased[:2])
            after = session.execute(select(Unit.lease_until).where(Unit.id == leased[0][0])).scalar_one()
            assert after > before + 20
            assert states.expire_leases(session) == []
    with site.work.write() as session:
        assert states.renew_leases(session, "one", 60, [unit for unit, _ in leased]) == {leased[0]}
