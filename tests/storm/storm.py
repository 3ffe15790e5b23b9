"""One storm: a cluster of real processes, builds that run, and what befalls them meanwhile."""

from __future__ import annotations

import contextlib
import random
import subprocess
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
from sqlalchemy import select

from blendex.builds import reap
from blendex.builds.run import run_build
from blendex.catalog import dialect
from blendex.catalog.models import Unit
from blendex.catalog.states import CLASSES
from tests.cluster.cluster import Api, Cluster, Worker, wait_for
from tests.storm.collecting import Collecting
from tests.storm.plant import StormSlots
from tests.support import corpus, services
from workers.app import create_celery, send_wake

LEASE_SECONDS = 3.0
MIB = 2**20
BUDGET_MB = 640  # of the host, for the children of all workers together
SETTINGS = {
    "lease_seconds": LEASE_SECONDS, "poll_seconds": 0.3, "drain_seconds": 2, "slots": 2, "unit_sources": 8,
    "unit_memory_mb": 160, "budget_mb": BUDGET_MB, "stall_seconds": 5, "reserve_seconds": 5, "log_level": "WARNING",
    "unused_hours": 1e-6, "condemned_days": 0,  # what nobody holds is collected at once
}  # fmt: skip
CLOCK_OFF = 600.0
PLACES = ("plan", "index", "publish", "collect")


class StormWorker(Worker):
    """A worker whose children are wrapped, perhaps with a wrong clock or a planted mistake."""

    def __init__(self, storm: Storm, clock: float = 0.0, bug: str | None = None) -> None:
        self.probe = services.free_port()
        environment = storm.cluster.environment | {"BLENDEX_METRICS_PORT": str(self.probe)}
        self._code = (
            "from tests.storm.plant import plant; "
            f"plant({str(storm.journal)!r}, {storm.pause!r}, {clock!r}, {bug!r}); "
            "from blendex.cli import main; main()"
        )
        super(Worker, self).__init__(["worker", "--allow-root", "/"], environment)

    def code(self) -> str:
        return self._code


@dataclass
class Storm:
    """What runs, what was done to it, and what was seen."""

    folder: Path
    seed: int
    pause: float = 0.4
    bug: str | None = None
    budget_mb: int = BUDGET_MB
    kills: Counter[str] = field(default_factory=Counter)  # by place
    events: Counter[str] = field(default_factory=Counter)
    most_used: int = 0
    samples: int = 0
    seconds: float = 0.0
    broken: list[BaseException] = field(default_factory=list)
    collecting: Collecting | None = None

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.journal = self.folder / "journal"
        self.journal.touch()
        self.postgres = services.Postgres()
        self.redis = services.Redis()
        self._mounted = False
        self._new_api: threading.Thread | None = None
        root = self.folder / "root"
        root.mkdir()
        self._mount(root)
        self.database_url = services.Databases(self.postgres.url).make()
        self.cluster = Cluster(root, self.database_url, self.redis.url, **(SETTINGS | {"budget_mb": self.budget_mb}))
        self.stop = threading.Event()

    def _mount(self, root: Path) -> None:
        """A disk of its own, small enough to be filled; where mounting is forbidden, that event is left out."""
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64m", "none", str(root)], capture_output=True, check=False
        )
        self._mounted = done.returncode == 0

    def worker(self, clock: float = 0.0) -> StormWorker:
        return StormWorker(self, clock, self.bug)

    def start(self, workers: int = 3, apis: int = 2) -> Storm:
        self.cluster.workers = [self.worker(CLOCK_OFF if number == 0 else 0.0) for number in range(workers)]
        self.cluster.apis = [Api(self.cluster.environment) for _ in range(apis)]
        for worker in self.cluster.workers:
            wait_for(worker.ready, 90)
        self._threads = [
            threading.Thread(target=self._guard, args=(what,), daemon=True) for what in (self._sample, self._reap)
        ]
        for thread in self._threads:
            thread.start()
        return self

    def close(self) -> None:
        self.stop.set()
        if self.collecting is not None:
            self.collecting.end()
        for thread in self._threads:
            thread.join(30)
        if self._new_api is not None:
            self._new_api.join()
        self.cluster.close()
        self.redis.close()
        self.postgres.close()
        if self._mounted:
            subprocess.run(["umount", "-l", str(self.folder / "root")], check=True)

    def _guard(self, what: Any) -> None:
        try:
            while not self.stop.wait(0.1):
                what()
        except BaseException as error:
            self.broken.append(error)
            raise

    # What is seen all the time.

    def children(self) -> list[psutil.Process]:
        return [child for worker in list(self.cluster.workers) for child in worker.children()]

    def _sample(self) -> None:
        used = 0
        for child in self.children():
            with contextlib.suppress(psutil.Error, FileNotFoundError, ProcessLookupError):
                text = Path(f"/proc/{child.pid}/status").read_text()
                used += next((int(line.split()[1]) * 1024 for line in text.splitlines() if "RssAnon" in line), 0)
        self.most_used = max(self.most_used, used)
        self.samples += 1

    def _reap(self) -> None:
        """A second reaper, at a pace at which no worker reaps."""
        with contextlib.suppress(*dialect.AWAY, FileNotFoundError):
            reap.reap(self.cluster.site)

    # What is done.

    def _leases(self) -> list[Any]:
        with self.cluster.site.work.read() as session:
            return list(
                session.execute(
                    select(Unit.id, Unit.fence, Unit.worker, Unit.work, Unit.attempts, Unit.losses)
                    .where(Unit.state == "leased")
                    .order_by(Unit.id)
                )
            )

    def kill(self, place: str, what: str) -> bool:
        """SIGKILL to a worker, or to its children, while it holds a lease of this work; whether it was.

        Who dies in company of no fault of its own is tried again alone, and named when that one dies, too; so what
        has died already, or was lost more than twice, is left in peace: else it would be named rightly.
        """
        with contextlib.suppress(*dialect.AWAY):
            if place == "collect":
                return self.collecting is not None and self.collecting.kill()
            before = self._leases()
            victims = []
            for worker in self.cluster.workers:
                mine = [row for row in before if f".{worker.pid}." in row.worker]
                calm = all(row.losses < 2 and (what == "worker" or row.attempts == 0) for row in mine)
                if calm and any(row.work == place for row in mine):
                    victims.append((worker, {(row.id, row.fence) for row in mine if row.work == place}))
            if not victims:
                return False
            victim, mine_before = self.chance.choice(victims)
            if what == "worker":
                victim.popen.kill()
            else:
                children = victim.children()
                if not children:
                    return False
                for child in children:  # which of the slots has the unit cannot be told from outside
                    with contextlib.suppress(psutil.NoSuchProcess):
                        child.kill()
            self.events[f"SIGKILL {what}"] += 1
            # Only one that was on a leased unit counts: the lease that was there before still is.
            hit = mine_before & {(row.id, row.fence) for row in self._leases()}
            if hit:
                self.kills[place] += 1
            if what == "worker":
                self.cluster.workers.remove(victim)
                victim.kill()
                self.cluster.workers.append(self.worker())
            return bool(hit)
        return False

    def kill_api(self) -> None:
        """SIGKILL to the one that is asked; the other one answers, and the storm goes on, until there is a new one."""
        self.cluster.apis.pop().kill()
        self.events["SIGKILL api"] += 1
        self._new_api = threading.Thread(target=self._start_api)
        self._new_api.start()

    def _start_api(self) -> None:
        try:
            self.cluster.apis.insert(0, Api(self.cluster.environment))
        except BaseException as error:
            self.broken.append(error)
            raise

    def pause_worker(self) -> None:
        """SIGSTOP, parent and children, for longer than a lease."""
        victim = self.chance.choice(self.cluster.workers)
        victim.stop_all()
        time.sleep(LEASE_SECONDS * 1.5)
        victim.go_on()
        self.events["SIGSTOP longer than a lease"] += 1

    def lose_redis(self) -> None:
        self.redis.kill()
        time.sleep(self.chance.uniform(0, 2))
        self.redis.start()
        self.events["Redis killed, back and empty"] += 1

    def restart_postgres(self) -> None:
        self.postgres.stop()
        time.sleep(self.chance.uniform(0, 1.5))
        self.postgres.start()
        self.events["PostgreSQL restarted"] += 1

    def fill_disk(self) -> None:
        if not self._mounted:
            return
        ballast = self.cluster.root / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb") as file:
            while True:
                file.write(bytes(MIB))
                file.flush()
        time.sleep(self.chance.uniform(1, 3))
        ballast.unlink()
        self.events["disk filled"] += 1

    def confuse(self) -> None:
        """Messages that nobody sent, doubled, in any order."""
        from blendex.catalog.engine import catalog_id

        app = create_celery(self.redis.url, catalog_id(str(self.cluster.root)), patient=False)
        with contextlib.suppress(Exception):  # Redis may be away: then there is nobody to confuse
            for _ in range(20):
                send_wake(app, self.chance.choice(CLASSES))
        self.events["doubled and reordered messages"] += 20

    def post(self, blend: str, data: Path) -> str:
        """The id of a build; an api that dies meanwhile is asked again, as a launcher would."""
        while True:
            with contextlib.suppress(httpx.TransportError, RuntimeError):
                answer = self.cluster.apis[-1].http.post(
                    "/v1/builds", content=blend, params={"base": str(data), "on_bad": "exclude"}
                )
                if answer.status_code in (200, 202):
                    return str(answer.json()["id"])
                assert answer.status_code >= 500 or answer.status_code == 429, answer.text
            time.sleep(0.2)

    def show(self, build: str) -> dict[str, Any]:
        with contextlib.suppress(httpx.TransportError, RuntimeError, ValueError):
            answer = self.cluster.apis[-1].http.get(f"/v1/builds/{build}")
            if answer.status_code == 200:
                shown: dict[str, Any] = answer.json()
                return shown
        return {"state": "unknown"}

    def ended(self, build: str, seconds: float) -> dict[str, Any]:
        shown: dict[str, Any] = {}

        def over() -> bool:
            shown.update(self.show(build))
            return shown["state"] in ("ready", "failed", "cancelled")

        until = time.monotonic() + seconds
        while not over():
            assert time.monotonic() < until, f"build {build} does not end: {shown}"
            time.sleep(0.2)
        return shown

    def blow(self, builds: list[str], *, each: int, most: float) -> None:
        """Let things happen while these builds run: kills by place, the other misfortunes one after another.

        Until there were ``each`` kills in every place and every misfortune, or the builds have ended, or ``most``
        seconds have passed.
        """
        until = time.monotonic() + most
        others = [
            self.kill_api, self.pause_worker, self.lose_redis, self.restart_postgres, self.fill_disk, self.confuse,
        ]  # fmt: skip
        self.chance.shuffle(others)
        start = Counter(self.kills)
        looked = time.monotonic()
        while time.monotonic() < until and not self.stop.wait(0.02):
            done = {place: self.kills[place] - start[place] for place in PLACES}
            wanted = [place for place in PLACES if done[place] < each]
            if not wanted and not others:
                return
            hit = bool(wanted) and self.kill(
                self.chance.choice(wanted), self.chance.choice(("child", "child", "worker"))
            )
            if others and (hit or not wanted) and self.chance.random() < 0.5:
                others.pop()()
            if time.monotonic() - looked > 1:
                looked = time.monotonic()
                if all(self.show(build)["state"] in ("ready", "failed", "cancelled") for build in builds):
                    return


def calm(folder: Path, blend: str, data: Path) -> dict[str, Any]:
    """The same blend, poisons and all, built in one process that nobody disturbs."""
    journal = folder / "calm-journal"
    journal.touch()
    values = {name: value for name, value in SETTINGS.items() if name in ("unit_memory_mb", "stall_seconds")}
    site = corpus.site(folder / "calm", **values)
    result = run_build(site, corpus.submission(blend, data, on_bad="exclude"), runner=StormSlots(2, str(journal), 0.0))
    site.work.engine.dispose()
    return result


def reads(journal: Path) -> tuple[int, Counter[str]]:
    """Sources read by attempts that ended, and the attempts."""
    total, attempts = 0, Counter[str]()
    for line in journal.read_text().splitlines():
        name, count = line.split()
        total += int(count)
        attempts[name] += 1
    return total, attempts
