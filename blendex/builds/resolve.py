"""Resolve: from the id of a build, a name or a mirror key to what a shell needs. Published answers come from memory.

A ready build never changes, so what was read once of its folder is kept; whether its mirror is still there costs
two stats. Only builds that run are looked up in the catalog.

While the catalog is away, the root tells of what is published, and the answers say that they are degraded: a name may
have moved a moment before, and of what is not in the root nobody can say whether it runs, failed or never was.

Whoever will use what is answered calls ``keep``: with a hold it is taken, and committed, before the answer. Without one
the mirror is kept for a day: that is noted in the catalog once in a while, far more often than anything is collected.
"""

from __future__ import annotations

import copy
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from blendex.builds.describe import eta
from blendex.builds.naming import not_found
from blendex.builds.site import Site
from blendex.builds.visibility import Verdicts
from blendex.catalog import builds, dialect, mirrors
from blendex.errors import BlendexError, Code
from blendex.mirrors import collect, holds, ondisk
from blendex.mirrors.holds import Wish
from blendex.observability import metrics
from blendex.storage.root import HEX

KEPT = 10_000
T = TypeVar("T")


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
    team: str = ""
    degraded: bool = False  # told by the root, while the catalog is away
    lease_until: float | None = None


class Resolver:
    """Answers look-ups for whoever uses a site: what they may not see is not there."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.verdicts = Verdicts()
        self._ready: OrderedDict[str, Answer] = OrderedDict()
        self._noted: OrderedDict[str, float] = OrderedDict()
        self._lock = threading.Lock()

    def used_by(self, site: Site) -> Resolver:
        """The same, with what it has kept, for somebody else."""
        other = copy.copy(self)
        other._site = site
        return other

    def build(self, build: str) -> Answer:
        """The state of a build.

        Raises:
            BlendexError: not_found.
        """
        with self._lock:
            kept = self._ready.get(build)
        if kept is not None:
            if not self._site.who.sees(kept.team):
                raise not_found("build", build)
            return self._alive(kept)
        return self.either(lambda: self._from_catalog(build), lambda: self._from_root(build))

    def either(self, catalog: Callable[[], T], root: Callable[[], T]) -> T:
        """What the catalog says; what the root says while the catalog is away."""
        if self._site.work.resting():
            return root()
        try:
            return catalog()
        except dialect.AWAY:
            return root()

    def _from_root(self, build: str) -> Answer:
        data = ondisk.ready_build(self._site.root, build)
        if data is None or not self._site.who.sees(data.get("team", "")):
            raise unknown_now("build", build)
        key = data["key"]
        path = self._site.root.mirror(key)
        excluded, team = len(data["excluded"]), data.get("team", "")
        return self._alive(Answer("ready", build, key=key, path=path, excluded=excluded, team=team))

    def _from_catalog(self, build: str) -> Answer:
        with self._site.work.read() as session:
            row = builds.get(session, build)
            if row is None or not self._site.who.sees(row.team):
                raise not_found("build", build)
            if row.state in ("failed", "cancelled"):
                error = BlendexError.from_dict(row.error) if row.error else None
                if self._site.who.nameless:
                    error = _untold(row.state)
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
                team=row.team,
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

        def catalog() -> str:
            with self._site.work.read() as session:
                row = mirrors.name(session, name)
                if row is None or not self._site.who.sees(row.team):
                    raise not_found("name", name)
                return row.build

        def root() -> str:
            data = ondisk.name(self._site.root, name)
            if data is None or not self._site.who.sees(data.get("team", "")):
                raise unknown_now("name", name)
            return str(data["build"])

        return self.build(self.either(catalog, root))

    def mirror(self, key: str) -> Answer:
        """Whether a mirror is there.

        Raises:
            BlendexError: not_found.
        """
        if len(key) != 64 or not HEX.issuperset(key):
            raise not_found("mirror", key)
        if not self.verdicts.mirror(self._site, key):
            raise not_found("mirror", key)
        degraded = self._site.work.away
        answer = Answer("ready", key=key, path=self._site.root.mirror(key), degraded=degraded)
        if self._there(answer):
            return answer
        if os.path.exists(self._site.root.receipt(key)):
            return Answer("collected", key=key, degraded=degraded)
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
            held = holds.take(session, self._site.root, self._site.settings, answer.key, wish, self._site.who.team)
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
        if not self._there(answer):
            return self._gone(answer)
        return replace(answer, degraded=True) if self._site.work.away else answer

    def _gone(self, answer: Answer) -> Answer:
        with self._lock:
            self._ready.pop(answer.build or "", None)
        return Answer("collected", answer.build, key=answer.key, degraded=self._site.work.away)


def _untold(state: str) -> BlendexError:
    """What somebody is told of a failure who has not said who they are: why it failed names sources."""
    return BlendexError(Code.WRONG_STATE, f"the build is {state}.", next_step="Ask with a token to be told why.")


def unknown_now(what: str, name: str) -> BlendexError:
    """The root does not know it, and the catalog, which would, is away."""
    return BlendexError(
        Code.CATALOG_AWAY,
        f"the database does not answer, and no published {what} {name} is in the root.",
        next_step="Ask again in a few seconds.",
    )
