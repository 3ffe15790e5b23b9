"""Whose turn it is: priorities, owners and builds; and that 400,000 waiting units cost a claim no more than ten."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from sqlalchemy import event, select, text

from blendex.builds.site import Site
from blendex.catalog import builds, dialect, lanes, states, units
from blendex.catalog.models import Lane, Share, Unit

OpenSite = Callable[..., Site]
PLENTY = 2**40


def add(site: Site, owner: str, count: int, *, cost: int = 2**20, priority: int = 0, memory: int = 1) -> str:
    with site.work.write() as session:
        build, _ = builds.create(
            session, owner=owner, identity=builds.new_id(), submission={}, file="b", options={}, priority=priority
        )
        for _ in range(count):
            units.create(session, "index", build.id, {}, memory=memory, cost=cost, priority=priority)
        return build.id


def claim(site: Site, count: int, memory: int = PLENTY) -> list[Unit]:
    found = []
    for _ in range(count):
        with site.work.write() as session:
            unit = states.claim_unit(session, "w", 30, memory)
            assert unit is not None
            session.flush()
            session.expunge(unit)
            found.append(unit)
    return found


def test_owners_share_and_within_one_its_builds(open_site: OpenSite) -> None:
    site = open_site()
    busy = [add(site, "busy", 30) for _ in range(4)]
    calm = add(site, "calm", 30)
    taken = Counter(unit.build for unit in claim(site, 40))
    assert abs(taken[calm] - 20) <= 1, "four builds of one owner weigh as much as one of another"
    assert all(abs(taken[build] - 5) <= 1 for build in busy)


def test_shares_are_of_cost_not_of_units(open_site: OpenSite) -> None:
    site = open_site()
    large = add(site, "a", 10, cost=10 * 2**20)
    small = add(site, "b", 100, cost=2**20)
    taken = Counter(unit.build for unit in claim(site, 44))
    assert 3 <= taken[large] <= 5
    assert 39 <= taken[small] <= 41


def test_one_that_comes_late_catches_nothing_up_and_waits_for_nobody(open_site: OpenSite) -> None:
    site = open_site()
    first = add(site, "first", 60)
    claim(site, 30)
    late = add(site, "late", 20)
    taken = Counter(unit.build for unit in claim(site, 20))
    assert abs(taken[late] - 10) <= 1
    assert abs(taken[first] - 10) <= 1
    third = add(site, "late", 20)  # of an owner that is served already
    assert claim(site, 3)[0].build in (first, late, third)


def test_priorities_come_first_and_classes_of_work_within_them(open_site: OpenSite) -> None:
    site = open_site()
    maintenance = add(site, "m", 2, priority=-1)
    bulk = add(site, "b", 2)
    interactive = add(site, "i", 2, priority=1)
    with site.work.write() as session:
        units.create(session, "publish", bulk, {}, memory=1)
    order = [(unit.build, unit.work) for unit in claim(site, 7)]
    assert order == [
        (interactive, "index"), (interactive, "index"), (bulk, "publish"), (bulk, "index"), (bulk, "index"),
        (maintenance, "index"), (maintenance, "index"),
    ]  # fmt: skip


def test_whoever_waits_for_a_unit_hurries_it(open_site: OpenSite) -> None:
    site = open_site()
    bulk = add(site, "b", 3)
    urgent = add(site, "i", 0, priority=1)
    with site.work.write() as session:
        ids = list(session.execute(select(Unit.id).where(Unit.build == bulk).order_by(Unit.id)).scalars())
        units.hurry(session, [ids[1]], urgent, 1)
    assert claim(site, 1)[0].id == ids[1]


def test_the_largest_of_a_build_comes_first_and_what_does_not_fit_is_left(open_site: OpenSite) -> None:
    site = open_site()
    build = add(site, "a", 0)
    with site.work.write() as session:
        for cost, memory in ((5, 10), (9, 1000), (7, 10), (1, 10)):
            units.create(session, "index", build, {}, memory=memory, cost=cost)
    assert [unit.cost for unit in claim(site, 3, memory=100)] == [7, 5, 1]


def test_a_unit_that_is_set_back_is_claimed_later(open_site: OpenSite) -> None:
    site = open_site()
    add(site, "a", 1)
    (unit,) = claim(site, 1)
    with site.work.write() as session:
        assert states.hand_back(session, unit.id, unit.fence, count=False, pause=3600)
        assert states.claim_unit(session, "w", 30, PLENTY) is None
        session.execute(text("UPDATE units SET not_before = 0"))
        again = states.claim_unit(session, "w", 30, PLENTY)
        assert again is not None
        assert (again.attempts, again.delays) == (0, 1)


def test_lanes_go_with_their_builds_and_missing_ones_are_mended(open_site: OpenSite) -> None:
    site = open_site()
    build = add(site, "a", 1)
    with site.work.write() as session:
        session.execute(text("DELETE FROM lanes"))
        assert lanes.any_missing(session)
    with site.work.write() as session:
        lanes.mend(session)
        assert not lanes.any_missing(session)
        assert not lanes.any_over(session)
    (unit,) = claim(site, 1)
    with site.work.write() as session:
        states.end_unit(session, unit.id, unit.fence, "done")
        states.move_build(session, build, "cancelled", 0)
        assert lanes.any_over(session)
        lanes.forget(session)
        assert session.query(Lane).count() == 0
        assert [share.id for share in session.query(Share).order_by(Share.id)] == ["owner/a", "team/a"]


@pytest.mark.parametrize("memory", [PLENTY, 10])
def test_a_claim_among_many_reads_indexes_only(open_site: OpenSite, memory: int) -> None:
    """By the plan of the statement, not by a clock: nothing walks or sorts all that waits."""
    site = open_site()
    build = add(site, "a", 1)
    names = ("work", "build", "state", "fence", "attempts", "priority", "cost", "memory", "payload", "turn")
    rows = [
        ("index", build, "waiting", 0, 0, 0, number % 1000, 5 + number % 2 * 100, b"", 0) for number in range(20_000)
    ]
    with site.work.write() as session:
        dialect.add_new(session, Unit, names, rows)
    if site.work.engine.dialect.name == "postgresql":
        with site.work.write() as session:
            session.execute(text("ANALYZE units"))
    told: list[str] = []

    def explained(connection: object, cursor: object, statement: str, parameters: object, *_: object) -> None:
        if statement.startswith("WITH lane") or "UPDATE units SET state" in statement:
            told.append(statement)
            driver = connection.connection.driver_connection  # type: ignore[attr-defined]
            word = "EXPLAIN QUERY PLAN" if site.work.engine.dialect.name == "sqlite" else "EXPLAIN"
            found = driver.cursor().execute(f"{word} {statement}", parameters).fetchall()
            told.append("\n".join(str(row) for row in found))

    event.listen(site.work.engine, "before_cursor_execute", explained)
    with site.work.write() as session:
        assert states.claim_unit(session, "w", 30, memory) is not None
    event.remove(site.work.engine, "before_cursor_execute", explained)
    print(told[1])
    assert "Seq Scan on units" not in told[1]
    assert "SCAN units" not in told[1]
    assert told[1].count("USE TEMP B-TREE") <= 1, "lanes are sorted, units are not"
