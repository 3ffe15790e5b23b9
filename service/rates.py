"""Rates: how often one caller may ask, by token buckets in this process.

Look-ups, reads and writes have buckets of their own, so that nobody who lists builds keeps a batch job from its path.
A bucket holds what may come at once, ``BURST_SECONDS`` of its rate, and fills evenly. Each api process counts for
itself: of N behind one balancer a caller gets up to N times the rate.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from blendex.builds.latest import Latest
from blendex.errors import BlendexError, Code
from blendex.observability import metrics
from service.callers import Gate
from service.problems import reply

BURST_SECONDS = 10.0
# Of the callers seen last; one that is forgotten begins with a full bucket.
KEPT = 50_000
# Probes and files of pages cost nothing, and a probe that is refused restarts a process.
FREE = ("/healthz", "/readyz", "/metrics", "/static/")


class Buckets:
    """The buckets of one sort of request.

    Args:
        rate: requests per second.
        clock: seconds.
    """

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._size = max(1.0, rate * BURST_SECONDS)
        self._clock = clock
        self._held = Latest[str, tuple[float, float]](KEPT)

    def take(self, key: str) -> float:
        """Take one; 0.0, or the seconds until there is one."""
        now = self._clock()
        tokens, at = self._held.get(key, (self._size, now))
        tokens = min(self._size, tokens + (now - at) * self._rate)
        wait = 0.0 if tokens >= 1 else (1 - tokens) / self._rate
        self._held[key] = (tokens if wait else tokens - 1, now)
        return wait


def sort_of(method: str, path: str) -> str | None:
    """lookup, read or write; None for what is free."""
    if path.startswith(FREE):
        return None
    if method not in ("GET", "HEAD", "OPTIONS"):
        return "write"
    return "lookup" if path.endswith("/path") else "read"


class RateLimit:
    """Answers 429, with the time after which to come again.

    Args:
        app: what is protected.
        rates: requests per second by sort; 0: any number.
        key: who a request is put down to.
    """

    def __init__(self, app: ASGIApp, rates: Mapping[str, float], key: Callable[[Request], str] | None = None) -> None:
        self._app = app
        self._buckets = {sort: Buckets(rate) for sort, rate in rates.items() if rate > 0}
        self._key = key or who

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, if its caller has not sent too many."""
        sort = sort_of(scope["method"], scope["path"]) if scope["type"] == "http" and self._buckets else None
        buckets = self._buckets.get(sort or "")
        if buckets is None:
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        wait = buckets.take(self._key(request))
        if not wait:
            await self._app(scope, receive, send)
            return
        seconds = math.ceil(wait)
        metrics.LIMITED.labels(str(sort)).inc()
        error = BlendexError(
            Code.RATE_LIMITED,
            f"too many requests of this sort ({sort}).",
            next_step=f"Come again in {seconds} s, and ask less often; wait= waits without asking.",
        )
        answer = reply(request, error, headers={"Retry-After": str(seconds)}, extra={"sort": sort, "seconds": seconds})
        await answer(scope, receive, send)


def who(request: Request) -> str:
    """The token of a caller that is known to be good, or where it asks from."""
    gate: Gate = request.app.state.gate
    token = gate.known(request)
    return f"token/{token}" if token is not None else f"address/{request.client.host if request.client else ''}"
