"""Collectors in a storm, what they collect, and who wants it meanwhile.

Small mirrors that nobody holds are built again and again; collectors, with no patience at all, collect them as soon as
they are there; and somebody looks them up with a hold: what was answered 200 must be there until it is let go.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
from sqlalchemy import select, true

from blendex.builds import keeping
from blendex.builds.site import Site, open_site
from blendex.catalog import dialect, holds
from blendex.catalog.models import Mirror
from blendex.settings import Settings
from blendex.storage.root import Root
from tests.cluster.cluster import Process
from tests.support.corpus import manifest, put

if TYPE_CHECKING:
    from tests.storm.storm import Storm

UNHELD = 4
HELD_SECONDS = 0.5


def main(pause: float, bug: str | None) -> None:
    """Collect for ever; between the steps of the protocol is time to be killed in."""
    bury = Root.bury
    if bug == "holds ignored":
        holds.nobody = lambda _session: true()

    def slowly(self: Root, path: str, grave: str) -> bool:
        time.sleep(pause * random.uniform(0.2, 1))
        done = bury(self, path, grave)
        time.sleep(pause * random.uniform(0.2, 1))
        return done

    Root.bury = slowly  # type: ignore[method-assign]
    site: Site | None = None
    while True:
        with contextlib.suppress(*dialect.AWAY, OSError):
            site = site or open_site(Settings(), ("/",), "blendex collect")
            keeping.collected(site, dry=False)
        time.sleep(0.05)


class Collector(Process):
    """A process that collects."""

    def __init__(self, environment: dict[str, str], pause: float, bug: str | None) -> None:
        self._told = (pause, bug)
        super().__init__([], environment)

    def code(self) -> str:
        return f"from tests.storm.collecting import main; main(*{self._told!r})"


class Collecting:
    """Mirrors that nobody holds, their collectors, and who holds one after all."""

    def __init__(self, storm: Storm, data: Path) -> None:
        self.storm = storm
        self.data = data
        self.blends = [
            f"- {{type: nemo, manifest_filepath: {data / f'unheld-{number}.json'}}}\n" for number in range(UNHELD)
        ]
        self.built: dict[int, dict[str, Any]] = {}
        self.keys: set[str] = set()
        self.kept = 0  # look-ups that were answered 200 and kept what they said
        self.gone = 0  # look-ups that were told that it is gone
        self._over = threading.Event()
        self._collectors = [self._collector() for _ in range(2)]
        self._threads = [
            threading.Thread(target=self._guard, args=(what,), daemon=True) for what in (self._breed, self._look)
        ]
        for thread in self._threads:
            thread.start()

    @staticmethod
    def make(data: Path) -> int:
        """The sources of mirrors that nobody will hold; how many."""
        for number in range(UNHELD):
            put(data / f"unheld-{number}.json", manifest(2, f"unheld{number}_"))
        return UNHELD

    def _collector(self) -> Collector:
        return Collector(self.storm.cluster.environment, self.storm.pause, self.storm.bug)

    def _guard(self, what: Any) -> None:
        try:
            while not self._over.wait(0.05):
                with contextlib.suppress(httpx.HTTPError, RuntimeError, ValueError):
                    what()
        except BaseException as error:
            self.storm.broken.append(error)
            raise

    def _breed(self) -> None:
        number = self.storm.chance.randrange(UNHELD)
        http = self.storm.cluster.apis[-1].http
        answer = http.post(
            "/v1/builds", content=self.blends[number], params={"base": str(self.data), "wait": 10}, timeout=20
        )
        if answer.status_code == 200 and (build := answer.json())["state"] == "ready":
            self.keys.add(build["mirror"])
            self.built[number] = build

    def _look(self) -> None:
        if not self.built:
            return
        build = random.choice(list(self.built.values()))
        http = self.storm.cluster.apis[-1].http
        job = f"look.{random.randrange(10**9)}"
        answer = http.get(f"/v1/builds/{build['id']}/path", params={"job": job}, timeout=20)
        if answer.status_code == 410:
            self.gone += 1
        if answer.status_code != 200:
            return
        until = time.monotonic() + HELD_SECONDS
        path = answer.text.strip()
        while time.monotonic() < until:
            assert os.path.exists(os.path.join(path, "READY")), f"{path} was held by {job}, and is gone"
            time.sleep(0.05)
        self.kept += 1
        address = f"/v1/mirrors/{build['mirror']}/holds/job/{job}"
        while not self._over.is_set():  # else it is held to the end of this storm
            with contextlib.suppress(httpx.HTTPError, RuntimeError):
                if self.storm.cluster.apis[-1].http.delete(address, timeout=20).status_code in (200, 404):
                    return
            time.sleep(0.2)

    def _collecting(self) -> set[tuple[str, str | None]]:
        with self.storm.cluster.site.work.read() as session:
            rows = session.execute(select(Mirror.key, Mirror.grave).where(Mirror.state == "collecting"))
            return {(row.key, row.grave) for row in rows}

    def kill(self) -> bool:
        """SIGKILL to a collector; whether one had decided about a mirror, and had not ended with it."""
        before = self._collecting()
        if not before:
            return False
        victim = self._collectors.pop(0)
        victim.popen.kill()
        self.storm.events["SIGKILL collector"] += 1
        hit = bool(before & self._collecting())
        if hit:
            self.storm.kills["collect"] += 1
        victim.kill()
        self._collectors.append(self._collector())
        return hit

    def end(self) -> None:
        """The end: nobody builds, looks or collects any more."""
        self._over.set()
        for thread in self._threads:
            thread.join(60)
        for collector in self._collectors:
            collector.kill()
        self._collectors = []

    def standing(self, root: Path) -> set[str]:
        """Keys of what nobody holds and is still there."""
        return {key for key in self.keys if (root / "mirrors" / key).exists()}
