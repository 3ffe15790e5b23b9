"""Resolve: from the id of a build, a name or a mirror key to what a shell needs. Published answers come from memory.

A ready build never changes, so what was read once of its folder is kept; whether its mirror is still there costs
two stats. Only builds that run are looked up in the catalog.

While the catalog is away, the root tells of what is published (``degraded``). An answer keeps nothing: whoever will use
it says so first (``uses``).
"""

from __future__ import annotations

import copy
import os
import threading
from dataclasses import replace

from blendex.builds import degraded
from blendex.builds.answers import Answer
from blendex.builds.describe import eta
from blendex.builds.latest import Latest
from blendex.builds.naming import not_found
from blendex.builds.site import Site
from blendex.builds.visibility import Verdicts
from blendex.catalog import builds, mirrors
from blendex.errors import BlendexError, Code
from blendex.storage.root import HEX

KEPT = 10_000


class Resolver:
    """Answers look-ups for whoever uses a site: what they may not see is not there."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.verdicts = Verdicts()
        self._ready = Latest[str, Answer](KEPT)
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
        return degraded.either(
            self._site,
            lambda: self._from_catalog(build),
            lambda: self._alive(degraded.answer(self._site, build)),
        )

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

        return self.build(degraded.either(self._site, catalog, lambda: degraded.build_of(self._site, name)))

    def mirror(self, key: str) -> Answer:
        """Whether a mirror is there.

        Raises:
            BlendexError: not_found.
        """
        if len(key) != 64 or not HEX.issuperset(key):
            raise not_found("mirror", key)
        if not self.verdicts.mirror(self._site, key):
            raise not_found("mirror", key)
        away = self._site.work.away
        answer = Answer("ready", key=key, path=self._site.root.mirror(key), degraded=away)
        if self._there(answer):
            return answer
        if os.path.exists(self._site.root.receipt(key)):
            return answer.collected(degraded=away)
        raise not_found("mirror", key)

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
        return answer.collected(degraded=self._site.work.away)


def _untold(state: str) -> BlendexError:
    """What somebody is told of a failure who has not said who they are: why it failed names sources."""
    return BlendexError(Code.WRONG_STATE, f"the build is {state}.", next_step="Ask with a token to be told why.")
