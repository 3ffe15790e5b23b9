"""Memory that workers share: nobody promises what is promised already, and neither the heavy nor the light starve."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text

from blendex.builds import admission
from blendex.builds.site import Site
from blendex.catalog import ledgers, observations, pauses, states, units, workers
from blendex.runtime import activity
from blendex.runtime.budget import Budget, ledger_id

OpenSite = Callable[..., Site]
MIB = 2**20
PLENTY = Budget(2**40, 0, "test")


def own(name: str, *, taken: int = 0, used: int = 0, budget: int = 1000, ledger: str = "host") -> admission.Own:
    return admission.Own(
        name, ledger, "here", "test", budget * MIB, taken * MIB, used * MIB, 0, 30.0, ("index", "publish")
    )


def beat(site: Site, name: str, *, taken: int, process: str = "", budget: int = 1000, ledger: str = "host") -> None:
    values: dict[str, Any] = {
        "host": "here", "pid": 1, "version": "0", "state": "working", "classes": ["index"], "slots": 1, "busy": 1,
        "budget": budget * MIB, "taken": taken * MIB, "used": 0, "ledger": ledger, "process": process, "waiting": None,
    }  # fmt: skip
    with site.work.write() as session:
        workers.beat(session, name, 30.0, values)


def add(site: Site, memory: int, work: str = "index", cost: int = 1) -> int:
    with site.work.write() as session:
        return units.create(session, work, "b", {"sources": []}, memory=memory * MIB, cost=cost)


def admit(site: Site, mine: admission.Own, *, now: Budget = PLENTY, reserve: float = 60.0) -> admission.Verdict:
    with site.work.write() as session:
        found = admission.admit(session, mine, lambda: now, activity.lives, reserve)
        session.flush()
        if found.unit is not None:
            session.expunge(found.unit)
        return found


def end(site: Site, verdict: admission.Verdict) -> None:
    assert verdict.unit is not None
    with site.work.write() as session:
        assert states.end_unit(session, verdict.unit.id, verdict.unit.fence, "done")


def test_what_others_of_the_host_promised_is_not_there(open_site: OpenSite) -> None:
    site = open_site()
    beat(site, "other", taken=700, process=activity.identity(os.getpid()))
    add(site, 400)
    found = admit(site, own("me"))
    assert found.unit is None
    assert found.why is not None
    assert "needs 400 MiB, 300 of 1000 MiB are left" in found.why
    assert admit(site, own("me", ledger="another host")).memory == 400 * MIB


def test_promises_last_as_long_as_their_process(open_site: OpenSite) -> None:
    """A stopped one keeps its memory whatever became of its leases; of a dead one nothing is left."""
    site = open_site()
    process = subprocess.Popen(["sleep", "1000"])
    name = activity.identity(process.pid)
    beat(site, "other", taken=700, process=name)
    add(site, 400)
    with site.work.write() as session:
        session.execute(text("UPDATE workers SET seen_until = 0"))  # it missed its heartbeats
    assert activity.lives(name)
    assert admit(site, own("me")).unit is None
    process.kill()
    process.wait()
    assert activity.lives(name) is False
    assert admit(site, own("me")).unit is not None


def test_of_a_process_that_cannot_be_seen_its_heartbeats_tell(open_site: OpenSite) -> None:
    site = open_site()
    beat(site, "other", taken=700, process="1:2:3")  # of another namespace
    add(site, 400)
    assert activity.lives("1:2:3") is None
    assert admit(site, own("me")).unit is None
    with site.work.write() as session:
        session.execute(text("UPDATE workers SET seen_until = 0"))
    assert admit(site, own("me")).unit is not None


def test_what_the_machine_has_left_counts_too(open_site: OpenSite) -> None:
    site = open_site()
    add(site, 400)
    scarce = Budget(1000 * MIB, 900 * MIB, "test")
    assert admit(site, own("me", taken=50, used=50), now=scarce).unit is None
    # What runs was promised 300 and has 300: the 100 that are left are free.
    add(site, 90)
    assert admit(site, own("me", taken=300, used=300), now=scarce).memory == 90 * MIB


def test_what_fits_nowhere_runs_alone_with_all_there_is(open_site: OpenSite) -> None:
    site = open_site()
    beat(site, "me", taken=0)
    add(site, 5000)
    assert admit(site, own("me", taken=1)).unit is None
    found = admit(site, own("me"))
    assert found.memory == 1000 * MIB


def test_what_fits_elsewhere_waits_for_that(open_site: OpenSite) -> None:
    site = open_site()
    beat(site, "larger", taken=0, budget=8000, ledger="large")
    add(site, 5000)
    assert admit(site, own("me")).unit is None
    assert admit(site, own("larger", budget=8000, ledger="large")).memory == 5000 * MIB


def test_neither_heavy_nor_light_ones_starve(open_site: OpenSite) -> None:
    site = open_site()
    heavies = [add(site, 900, cost=5) for _ in range(2)]
    for _ in range(20):
        add(site, 100)
    running = admit(site, own("me", taken=500))  # 500 are taken: light ones go on
    assert running.memory == 100 * MIB
    with site.work.write() as session:
        session.execute(
            text(f"UPDATE units SET waiting_since = waiting_since - 100 WHERE id IN ({heavies[0]}, {heavies[1]})")
        )
    reserved = admit(site, own("me", taken=500))
    assert reserved.unit is None
    assert reserved.why is not None
    assert "reserved" in reserved.why
    assert admit(site, own("other", taken=400)).unit is None, "the whole ledger is reserved, not one worker"
    heavy = admit(site, own("me"))  # what ran has ended
    assert heavy.unit is not None
    assert heavy.unit.id in heavies
    assert admit(site, own("me", taken=900)).memory == 100 * MIB  # light ones take what is left beside it
    end(site, heavy)
    # The other heavy one has waited as long, and the light ones have their time first.
    for _ in range(5):
        assert admit(site, own("me", taken=500)).memory == 100 * MIB
    with site.work.write() as session:
        session.execute(text("UPDATE ledgers SET rest_until = 0"))
    assert admit(site, own("me", taken=500)).unit is None


def test_while_the_disk_is_full_nothing_that_writes_is_begun(open_site: OpenSite) -> None:
    site = open_site()
    add(site, 10)
    with site.work.write() as session:
        pauses.begin(session, "the disk is full (ENOSPC).", 3600)
    found = admit(site, own("me"))
    assert (found.unit, found.why) == (None, "paused: the disk is full (ENOSPC).")
    with site.work.write() as session:
        pauses.end(session)
    assert admit(site, own("me")).unit is not None


def test_nothing_waits(open_site: OpenSite) -> None:
    assert admit(open_site(), own("me")) == admission.Verdict()


def test_a_ledger_is_a_limit() -> None:
    assert ledger_id("host memory") == ledger_id("host memory")
    assert ledger_id("/proc/self/status") != ledger_id("host memory")


def test_predictions_follow_what_was_observed(open_site: OpenSite) -> None:
    site = open_site()
    with site.work.write() as session:
        for _ in range(observations.ENOUGH - 1):
            observations.record(session, {"jsonl:file:10": 100 * MIB}, 512 * MIB)
        assert observations.predictions(session) == {}
        observations.record(session, {"jsonl:file:10": 60 * MIB}, 512 * MIB)
        (predicted,) = observations.predictions(session).values()
        assert 140 * MIB < predicted < 200 * MIB
        for _ in range(400):
            observations.record(session, {"jsonl:file:10": 40 * MIB}, predicted)
        (later,) = observations.predictions(session).values()
        assert later == int(40 * MIB * observations.MARGIN) + observations.BASE_BYTES
        (row,) = observations.page(session)
        assert (row.last, row.predicted) == (40 * MIB, predicted)


@pytest.mark.parametrize("count", [1, 3])
def test_most_budget_is_of_those_that_are_there(open_site: OpenSite, count: int) -> None:
    site = open_site()
    for number in range(count):
        beat(site, f"w{number}", taken=0, budget=100 * (number + 1))
    with site.work.read() as session:
        assert ledgers.most_budget(session) == 100 * count * MIB
