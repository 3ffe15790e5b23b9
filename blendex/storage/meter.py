"""What an endpoint was measured to do: moving averages that choose how its objects are read.

A child starts from what the catalog remembers of the endpoint and reports what it measured; numbers of one response
are noise, so each counts for a tenth.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

SHARE = 0.1
# Before anything was measured: a near cluster behind one redirect, one stream of a busy node.
LATENCY = 0.006
BANDWIDTH = 50e6
# Less than this may have waited in a socket's buffer, and tells nothing of bandwidth.
LEAST_BYTES = 2**20


class Meter:
    """Seconds to the first byte, and bytes per second of one stream and of several together."""

    def __init__(self, known: Mapping[str, float] | None = None) -> None:
        known = known or {}
        self._lock = threading.Lock()
        self.latency = known.get("latency", LATENCY)
        self.stream = known.get("stream", BANDWIDTH)
        self.together = known.get("together", 0.0)  # 0: never measured
        self.samples = 0

    @property
    def streamed_once(self) -> bool:
        """Whether one stream alone was ever measured."""
        return self.stream != BANDWIDTH

    def answered(self, seconds: float) -> None:
        """A response began after ``seconds``."""
        with self._lock:
            # The first own sample outweighs an assumption, not what was measured before.
            share = 0.5 if self.latency == LATENCY else SHARE
            self.latency += share * (seconds - self.latency)
            self.samples += 1

    def streamed(self, count: int, seconds: float) -> None:
        """One stream brought ``count`` bytes in ``seconds`` of waiting for it."""
        if count < LEAST_BYTES or seconds <= 0:
            return
        with self._lock:
            share = 0.5 if self.stream == BANDWIDTH else SHARE
            self.stream += share * (min(count / seconds, 20e9) - self.stream)
            self.samples += 1

    def windowed(self, count: int, seconds: float) -> None:
        """Several streams together brought ``count`` bytes in ``seconds``."""
        if count < LEAST_BYTES or seconds <= 0:
            return
        rate = min(count / seconds, 20e9)
        with self._lock:
            self.together = rate if not self.together else self.together + SHARE * (rate - self.together)
            self.samples += 1

    def doubt(self) -> None:
        """Several streams were passed over for one: what was measured once of them is believed a little less."""
        with self._lock:
            self.together *= 1.05

    def as_dict(self) -> dict[str, float]:
        """What the catalog shall remember."""
        return {"latency": self.latency, "stream": self.stream, "together": self.together}
