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
from tests.cluster.cluster import LEASE_SECONDS, Api, Cluster, Worker, running, wait_for
from tests.support import services
from tests.support.corpus import corpus

pytestmark = pytest.mark.slow

Calm = Callable[[str, Path], dict[str, Any]]
# A reaper comes several times in a lease; a slow machine gets a second more.
RECOVERY = 2 * LEASE_SECONDS + 1


@pytest.fixture
def own(tmp_path: Path, shared_databases: services.Databases, broker_url: str) -> Iterator[Cluster]:
    """A cluster that a test may break."""
    with running(Cluster(tmp_path / "root", shared_databases.make(), broker_url)) as made:
        yield made


def kill_some(cluster: Cluster, chance: random.Random, until: threading.Event) -> list[str]:
    """SIGKILL workers, children and the api in turn, and start others in their place."""
    killed = []
    for turn in range(12):
        if until.wait(chance.uniform(0.1, 1.0)):
            break
        what = ("child", "worker", "child", "api")[turn % 4]
        if what == "api":
            cluster.apis.append(Api(cluster.environment))
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
    return killed


@pytest.mark.long
def test_kills_at_any_moment_of_2000_sources(own: Cluster, calm: Calm, data: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    own.environment["BLENDEX_UNIT_SOURCES"] = "4"  # 500 units
    own.start()
    blend = corpus(data, shards=1000, rows=2)  # 2,000 sources
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
    assert {"child", "worker"} <= set(killed)
    for worker in own.workers:
        wait_for(worker.ready)
    own.check(result, calm(blend, data))


@pytest.mark.long
@pytest.mark.parametrize("stage", ["planning", "indexing", "publishing"])
def test_a_unit_whose_worker_is_killed_goes_on_within_two_leases(
    own: Cluster, calm: Calm, data: Path, stage: str
) -> None:
    own.start(apis=1, workers=2)
    victim, rescuer = own.workers
    rescuer.stop_all()  # it takes nothing before it is needed
    blend = corpus(data, shards=600, rows=2)
    build = own.post(blend, data)["id"]
    wait_for(lambda: own.show(build)["state"] == stage and leases_of(own, victim), 60, 0.005)
    own.workers.remove(victim)
    victim.kill()
    began = time.monotonic()
    rescuer.go_on()
    lost = leases_of(own, victim)
    assert lost, "it was killed between two units: a larger corpus is needed"
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


@pytest.mark.long
@pytest.mark.parametrize("stage", ["planning", "indexing", "publishing"])
def test_a_paused_worker_publishes_nothing_on_a_lost_lease(own: Cluster, calm: Calm, data: Path, stage: str) -> None:
    """SIGSTOP longer than a lease, parent and child, while it holds one; then SIGCONT."""
    own.start(apis=1, workers=2)
    paused, rescuer = own.workers
    rescuer.stop_all()  # it takes nothing before it is needed
    blend = corpus(data, shards=600, rows=2)
    build = own.post(blend, data)["id"]
    wait_for(lambda: own.show(build)["state"] == stage and leases_of(own, paused), 60, 0.005)
    paused.stop_all()
    held = leases_of(own, paused)
    rescuer.go_on()
    time.sleep(LEASE_SECONDS + 1)
    result = own.ended(build)
    folder, receipt = Path(own.root, "builds", build), Path(result["path"], "receipt.json")
    before = {path: path.stat().st_ino for path in (*folder.iterdir(), receipt)}
    paused.go_on()
    wait_for(lambda: paused.metric("blendex_slots_busy") == 0, 30)
    time.sleep(1)
    assert {path: path.stat().st_ino for path in (*folder.iterdir(), receipt)} == before
    own.check(result, calm(blend, data))
    print(
        f"{stage}: {held} leases lost, {own.metric('blendex_units_ended_total', outcome='lost'):.0f} attempts in vain"
    )
    assert held == 0 or own.metric("blendex_units_ended_total", outcome="lost") >= 1


@pytest.fixture
def redis_of_its_own() -> Iterator[services.Redis]:
    server = services.Redis()
    yield server
    server.close()


@pytest.mark.long
def test_redis_killed_empty_and_absent(
    tmp_path: Path, shared_databases: services.Databases, redis_of_its_own: services.Redis, calm: Calm, data: Path
) -> None:
    blends = [corpus(data, shards=250, rows=2, name=name) for name in ("killed", "absent", "back")]
    with running(Cluster(tmp_path / "root", shared_databases.make(), redis_of_its_own.url).start()) as cluster:
        first = cluster.post(blends[0], data)["id"]
        cluster.in_state(first, "indexing")
        redis_of_its_own.kill()  # in mid-build, with all that it held
        cluster.check(cluster.ended(first), calm(blends[0], data), but=("outbox",))
        began = time.monotonic()
        second = cluster.ended(cluster.post(blends[1], data)["id"])  # nobody can be told: polling finds it
        print(f"without Redis: {time.monotonic() - began:.1f} s")
        assert (second["state"], second["opened"]) == ("ready", 500)
        cluster.at_rest(but=("outbox",))
        redis_of_its_own.start()  # empty
        received = cluster.metric("blendex_wakes_received_total")
        began = time.monotonic()
        while cluster.metric("blendex_wakes_received_total") == received:
            # Celery tries to connect every few seconds, more seldom the longer Redis was away.
            assert time.monotonic() - began < 90, "nobody is told any more"
            assert cluster.ended(cluster.post(blends[2], data)["id"])["state"] == "ready"
        print(f"told again {time.monotonic() - began:.1f} s after Redis was back")
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


@pytest.mark.long
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
