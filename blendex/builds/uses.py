"""Use: whoever will use what a look-up answered says so here first.

With a hold it is taken, and committed, before the answer is given. Without one the mirror is kept for a day: that is
noted in the catalog once in a while, far more often than anything is collected.
"""

from __future__ import annotations

import copy
import threading
import time
from dataclasses import replace

from blendex.builds.answers import Answer
from blendex.builds.latest import Latest
from blendex.builds.site import Site
from blendex.catalog import dialect
from blendex.mirrors import collect, holds
from blendex.mirrors.holds import Wish
from blendex.observability import metrics

KEPT = 10_000


class Uses:
    """Keeps what is answered for whoever uses a site, and remembers what was noted a moment ago."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._noted = Latest[str, float](KEPT)
        self._lock = threading.Lock()

    def used_by(self, site: Site) -> Uses:
        """The same, with what it has noted, for somebody else."""
        other = copy.copy(self)
        other._site = site
        return other

    def keep(self, answer: Answer, wish: Wish | None = None) -> Answer:
        """The same answer, for somebody who will use it: what it names stays; or collected, if somebody was faster.

        Args:
            answer: of a resolver of the same site.
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
            return answer.collected(degraded=self._site.work.away)
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
            return answer.collected(degraded=self._site.work.away)
        with self._lock:
            self._noted[key] = begun
        return answer
