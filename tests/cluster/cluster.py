"""A cluster of processes: api servers, workers, PostgreSQL, Redis; and the checks of what it did."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import text

from blendex.builds.site import Site, open_site
from blendex.settings import Settings
from tests.support import services
from tests.support.corpus import sidecars

HERE = Path(__file__).parent
# Short, so that losing one costs a test seconds; everything else about leases is as in production.
LEASE_SECONDS = 3.0


def wait_for(what: Callable[[], Any], seconds: float = 60.0, every: float = 0.05, says: str = "") -> Any:
    """The first true value of ``what``."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(httpx.TransportError):
            if value := what():
                return value
        assert time.monotonic() < deadline, says or f"{what} did not come true in {seconds} s"
        time.sleep(every)


class Process:
    """One ``blendex`` process, with its own group."""

    def __init__(self, arguments: list[str], environment: dict[str, str], bug: str | None = None) -> None:
        self.log = tempfile.NamedTemporaryFile(suffix=".log", delete=False)  # noqa: SIM115
        self.bug = bug
        self.popen = subprocess.Popen(
            [sys.executable, "-c", self.code(), *arguments],
            env=os.environ | environment, stdout=subprocess.PIPE, stderr=self.log, text=True, start_new_session=True,
            cwd=HERE.parent.parent,
        )  # fmt: skip

    def code(self) -> str:
        """What the process runs, as Python."""
        code = "from blendex.cli import main; main()"
        return code if self.bug is None else f"from tests.cluster.bugs import plant; plant({self.bug!r}); {code}"

    @property
    def pid(self) -> int:
        return self.popen.pid

    def children(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(self.pid).children(recursive=True)
        return []

    def alive(self) -> bool:
        return self.popen.poll() is None

    def send(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    def stop_all(self) -> None:
        """SIGSTOP it and its children, as a paused machine would."""
        os.killpg(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.killpg(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        self.popen.kill()
        self.close()

    def text(self) -> str:
        return Path(self.log.name).read_text()

    def close(self) -> None:
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGCONT)
            self.send(signal.SIGTERM)
            try:
                self.popen.wait(20)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()
        if self.popen.stdout:
            self.popen.stdout.close()
        if not self.log.closed:
            self.log.close()
            os.unlink(self.log.name)


class Api(Process):
    """A real uvicorn, by ``blendex serve``."""

    def __init__(self, environment: dict[str, str], bug: str | None = None) -> None:
        super().__init__(["serve", "--port", "0", "--allow-root", "/"], environment, bug)
        assert self.popen.stdout is not None
        self.url = self.popen.stdout.readline().strip()
        assert self.url, self.text()
        self.http = httpx.Client(base_url=self.url, timeout=90, trust_env=False)

    def close(self) -> None:
        self.http.close()
        super().close()


class Worker(Process):
    """A worker, by ``blendex worker``."""

    def __init__(self, environment: dict[str, str], *arguments: str, bug: str | None = None) -> None:
        self.probe = services.free_port()
        environment = environment | {"BLENDEX_METRICS_PORT": str(self.probe)}
        super().__init__(["worker", "--allow-root", "/", *arguments], environment, bug)

    def ready(self) -> bool:
        assert self.alive(), self.text()
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"http://127.0.0.1:{self.probe}/healthz", trust_env=False).status_code == 200
        return False

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that have these labels."""
        text = httpx.get(f"http://127.0.0.1:{self.probe}/metrics", trust_env=False).text
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )


class Cluster:
    """Two api processes and three workers over one root, one database and one broker."""

    def __init__(self, root: Path, database_url: str, broker_url: str, **settings: object) -> None:
        self.root = root
        self.database_url = database_url
        self.settings = {
            "root": root, "database_url": database_url, "broker_url": broker_url, "lease_seconds": LEASE_SECONDS,
            "poll_seconds": 0.5, "drain_seconds": 5, "slots": 1, "unit_sources": 50, "log_level": "INFO",
        } | settings  # fmt: skip
        self.environment = {f"BLENDEX_{name.upper()}": str(value) for name, value in self.settings.items()}
        self.site: Site = open_site(Settings.model_validate(self.settings), ("/",), "blendex test")
        self.apis: list[Api] = []
        self.workers: list[Worker] = []

    def start(self, apis: int = 2, workers: int = 3, bug: str | None = None) -> Cluster:
        self.workers += [Worker(self.environment, bug=bug) for _ in range(workers)]
        self.apis += [Api(self.environment, bug) for _ in range(apis)]
        for worker in self.workers:
            wait_for(worker.ready, 60)
        return self

    def add_worker(self, *arguments: str, bug: str | None = None) -> Worker:
        worker = Worker(self.environment, *arguments, bug=bug)
        self.workers.append(worker)
        wait_for(worker.ready, 60)
        return worker

    def remove(self, worker: Worker) -> None:
        self.workers.remove(worker)
        worker.close()

    def post(self, blend: str, folder: Path, api: int = 0, **query: Any) -> dict[str, Any]:
        answer = self.apis[api].http.post("/v1/builds", content=blend, params={"base": str(folder), **query})
        assert answer.status_code in (200, 202), answer.text
        value: dict[str, Any] = answer.json()
        return value

    def show(self, build: str, api: int = -1) -> dict[str, Any]:
        """A build as an api process tells it; without a state while the database is away."""
        value: dict[str, Any] = self.apis[api].http.get(f"/v1/builds/{build}").json()
        return value

    def ended(self, build: str, seconds: float = 120.0) -> dict[str, Any]:
        """The build, once it ended."""
        found: dict[str, Any] = wait_for(
            # While the database is away an api tells what lies in the root: less than a test wants to know.
            lambda: (shown := self.show(build))
            and "degraded" not in shown
            and shown.get("state") in ("ready", "failed", "cancelled")
            and shown,
            seconds,
            says=f"build {build} does not end: {self.show(build)}",
        )
        return found

    def in_state(self, build: str, state: str) -> None:
        wait_for(lambda: self.show(build).get("state") == state, 60, 0.02)

    def metric(self, name: str, **labels: str) -> float:
        return sum(worker.metric(name, **labels) for worker in self.workers)

    def close(self) -> None:
        for process in [*self.workers, *self.apis]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGCONT)
            if process.alive():
                process.send(signal.SIGTERM)
        for process in [*self.workers, *self.apis]:
            process.close()
        self.site.work.engine.dispose()

    # What must be true afterwards, whatever happened meanwhile.

    def check(
        self, build: dict[str, Any], calm: dict[str, Any], *, wasted: int | None = None, but: tuple[str, ...] = ()
    ) -> None:
        """Hold a build against the same submission built calmly in one process.

        Args:
            build: as the cluster shows it.
            calm: the description of the calm one.
            wasted: attempts whose outcome came to nothing; None: any number.
            but: what may be left over.
        """
        assert build["state"] == "ready", build
        assert build["mirror"] == calm["mirror"]
        assert sidecars(build["path"]) == sidecars(calm["path"])
        # Counted by effect: what is taken over twice is credited twice.
        assert build["opened"] == calm["opened"], f"{build['opened']} sources were read, {calm['opened']} there are"
        assert Path(self.root, "builds", build["id"], "path").read_text() == build["path"] + "\n"
        if wasted is not None:
            lost = self.metric("blendex_units_ended_total", outcome="lost")
            assert lost == wasted, f"the work of {lost:.0f} attempts came to nothing, {wasted} may"
        self.at_rest(but)

    def at_rest(self, but: tuple[str, ...] = ()) -> None:
        """Nothing is left over: no unit, no promise to read, no wake-up, no private file."""

        def leftovers() -> dict[str, int]:
            with self.site.work.read() as session:
                found = {
                    table: session.execute(text(f"SELECT count(*) FROM {table}")).scalar_one()
                    for table in ("units", "pending", "subscriptions", "outbox")
                }
            found["staging"] = len(os.listdir(self.root / "staging"))
            return {name: count for name, count in found.items() if count and name not in but}

        deadline = time.monotonic() + 30
        while left := leftovers():
            assert time.monotonic() < deadline, f"left over: {left}"
            time.sleep(0.2)


@contextlib.contextmanager
def running(cluster: Cluster) -> Iterator[Cluster]:
    try:
        yield cluster
    finally:
        cluster.close()
