"""Watching builds: one poller per process reads what changed and tells every stream and every waiter.

What is told is the state as it is now with its version, never a history: who misses two changes sees one. The
poller is a thread that runs only while somebody listens; the event loop hears of it when something changed. Besides
single builds, whole subjects can be followed ("builds", "workers", "mirrors"): their version is a number that is
another one when something changed there.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from blendex.builds import describe
from blendex.builds.looks import Looks
from blendex.builds.site import Site
from blendex.catalog import builds
from blendex.catalog.pulse import SUBJECTS, pulses

logger = logging.getLogger("blendex.service")

# One small statement for all listeners of a process; a job that waits for its mirror waits half of it longer.
POLL_SECONDS = 0.1
AWAY_SECONDS = 2.0
CLOSE_SECONDS = 5.0
# Builds asked for in one statement; SQLite takes 32,766 parameters.
BATCH = 1_000
MOST_WAITERS = 2_000
MOST_STREAMS = 500


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A build as it was at one version."""

    version: int
    ended: bool
    summary: dict[str, Any]


@dataclass(slots=True)
class _Entry:
    listeners: int = 0
    snapshot: Snapshot | None = None  # set by the poller, before it has the listeners woken
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self) -> None:
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()


class Watch:
    """Tells listeners of one event loop about builds.

    Args:
        site: root and catalog.
        looks: at the units of builds, shared with the pages that show them.
        most_waiters: callers that may wait at one time; who comes later gets the answer of now.
    """

    def __init__(self, site: Site, looks: Looks, most_waiters: int = MOST_WAITERS) -> None:
        self._site = site
        self._looks = looks
        self._most_waiters = most_waiters
        self._waiters = 0
        self._entries: dict[str, _Entry] = {}
        self._lock = threading.Lock()  # whether there is a poller, and anybody for whom it polls
        self._poller: threading.Thread | None = None
        self._kick = threading.Event()
        self._closed = False
        self.streams = 0

    async def follow(self, build: str, after: int | None = None) -> AsyncGenerator[Snapshot, None]:
        """The states of a build as they come, beginning with the one of now, until it ended.

        Args:
            build: a build that exists, or a subject.
            after: the version that the caller has seen.
        """
        with self._lock:
            entry = self._entries.setdefault(build, _Entry())
            entry.listeners += 1
            if self._poller is None or not self._poller.is_alive():
                loop = asyncio.get_running_loop()
                self._poller = threading.Thread(target=self._poll, args=(loop,), name="blendex-watch", daemon=True)
                self._poller.start()
        if entry.snapshot is None:
            self._kick.set()
        try:
            while True:
                changed, snapshot = entry.changed, entry.snapshot
                if snapshot is not None and snapshot.version != after:
                    after = snapshot.version
                    yield snapshot
                if snapshot is not None and snapshot.ended:
                    return
                if entry.changed is changed:
                    await changed.wait()
        finally:
            with self._lock:
                entry.listeners -= 1
                if not entry.listeners and self._entries.get(build) is entry:
                    del self._entries[build]

    async def until_ended(self, build: str, seconds: float) -> None:
        """Return when a build ended or the time is over; at once when too many wait already."""
        if self._waiters >= self._most_waiters:
            return
        self._waiters += 1
        try:
            async with asyncio.timeout(seconds), aclosing(self.follow(build)) as states:
                async for _ in states:
                    pass
        except TimeoutError:
            pass
        finally:
            self._waiters -= 1

    async def close(self) -> None:
        """Stop polling."""
        with self._lock:
            self._closed = True
            poller = self._poller
        self._kick.set()
        if poller is not None:
            await asyncio.to_thread(poller.join, CLOSE_SECONDS)

    def _poll(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            self._kick.clear()
            with self._lock:
                if self._closed or not self._entries:
                    self._poller = None
                    return
                entries = dict(self._entries)
            seen = {build: -1 if entry.snapshot is None else entry.snapshot.version for build, entry in entries.items()}
            changed, pause = dict[str, Snapshot](), AWAY_SECONDS
            try:
                changed, pause = self._read(seen), POLL_SECONDS
            except SQLAlchemyError:
                logger.warning("the database does not answer; watching goes on when it does", exc_info=True)
            except Exception:
                logger.exception("watching failed; it goes on")  # those that listen wait for this thread and no other
            for build, snapshot in changed.items():
                entries[build].snapshot = snapshot
            if changed and not self._wake(loop, [entries[build] for build in changed]):
                return
            self._kick.wait(pause)

    def _wake(self, loop: asyncio.AbstractEventLoop, entries: list[_Entry]) -> bool:
        def wake() -> None:
            for entry in entries:
                entry.wake()

        try:
            loop.call_soon_threadsafe(wake)
        except RuntimeError:  # it is closed: nobody listens any more
            return False
        return True

    def _read(self, seen: dict[str, int]) -> dict[str, Snapshot]:
        changed = {}
        wanted = [key for key in seen if key not in SUBJECTS]
        with self._site.work.read() as session:
            for subject, number in pulses(session, SUBJECTS.intersection(seen)).items():
                if number != seen[subject]:
                    changed[subject] = Snapshot(number, False, {})
            for start in range(0, len(wanted), BATCH):
                for build, version in builds.versions(session, wanted[start : start + BATCH]).items():
                    if version != seen[build] and (snapshot := read(self._site, self._looks, session, build)):
                        changed[build] = snapshot
        return changed


def read(site: Site, looks: Looks, session: Any, build: str) -> Snapshot | None:
    """A build as it is now."""
    row = builds.get(session, build)
    if row is None:
        return None
    running = describe.is_running(row)
    seen = looks.seen(session, row) if running else None
    return Snapshot(row.version, not running, describe.build_summary(site, session, row, seen))
