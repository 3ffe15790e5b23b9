"""Builds that need the same sources share the work; processes that share a root share it, too."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from blendex.builds import control, indexing
from blendex.builds import loop as loop_module
from blendex.builds.loop import ClaimLoop
from blendex.builds.run import run_build
from blendex.builds.site import Site
from blendex.builds.submit import submit
from blendex.catalog import builds
from blendex.catalog.models import RUNNING, Unit
from blendex.runtime.slots import Outcome, Slots
from tests.support.corpus import corpus, manifest, put, sidecars, submission, wait_until_calm
from tests.support.inline import InlineRunner

OpenSite = Callable[..., Site]


def states(site: Site) -> dict[str, str]:
    with site.work.read() as session:
        return {row.id: row.state for row in builds.page(session, limit=200)}


def work_until_all_ended(site: Site) -> None:
    loop = ClaimLoop(
        site,
        Slots(2, "blendex.units"),
        idle=lambda: not any(state in RUNNING for state in states(site).values()),
    )
    loop.run()


@pytest.mark.slow
def test_thirty_near_identical_builds_read_each_source_once(open_site: OpenSite, data: Path) -> None:
    site = open_site(unit_sources=7)
    common = corpus(data, shards=38)  # 76 sources, 95 % of 80
    blends = []
    for number in range(30):
        own = [put(data / f"own{number}/m{i}.json", manifest(2, f"{number}.{i}.")) for i in range(4)]
        blends.append(common + f"- {{type: nemo, manifest_filepath: [{', '.join(map(str, own))}]}}\n")
    wait_until_calm()
    ids = [submit(site, submission(blend, data))[0].id for blend in blends]
    control.cancel(site, ids[0])
    work_until_all_ended(site)
    found = states(site)
    assert found.pop(ids[0]) == "cancelled"
    assert set(found.values()) == {"ready"}
    with site.work.read() as session:
        opened = sum(row.opened for row in builds.page(session, limit=200))
        mirrors = {row.mirror for row in builds.page(session, limit=200) if row.mirror}
    assert opened == 76 + 29 * 4
    assert len(mirrors) == 29


def follow(
    loop: ClaimLoop, monkeypatch: pytest.MonkeyPatch, began: Callable[[Unit], None] = lambda _: None
) -> list[str]:
    """What begins and ends from now on, as "build work begun" and "build work taken over"."""
    order: list[str] = []
    start, settle = loop._start, loop._settle

    def started(unit: Unit) -> None:
        order.append(f"{unit.build} {unit.work} begun")
        start(unit)
        began(unit)

    def settled(unit: Unit, outcome: Outcome, *how: bool) -> None:
        settle(unit, outcome, *how)
        order.append(f"{unit.build} {unit.work} taken over")

    monkeypatch.setattr(loop, "_start", started)
    monkeypatch.setattr(loop, "_settle", settled)
    return order


def test_a_free_slot_gets_its_next_unit_before_its_last_one_is_taken_over(
    open_site: OpenSite, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "LIGHT_SOURCES", 1)
    site = open_site(unit_sources=2)
    build = submit(site, submission(corpus(data, shards=3), data, packs="none"))[0].id
    loop = ClaimLoop(site, InlineRunner(), idle=lambda: states(site)[build] not in RUNNING)
    order = follow(loop, monkeypatch)
    loop.run()
    assert states(site) == {build: "ready"}
    begun, over = "index begun", "index taken over"
    assert [line.partition(" ")[2] for line in order] == [
        "plan begun", "plan taken over", begun, begun, over, begun, over, over, "publish begun", "publish taken over",
    ]  # fmt: skip


def test_a_small_build_goes_through_beside_a_large_one(
    open_site: OpenSite, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it brings is waiting before the slot is given to the other one's next unit, at each of its steps."""
    site = open_site(unit_sources=1)
    large = submit(site, submission(corpus(data, shards=6, name="l"), data, packs="none"))[0].id
    small: list[str] = []

    def began(unit: Unit) -> None:
        if unit.work == "index" and not small:
            small.append(submit(site, submission(corpus(data, shards=1, name="s"), data, packs="none"))[0].id)

    loop = ClaimLoop(site, InlineRunner(), idle=lambda: set(RUNNING).isdisjoint(states(site).values()))
    order = follow(loop, monkeypatch, began)
    loop.run()
    assert states(site) == {large: "ready", small[0]: "ready"}
    since = order.index(f"{small[0]} plan begun")
    between = order[since : order.index(f"{small[0]} publish begun")]
    assert between.count(f"{small[0]} index begun") == 2
    assert between.count(f"{large} index begun") == 2  # they take turns; without a look at what is light there are four


def test_the_loop_goes_round_while_the_catalog_is_away(
    open_site: OpenSite, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is light is tried once in the loop's own thread: one that stood still would be restarted."""
    site = open_site()
    build = submit(site, submission(corpus(data, shards=1), data, packs="none"))[0].id
    finish, tried = indexing.finish, list[bool]()

    def away_twice(*arguments: Any) -> bool:
        tried.append(threading.current_thread() is threading.main_thread())
        if len(tried) < 3:
            raise OperationalError("UPDATE units", None, ConnectionError())
        return finish(*arguments)

    monkeypatch.setattr(indexing, "finish", away_twice)
    ClaimLoop(site, InlineRunner(), idle=lambda: states(site)[build] not in RUNNING, threads=2).run()
    assert states(site) == {build: "ready"}
    assert tried == [True, False, False]


def test_cancelling_one_of_two_leaves_the_shared_work(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    common = corpus(data, shards=4)
    other = common + f"- {{type: nemo, manifest_filepath: {put(data / 'x.json', manifest(1))}}}\n"
    first, second = (submit(site, submission(blend, data))[0].id for blend in (common, other))
    # Plan both, so that the second waits for the units of the first.
    loop = ClaimLoop(site, InlineRunner())
    while "planning" in states(site).values() or "queued" in states(site).values():
        loop._turn()
        loop._take_outcomes(wait=False)
    control.cancel(site, first)
    work_until_all_ended(site)
    assert states(site) == {first: "cancelled", second: "ready"}


def test_fifty_identical_submissions_are_one_build(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    blend = corpus(data)
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda _: submit(site, submission(blend, data)), range(50)))
    assert len({build.id for build, _ in answers}) == 1
    assert sum(made for _, made in answers) == 1


def test_a_cancelled_build_can_be_retried(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    build, _ = submit(site, submission(corpus(data), data))
    control.cancel(site, build.id)
    control.cancel(site, build.id)  # again changes nothing
    control.retry(site, build.id)
    work_until_all_ended(site)
    assert states(site) == {build.id: "ready"}


def blendex(*arguments: str, root: Path, **extra: str) -> subprocess.Popen[str]:
    environment = os.environ | {"BLENDEX_ROOT": str(root), "BLENDEX_LEASE_SECONDS": "1.5"} | extra
    return subprocess.Popen(
        [sys.executable, "-c", "from blendex.cli import main; main()", *arguments],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.slow
def test_a_killed_builder_beside_a_living_one_costs_only_time(
    data: Path, tmp_path: Path, open_site: OpenSite, catalog: Callable[[Path], dict[str, str]]
) -> None:
    root = tmp_path / "root"
    blend = data / "blend.yaml"
    put(blend, corpus(data, shards=150, rows=20).encode())
    victim = blendex("build", str(blend), root=root, BLENDEX_UNIT_SOURCES="2", **catalog(root))
    site = open_site(root)
    deadline = time.monotonic() + 60
    while "indexing" not in states(site).values():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    survivor = blendex("build", str(blend), "--json", root=root, **catalog(root))
    output, errors = survivor.communicate(timeout=120)
    assert survivor.returncode == 0, errors
    result = json.loads(output)
    calm = run_build(open_site(tmp_path / "calm"), submission(blend.read_text(), data), runner=InlineRunner())
    assert result["mirror"] == calm["mirror"]
    assert sidecars(result["path"]) == sidecars(calm["path"])


def test_two_builders_of_one_blend_are_one_build(
    data: Path, tmp_path: Path, catalog: Callable[[Path], dict[str, str]]
) -> None:
    blend = data / "blend.yaml"
    put(blend, corpus(data, shards=100, rows=10).encode())
    root = tmp_path / "root"
    both = [blendex("build", str(blend), "--json", root=root, **catalog(root)) for _ in range(2)]
    told = [one.communicate(timeout=120) for one in both]
    assert [one.returncode for one in both] == [0, 0], told
    results = [json.loads(out) for out, _ in told]
    assert results[0]["path"] == results[1]["path"]
    # Posted at one time they are one build; the later one finds everything done otherwise.
    assert results[0]["id"] == results[1]["id"] or min(item["opened"] for item in results) == 0


def test_a_lost_lease_is_not_published(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    build, _ = submit(site, submission(corpus(data), data))
    slow = ClaimLoop(site, InlineRunner())
    slow._turn()  # has planned, but has not told
    from sqlalchemy import text

    with site.work.write() as session:
        session.execute(text("UPDATE units SET lease_until = 0"))
    other = ClaimLoop(site, InlineRunner(), idle=lambda: states(site)[build.id] == "ready")
    thread = threading.Thread(target=other.run)
    thread.start()
    thread.join(60)
    assert states(site) == {build.id: "ready"}
    slow._take_outcomes(wait=False)  # too late: its fence is old
    assert states(site) == {build.id: "ready"}
    with site.work.read() as session:
        row = builds.get(session, build.id)
        assert row is not None
        assert row.opened == 6


@pytest.mark.parametrize("cause", ["memory", "signal", "timeout", "stall"])
def test_a_death_is_pinned_to_the_source_in_hand(
    open_site: OpenSite, data: Path, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from blendex.runtime.slots import Call, Outcome

    class Deadly(InlineRunner):
        """Every call that reads the poison dies on it, as a child would."""

        tries: list[tuple[int, int]]

        def start(self, call: Call) -> int:
            names = [item[1] for item in call.arguments.get("sources", [])]
            if poison not in names:
                return super().start(call)
            tries.append((len(names), call.memory))
            self.calls.append(call)
            self.outcomes.put(Outcome(len(self.calls), cause, holding={"in_hand": poison}))
            return len(self.calls)

    site = open_site()
    blend = corpus(data, shards=3)
    poison = str(data / "a/manifest_1.json")
    tries: list[tuple[int, int]] = []
    result = run_build(site, submission(blend, data), runner=Deadly())
    assert result["state"] == "failed"
    assert [item["path"] for item in result["problems"]] == [poison]
    assert result["problems"][0]["code"] == {
        "memory": "out_of_memory", "signal": "child_died", "timeout": "timeout", "stall": "stalled",
    }[cause]  # fmt: skip
    assert len(tries) == 2  # once in company, once alone and larger
    assert tries[1] == (1, tries[0][1] * (2 if cause == "memory" else 1))
    assert result["opened"] == 5  # the others were read, once


def test_a_plain_post_does_not_join_an_accepted_build(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    good = corpus(data, shards=1)
    blend = good + f"- {{type: nemo, manifest_filepath: {put(data / 'x.json', b'[1]')}}}\n"
    failed = run_build(site, submission(blend, data), runner=InlineRunner())
    control.accept(site, failed["id"], who="ada", why="tonight")
    other, made = submit(site, submission(blend, data))
    assert made
    assert other.id != failed["id"]
    work_until_all_ended(site)
    assert states(site) == {failed["id"]: "ready", other.id: "failed"}


def test_a_wake_up_ends_the_wait(open_site: OpenSite, data: Path) -> None:
    site = open_site(poll_seconds=30)
    loop = ClaimLoop(site, Slots(1, "blendex.units"), idle=lambda: "ready" in states(site).values())
    thread = threading.Thread(target=loop.run)
    thread.start()
    time.sleep(0.3)  # it found nothing and waits for its poll
    started = time.monotonic()
    submit(site, submission(corpus(data, shards=1), data))
    loop.wake()
    thread.join(60)
    assert time.monotonic() - started < 20
