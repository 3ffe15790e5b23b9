"""What units tell: looked at once while none of them moves, and never less than the catalog holds."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import case, func, select, update

from blendex.builds.looks import KEPT, Looks
from blendex.builds.site import Site
from blendex.catalog import builds, dialect, states, trace, units
from blendex.catalog.models import Unit
from tests.dashboard import synthetic


@pytest.fixture
def site(open_site: Callable[..., Site]) -> Site:
    made: Site = open_site()
    return made


@pytest.fixture
def number(site: Site, monkeypatch: pytest.MonkeyPatch) -> str:
    """A build of 800 units, ten to a cell."""
    monkeypatch.setattr(trace, "CELLS", 80)
    return synthetic.big(site, sources=16_000)


def look(site: Site, looks: Looks, number: str) -> tuple[dict[str, int], int]:
    """Units by state, and the sources that ended, as a look tells them."""
    with site.work.read() as session:
        build = builds.get(session, number)
        assert build is not None
        told = {state: about["units"] for state, about in looks.seen(session, build).sums.items()}
        return told, sum(looks.bins(session, build)["sources"])


def test_units_are_looked_at_again_when_one_of_them_moved(site: Site, number: str) -> None:
    looks = Looks()
    first = look(site, looks, number)
    assert look(site, looks, number) == first
    assert looks.made == 1
    with site.work.write() as session:  # a claim says nothing to the build
        waiting = session.execute(select(func.min(Unit.id)).where(Unit.state == "waiting")).scalar_one()
        unit = states.claim_unit(session, "w", 60, 2**40, only=waiting)
        assert unit is not None
        claimed, fence = unit.id, unit.fence
    told, sources = look(site, looks, number)
    assert (told["leased"], told["waiting"]) == (first[0]["leased"] + 1, first[0]["waiting"] - 1)
    with site.work.write() as session:  # handed back and claimed again between two looks
        assert states.hand_back(session, claimed, fence, count=False)
    with site.work.write() as session:
        unit = states.claim_unit(session, "v", 60, 2**40, only=claimed)
        assert unit is not None
        fence = unit.fence
    look(site, looks, number)
    assert looks.made == 3
    with site.work.write() as session:
        assert states.end_unit(session, claimed, fence, "done")
    told, ended = look(site, looks, number)
    assert (told["leased"], told["done"]) == (first[0]["leased"], first[0]["done"] + 1)
    assert ended == sources + synthetic.EACH
    with site.work.write() as session:
        states.touch_build(session, number)
    look(site, looks, number)
    assert looks.made == 5


def test_only_the_last_looks_are_kept(site: Site, number: str) -> None:
    looks = Looks()
    look(site, looks, number)
    for other in range(KEPT):
        looks._look(str(other))
    look(site, looks, number)
    assert looks.made == 2


def shuffle(session: Any, seed: int, moments: int) -> None:
    """Let units have ended and have waited in any order, many of them at the same moment."""
    chance = random.Random(seed)
    rows = session.execute(select(Unit.id, Unit.ended_at).where(Unit.work == "index")).all()
    since, ends = {}, {}
    for number, ended in rows:
        since[number] = 1_000.0 + chance.randrange(moments)
        if ended is not None:
            ends[number] = 5_000.0 + chance.randrange(moments)
    for column, values in ((Unit.waiting_since, since), (Unit.ended_at, ends)):
        ids = list(values)
        for start in range(0, len(ids), 500):
            part = {number: values[number] for number in ids[start : start + 500]}
            session.execute(
                update(Unit)
                .where(dialect.one_of(session, Unit.id, list(part)))
                .values({column: case(part, value=Unit.id)})
                .execution_options(synchronize_session=False)
            )


@pytest.mark.parametrize("moments", [3, 100_000])
def test_what_was_seen_tells_where_to_look(site: Site, number: str, moments: int) -> None:
    for seed in range(3):
        with site.work.write() as session:
            shuffle(session, seed, moments)
        with site.work.read() as session:
            seen = trace.see(session, number)
            for most in (1, 5, 20):
                among = seen.ended_last(most)
                assert among is not None
                assert len(among) <= 10 * most
                assert trace.ended(session, number, most, among) == trace.ended(session, number, most)
                among = seen.waited_longest(most)
                assert among is not None
                assert len(among) <= 10 * most
                assert units.stragglers(session, number, most, among) == units.stragglers(session, number, most)


def test_too_many_units_to_be_named_are_looked_through() -> None:
    seen = trace.Seen(ends=[(1.0, 1, 4_000), (2.0, 4_001, 9_000)], waits=[(1.0, 1, 10)])
    assert seen.ended_last(1) == list(range(4_001, 9_001))
    assert seen.ended_last(2) is None
    assert seen.waited_longest(5) == list(range(1, 11))
