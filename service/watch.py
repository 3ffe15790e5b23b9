"""Watching builds: one poller per process reads what changed and tells every stream and every waiter.

What is told is the state as it is now with its version, never a history: who misses two changes sees one. The
poller runs only while somebody listens. Besides single builds, whole subjects can be followed ("builds", "workers",
"mirrors"): their version is a number that is another one when something changed there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool

from blendex.builds import describe
from blendex.builds.looks import Looks
from blendex.builds.site import Site
from blendex.catalog import builds
from blendex.catalog.pulse import SUBJECTS, pulses

logger = logging.getLogger("blendex.service")

# One small statement for all listeners of a process; a job that waits for its mirror waits half of it longer.
POLL_SECONDS = 0.1
AWAY_SECONDS = 2.0
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
    snapshot: Snapshot | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def publish(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
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
        self._task: asyncio.Task[None] | None = None
        self._kick = asyncio.Event()
        self.streams = 0

    async def follow(self, build: str, after: int | None = None) -> AsyncGenerator[Snapshot, None]:
        """The states of a build as they come, beginning with the one of now, until it ended.

        Args:
            build: a build that exists, or a subject.
            after: the version that the caller has seen.
        """
        entry = self._entries.setdefault(build, _Entry())
        entry.listeners += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._poll(), name="blendex-watch")
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
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _poll(self) -> None:
        while self._entries:
            self._kick.clear()
            seen = {
                build: -1 if entry.snapshot is None else entry.snapshot.version
                for build, entry in self._entries.items()
            }
            pause = POLL_SECONDS
            try:
                changed = await run_in_threadpool(self._read, seen)
            except SQLAlchemyError:
                logger.warning("the database does not answer; watching goes on when it does", exc_info=True)
                changed, pause = {}, AWAY_SECONDS
            for build, snapshot in changed.items():
                if (entry := self._entries.get(build)) is not None:
                    entry.publish(snapshot)
            try:
                async with asyncio.timeout(pause):
                    await self._kick.wait()
            except TimeoutError:
                pass

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
