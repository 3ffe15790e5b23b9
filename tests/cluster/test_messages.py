"""Messages that are doubled, late, reordered or lost: no unit done twice by effect, none forgotten; and fairness."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from blendex.catalog import states
from blendex.catalog.engine import catalog_id
from blendex.catalog.models import RUNNING, Unit, Worker
from blendex.catalog.states import CLASSES
from tests.cluster.cluster import Cluster, running, wait_for
from tests.support import services
from tests.support.corpus import corpus
from workers.app import create_celery, queue_length, send_wake
from workers.relay import MOST_MESSAGES

pytestmark = pytest.mark.slow

Calm = Callable[[str, Path], dict[str, Any]]


@pytest.fixture
def own(tmp_path: Path, shared_databases: services.Databases, broker_url: str) -> Iterator[Cluster]:
    with running(Cluster(tmp_path / "root", shared_databases.make(), broker_url)) as made:
        yield made


def sender(cluster: Cluster, broker_url: str) -> Any:
    return create_celery(broker_url, catalog_id(str(cluster.root)), patient=False)


def test_doubled_late_reordered_and_lost(own: Cluster, broker_url: str, calm: Calm, data: Path) -> None:
    own.start()
    app = sender(own, broker_url)
    stop = threading.Event()
    counts = {"sent": 0, "lost": 0, "longest": 0}
    chance = random.Random(7)

    def disturb() -> None:
        while not stop.wait(0.02):
            # Wake-ups for work that is not there yet, is long done, or is there: in any order, many times.
            for work in chance.sample(CLASSES, 3):
                counts["longest"] = max(counts["longest"], queue_length(app, work))
                if chance.random() < 0.3:
                    with app.connection_for_write() as connection:
                        counts["lost"] += connection.default_channel.queue_purge(f"blendex.{work}") or 0
                elif chance.random() < 0.5:
                    send_wake(app, work)
                    counts["sent"] += 1

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        blends = [corpus(data, shards=200, rows=2, name=name) for name in ("one", "two")]
        builds = [own.post(blend, data, api=number)["id"] for number, blend in enumerate(blends)]
        ended = [own.ended(build) for build in builds]
    finally:
        stop.set()
        thread.join()
    print(counts)
    assert counts["sent"] > 20
    for build, blend in zip(ended, blends, strict=True):
        own.check(build, calm(blend, data), wasted=0)  # opened once each: none twice, none forgotten
    claimed = own.metric("blendex_claims_total")
    done = own.metric("blendex_units_ended_total", outcome="done")
    assert claimed == done  # counted: every claim ended, each unit was claimed once
    wait_for(lambda: all(queue_length(app, work) == 0 for work in CLASSES), 20, says="messages stay in the queue")


def test_the_queue_is_bounded_whatever_waits(own: Cluster, broker_url: str, data: Path) -> None:
    """Nobody works: 600 units wait, ten builds are posted, and a handful of messages tell of it."""
    own.start(apis=1, workers=0)
    from blendex.catalog import builds, units

    app = sender(own, broker_url)
    with own.site.work.write() as session:
        for _ in range(600):
            units.create(session, "index", "nobody", {}, memory=1)
            builds.wake(session, "index")
    for number in range(10):
        own.post(corpus(data, shards=1, name=f"q{number}"), data)
    wait_for(lambda: queue_length(app, "index") == MOST_MESSAGES, 20)
    wait_for(lambda: queue_length(app, "plan") == MOST_MESSAGES, 20)
    time.sleep(1)
    assert {work: queue_length(app, work) for work in CLASSES} == {
        "plan": MOST_MESSAGES, "index": MOST_MESSAGES, "pack": 0, "publish": 0,
    }  # fmt: skip
    for work in CLASSES:
        with app.connection_for_write() as connection:
            connection.default_channel.queue_purge(f"blendex.{work}")


def told_without_polling(cluster: Cluster, blend: str, data: Path) -> dict[str, Any]:
    """A build on workers that poll once in a minute: it ends long before that only if every step is told of."""
    return cluster.ended(cluster.post(blend, data)["id"], 25)


@pytest.mark.long
def test_a_small_build_beside_a_large_one(own: Cluster, data: Path) -> None:
    """Ready within three times its time alone. benchmarks/orchestration.py --beside does it with 300,000 sources."""
    own.start(apis=1)

    def small(name: str) -> float:
        blend = corpus(data, shards=1, rows=2, name=name) + corpus(data, shards=1, rows=2, name=name + "x")
        began = time.monotonic()
        build = own.ended(own.post(blend, data)["id"])
        assert build["state"] == "ready"
        return time.monotonic() - began

    small("warm")
    alone = sorted(small(f"alone{number}") for number in range(5))[2]
    large = own.post(corpus(data, shards=2500, rows=2, name="large"), data)["id"]
    beside = []
    while len(beside) < 12 and own.show(large)["state"] in RUNNING:
        beside.append(small(f"beside{len(beside)}"))
    assert own.ended(large)["state"] == "ready"
    print(f"alone {alone:.2f} s, beside {[round(item, 2) for item in beside]}")
    assert len(beside) >= 2
    # Two cores and three workers: with all cores busy, the same work takes longer whoever is asked first.
    assert sorted(beside)[len(beside) // 2] < 3 * alone + 0.5


def carry_by_wake_ups(cluster: Cluster, calm: Calm, data: Path) -> None:
    blend = corpus(data, shards=30)
    cluster.check(told_without_polling(cluster, blend, data), calm(blend, data), wasted=0)


def be_late(cluster: Cluster, calm: Calm, data: Path) -> None:
    """A worker is paused, its child is not; somebody else does the unit; then the outcome of the first one arrives."""
    blend = corpus(data, shards=1500, rows=2)
    expected = calm(blend, data)
    paused = cluster.workers[0]
    build = cluster.post(blend, data)["id"]

    def indexes() -> bool:
        with cluster.site.work.read() as session:
            mine = select(func.count()).where(
                Unit.state == "leased", Unit.work == "index", Unit.worker.contains(f".{paused.pid}.")
            )
            return session.execute(mine).scalar_one() > 0

    def done_again() -> bool:
        with cluster.site.work.read() as session:
            again = select(func.count()).where(Unit.state == "done", Unit.work == "index", Unit.fence > 1)
            return session.execute(again).scalar_one() > 0

    wait_for(indexes, 60, 0.005)
    def has_told(since: float) -> bool:
        with cluster.site.work.read() as session:
            mine = select(Worker.busy).where(Worker.id.contains(f".{paused.pid}."), Worker.seen_at > since)
            return session.execute(mine).scalar_one_or_none() == 0

    paused.send(signal.SIGSTOP)
    wait_for(done_again, 60, 0.01)
    with cluster.site.work.read() as session:
        since = states.now(session)
    paused.send(signal.SIGCONT)
    wait_for(lambda: has_told(since), 60)  # the build may well have ended before
    cluster.check(cluster.ended(build), expected)


def be_calm(cluster: Cluster, calm: Calm, data: Path) -> None:
    blend = corpus(data, shards=1500, rows=2)
    expected = calm(blend, data)
    cluster.check(cluster.ended(cluster.post(blend, data)["id"]), expected, wasted=0)


BUGS = {"fence ignored": be_late, "lease check off": be_calm, "outbox row dropped": carry_by_wake_ups}


@pytest.mark.long
@pytest.mark.parametrize("planted", [False, True], ids=["as it is", "planted"])
@pytest.mark.parametrize("bug", BUGS)
def test_the_checker_notices(
    tmp_path: Path,
    shared_databases: services.Databases,
    broker_url: str,
    calm: Calm,
    data: Path,
    bug: str,
    planted: bool,
) -> None:
    """What holds as it is fails with a mistake planted, by the very same checks."""
    poll = 60 if bug == "outbox row dropped" else 0.5
    cluster = Cluster(tmp_path / "root", shared_databases.make(), broker_url, poll_seconds=poll)
    with running(cluster.start(apis=1, workers=2, bug=bug if planted else None)):
        time.sleep(2)  # their first poll is over
        if not planted:
            BUGS[bug](cluster, calm, data)
            return
        with pytest.raises(AssertionError) as noticed:
            BUGS[bug](cluster, calm, data)
    print(noticed.value)
