"""Resolve: from the id of a build, a name or a mirror key to what a shell needs. Published answers come from memory.

A ready build never changes, so what was read once of its folder is kept; whether its mirror is still there costs
two stats. Only builds that run are looked up in the catalog.

Whoever will use what is answered calls ``keep``: with a hold it is taken, and committed, before the answer. Without one
the mirror is kept for a day: that is noted in the catalog once in a while, far more often than anything is collected.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, replace

from blendex.builds.control import not_found
from blendex.builds.describe import eta
from blendex.builds.site import Site
from blendex.catalog import builds, dialect, mirrors
from blendex.errors import BlendexError
from blendex.mirrors import collect, holds
from blendex.mirrors.holds import Wish
from blendex.observability import metrics
from blendex.storage.root import HEX

KEPT = 10_000


@dataclass(frozen=True, slots=True)
class Answer:
    """Where a mirror is, or how far it is."""

    state: str  # ready, building, failed, cancelled, collected
    build: str | None = None
    key: str | None = None
    path: str | None = None
    excluded: int = 0
    stage: str = ""
    done: int = 0
    total: int = 0
    eta_seconds: float | None = None
    error: BlendexError | None = None
    lease_until: float | None = None


class Resolver:
    """Answers look-ups for one site."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._ready: OrderedDict[str, Answer] = OrderedDict()
        self._noted: OrderedDict[str, float] = OrderedDict()
        self._lock = threading.Lock()

    def build(self, build: str) -> Answer:
        """The state of a build.

        Raises:
            BlendexError: not_found.
        """
        with self._lock:
            kept = self._ready.get(build)
        if kept is not None:
            return self._alive(kept)
        with self._site.work.read() as session:
            row = builds.get(session, build)
            if row is None:
                raise not_found("build", build)
            if row.state in ("failed", "cancelled"):
                error = BlendexError.from_dict(row.error) if row.error else None
                return Answer(row.state, row.id, error=error, total=row.sources)
            if row.state != "ready":
                waiting = builds.left(session, build)[1] if row.state == "indexing" else 0
                done = row.sources - waiting if row.state not in ("queued", "planning") else 0
                return Answer(
                    "building",
                    row.id,
                    stage=row.state,
                    done=done,
                    total=row.sources,
                    eta_seconds=eta(row, done),
                )
            assert row.mirror is not None
            answer = Answer(
                "ready",
                row.id,
                key=row.mirror,
                path=self._site.root.mirror(row.mirror),
                excluded=len(row.excluded),
            )
        with self._lock:
            self._ready[build] = answer
            while len(self._ready) > KEPT:
                self._ready.popitem(last=False)
        return self._alive(answer)

    def name(self, name: str) -> Answer:
        """Where a name points now.

        Raises:
            BlendexError: not_found.
        """
        with self._site.work.read() as session:
            row = mirrors.name(session, name)
            if row is None:
                raise not_found("name", name)
            build = row.build
        return self.build(build)

    def mirror(self, key: str) -> Answer:
        """Whether a mirror is there.

        Raises:
            BlendexError: not_found.
        """
        if len(key) != 64 or not HEX.issuperset(key):
            raise not_found("mirror", key)
        answer = Answer("ready", key=key, path=self._site.root.mirror(key))
        if self._there(answer):
            return answer
        if os.path.exists(self._site.root.receipt(key)):
            return Answer("collected", key=key)
        raise not_found("mirror", key)

    def keep(self, answer: Answer, wish: Wish | None = None) -> Answer:
        """The same answer, for somebody who will use it: what it names stays; or collected, if somebody was faster.

        Args:
            answer: of this resolver.
            wish: the hold to take.

        Raises:
            BlendexError: bad_request, for a hold that cannot be granted.
        """
        if answer.state != "ready" or answer.key is None:
            return answer
        if wish is None:
            return self._noted_use(answer, answer.key)
        with self._site.work.write() as session:
            held = holds.take(session, self._site.root, self._site.settings, answer.key, wish)
        if held is None:
            return self._gone(answer)
        return replace(answer, lease_until=held.until)

    def _noted_use(self, answer: Answer, key: str) -> Answer:
        every = collect.noted_every(self._site.settings)
        begun = time.monotonic()
        with self._lock:
            if begun - self._noted.get(key, -every) < every:
                return answer
        try:
            with self._site.work.write() as session:
                there = holds.want(session, self._site.root, key)
        except dialect.AWAY:
            # A look-up answers while the database is away, and nobody collects then. Who must be sure takes a hold.
            metrics.DATABASE_AWAY.inc()
            return answer
        if not there:
            return self._gone(answer)
        with self._lock:
            self._noted[key] = begun
            self._noted.move_to_end(key)
            while len(self._noted) > KEPT:
                self._noted.popitem(last=False)
        return answer

    def _there(self, answer: Answer) -> bool:
        """The mirror, and the folder of the build through which it was asked for: both go together."""
        assert answer.path is not None
        pointer = None if answer.build is None else os.path.join(self._site.root.build(answer.build), "path")
        return os.path.exists(os.path.join(answer.path, "READY")) and (pointer is None or os.path.exists(pointer))

    def _alive(self, answer: Answer) -> Answer:
        return answer if self._there(answer) else self._gone(answer)

    def _gone(self, answer: Answer) -> Answer:
        with self._lock:
            self._ready.pop(answer.build or "", None)
        return Answer("collected", answer.build, key=answer.key)
