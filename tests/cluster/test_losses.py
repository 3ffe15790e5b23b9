"""What dies, hangs or goes away changes nothing but time."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from blendex.catalog.models import Unit
from tests.cluster.cluster import LEASE_SECONDS, Cluster, Worker, running, wait_for
from tests.support import services
from tests.support.corpus import corpus

Calm = Callable[[str, Path], dict[str, Any]]
# A reaper comes every 5 to 6 s; the poll and the start of a child come on top.
RECOVERY = 2 * LEASE_SECONDS + 8


@pytest.fixture
def own(tmp_path: Path, shared_databases: services.Databases, broker_url: str) -> Iterator[Cluster]:
    """A cluster that a test may break."""
    with running(Cluster(tmp_path / "root", shared_databases.make(), broker_url)) as made:
        yield made


def kill_some(cluster: Cluster, chance: random.Random, until: threading.Event) -> list[str]:
    """SIGKILL workers, children and the api in turn, and start others in their place."""
    killed = []
    for turn in range(6):
        if until.wait(chance.uniform(0.3, 1.5)):
            break
        what = ("worker", "child", "api")[turn % 3]
        if what == "api":
            cluster.apis.pop(0).kill()
        else:
            busy = [worker for worker in cluster.workers if worker.children()]
            if not busy:
                continue
            victim = chance.choice(busy)
            if what == "child":
                chance.choice(victim.children()).kill()
            else:
                cluster.workers.remove(victim)
                victim.kill()
                cluster.workers.append(Worker(cluster.environment))
        killed.append(what)
        if not cluster.apis:
            from tests.cluster.cluster import Api

            cluster.apis.append(Api(cluster.environment))
    return killed


def test_kills_at_any_moment_of_2000_sources(own: Cluster, calm: Calm, data: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    own.start()
    blend = corpus(data, shards=1000, rows=2)
    build = own.post(blend, data)["id"]
    ended = threading.Event()
    killed: list[str] = []
    thread = threading.Thread(target=lambda: killed.extend(kill_some(own, random.Random(seed), ended)))
    thread.start()
    try:
        result = own.ended(build, 240)
    finally:
        ended.set()
        thread.join()
    print("killed:", killed)
    assert len(killed) >= 3
    for worker in own.workers:
        wait_for(worker.ready)
    own.check(result, calm(blend, data))


@pytest.mark.parametrize("stage", ["planning", "indexing", "publishing"])
def test_a_unit_whose_worker_is_killed_goes_on_within_two_leases(
    own: Cluster, calm: Calm, data: Path, stage: str
) -> None:
    own.start(apis=1, workers=1)
    victim = own.workers[0]
    blend = corpus(data, shards=600, rows=2)
    build = own.post(blend, data)["id"]
    wait_for(lambda: own.show(build)["state"] == stage and leases_of(own, victim), 60, 0.005)
    own.workers.remove(victim)
    victim.kill()
    began = time.monotonic()
    lost = leases_of(own, victim)
    own.add_worker()
    wait_for(lambda: not leases_of(own, victim), 60)
    recovered = time.monotonic() - began
    print(f"{stage}: {lost} leases taken back after {recovered:.1f} s, lease {LEASE_SECONDS} s")
    own.check(own.ended(build), calm(blend, data))
    assert recovered < RECOVERY


def leases_of(cluster: Cluster, worker: Worker) -> int:
    with cluster.site.work.read() as session:
        mine = select(func.count()).where(Unit.state == "leased", Unit.worker.contains(f".{worker.pid}."))
        return session.execute(mine).scalar_one()


def test_sigterm_hands_back_in_time_and_counts_no_attempt(own: Cluster, calm: Calm, data: Path) -> None:
    own.start(apis=1, workers=1)
    leaving = own.workers[0]
    blend = corpus(data, shards=600, rows=2)
    build = own.post(blend, data)["id"]
    wait_for(lambda: own.show(build)["state"] == "indexing" and leaving.children(), 60, 0.01)
    own.add_worker()
    began = time.monotonic()
    leaving.send(signal.SIGTERM)
    assert leaving.popen.wait(20) == 0
    seconds = time.monotonic() - began
    assert seconds < own.settings["drain_seconds"] + 3  # type: ignore[operator]
    assert "worker_draining" in leaving.text()
    own.workers.remove(leaving)
    leaving.close()
    own.check(own.ended(build), calm(blend, data), wasted=0)
    assert own.metric("blendex_leases_expired_total") == 0


def test_a_paused_worker_publishes_nothing_on_a_lost_lease(own: Cluster, calm: Calm, data: Path) -> None:
    """SIGSTOP longer than a lease, parent and child, in every stage; then SIGCONT."""
    own.start(apis=1, workers=1)
    paused = own.workers[0]
    blend = corpus(data, shards=600, rows=2)
    own.add_worker()
    for number, stage in enumerate(("planning", "indexing", "publishing")):
        text = blend + corpus(data, shards=300, rows=2, name=f"p{number}")
        build = own.post(text, data)["id"]
        wait_for(lambda: own.show(build)["state"] == stage and _runs(paused), 60, 0.002, "it was never busy")  # noqa: B023
        paused.stop_all()
        time.sleep(LEASE_SECONDS + 1)
        result = own.ended(build)
        folder = Path(own.root, "builds", build)
        before = {path.name: path.stat().st_ino for path in folder.iterdir()}
        paused.go_on()
        time.sleep(2)
        assert {path.name: path.stat().st_ino for path in folder.iterdir()} == before, stage
        own.check(result, result | {"opened": 1800 if number == 0 else 600})
    own.check(result, calm(text, data) | {"opened": 600})


def _runs(worker: Worker) -> bool:
    return any(child.status() == "running" for child in worker.children())


@pytest.fixture
def redis_of_its_own() -> Iterator[services.Redis]:
    server = services.Redis()
    yield server
    server.close()


def test_redis_killed_empty_and_absent(
    tmp_path: Path, shared_databases: services.Databases, redis_of_its_own: services.Redis, calm: Calm, data: Path
) -> None:
    blends = [corpus(data, shards=250, rows=2, name=name) for name in ("killed", "absent", "back")]
    with running(Cluster(tmp_path / "root", shared_databases.make(), redis_of_its_own.url).start()) as cluster:
        first = cluster.post(blends[0], data)["id"]
        cluster.in_state(first, "indexing")
        redis_of_its_own.kill()  # in mid-build, with all that it held
        cluster.check(cluster.ended(first), calm(blends[0], data))
        began = time.monotonic()
        second = cluster.ended(cluster.post(blends[1], data)["id"])  # nobody can be told: polling finds it
        print(f"without Redis: {time.monotonic() - began:.1f} s")
        cluster.check_without_outbox(second)
        redis_of_its_own.start()  # empty
        received = cluster.metric("blendex_wakes_received_total")
        third = cluster.ended(cluster.post(blends[2], data)["id"])
        assert third["state"] == "ready"
        wait_for(lambda: cluster.metric("blendex_wakes_received_total") > received, 30, says="nobody is told any more")
        cluster.at_rest()


def test_redis_was_never_there(tmp_path: Path, shared_databases: services.Databases, data: Path) -> None:
    url = f"redis://127.0.0.1:{services.free_port()}/0"
    with running(Cluster(tmp_path / "root", shared_databases.make(), url).start(apis=1, workers=1)) as cluster:
        build = cluster.ended(cluster.post(corpus(data, shards=20), data)["id"])
        assert build["state"] == "ready"
        began = time.monotonic()
        cluster.workers[0].send(signal.SIGTERM)
        assert cluster.workers[0].popen.wait(20) == 0
        assert time.monotonic() - began < 12


def test_postgres_restarts(tmp_path: Path, broker_url: str, calm: Calm, data: Path) -> None:
    server = services.Postgres()
    try:
        blend = corpus(data, shards=700, rows=2)
        url = services.Databases(server.url).make()
        with running(Cluster(tmp_path / "root", url, broker_url).start()) as cluster:
            build = cluster.post(blend, data)["id"]
            for state in ("planning", "indexing"):
                cluster.in_state(build, state) if state == "indexing" else None
                server.stop()
                time.sleep(1)
                server.start()
            result = cluster.ended(build, 180)
            cluster.check(result, calm(blend, data))
            assert all(worker.alive() for worker in cluster.workers)
    finally:
        server.close()


def test_a_stopped_transaction_holds_nobody_up_for_long(shared_databases: services.Databases) -> None:
    """What a paused process had locked is free again within the database's own patience."""
    from sqlalchemy import text

    from blendex.catalog import dialect

    engine = dialect.open_engine(shared_databases.make())
    with engine.connect() as connection:
        idle = connection.execute(text("SHOW idle_in_transaction_session_timeout")).scalar_one()
        wait = connection.execute(text("SHOW lock_timeout")).scalar_one()
    assert (idle, wait) == (f"{dialect.IDLE_SECONDS}s", f"{dialect.LOCK_SECONDS}s")
    engine.dispose()
    assert os.name == "posix"
