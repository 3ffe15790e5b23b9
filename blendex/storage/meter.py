"""What an endpoint was measured to do: moving medians that choose how its objects are read.

A child starts from what the catalog remembers of the endpoint and reports what it measured. Numbers of one response are
noise, and the first one holds the making of a connection: the middle of the last ones counts. What is known of a way
that is passed over is believed a little less each time, so that it is tried again now and then; a new measurement ends
the doubt.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from statistics import median

LAST = 9  # measurements that count
BEFORE = 4  # of them, what the catalog remembers
# Before anything was measured: a near cluster behind one redirect, one stream of a busy node.
LATENCY = 0.006
BANDWIDTH = 50e6
# Less than this may have waited in a socket's buffer, and tells nothing of bandwidth.
LEAST_BYTES = 2**20
MOST_RATE = 20e9
DOUBT = 0.995
MUCH_DOUBT = 0.7  # what was known before is forgotten with the next measurement


class Middle:
    """A moving median: of what was known before, and of the last measurements."""

    def __init__(self, known: float, assumed: float = 0.0) -> None:
        self._samples: deque[float] = deque([known] * BEFORE if known else (), maxlen=LAST)
        self.value = known or assumed
        self.known = bool(known)
        self.doubt = 1.0

    def add(self, sample: float) -> None:
        """One more measurement."""
        if self.doubt < MUCH_DOUBT:
            self._samples.clear()
        self._samples.append(sample)
        self.value = median(self._samples)
        self.known, self.doubt = True, 1.0


class Meter:
    """Seconds to the first byte, bytes per second of one stream and of several, seconds of a hop beside others."""

    def __init__(self, known: Mapping[str, float] | None = None) -> None:
        known = known or {}
        self._lock = threading.Lock()
        self._latency = Middle(known.get("latency", 0.0), LATENCY)
        self._stream = Middle(known.get("stream", 0.0), BANDWIDTH)
        self._together = Middle(known.get("together", 0.0))
        self._lookahead = Middle(known.get("lookahead", 0.0))
        self.samples = 0

    @property
    def latency(self) -> float:
        """Seconds to the first byte of a request that is alone."""
        return self._latency.value

    @property
    def stream(self) -> float:
        """Bytes per second of one stream."""
        return self._stream.value

    @property
    def streamed_once(self) -> bool:
        """Whether one stream alone was ever measured."""
        return self._stream.known

    @property
    def together(self) -> float:
        """Bytes per second of several streams, the more the longer ago it was measured; 0: never."""
        return self._together.value / self._together.doubt

    @property
    def lookahead(self) -> float:
        """Seconds from step to step of several walks, the less the longer ago it was measured; 0: never."""
        return self._lookahead.value * self._lookahead.doubt

    def answered(self, seconds: float) -> None:
        """A response began after ``seconds``."""
        self._add(self._latency, seconds)

    def streamed(self, count: int, seconds: float) -> None:
        """One stream brought ``count`` bytes in ``seconds`` of waiting for it."""
        if count >= LEAST_BYTES and seconds > 0:
            self._add(self._stream, min(count / seconds, MOST_RATE))

    def windowed(self, count: int, seconds: float) -> None:
        """Several streams together brought ``count`` bytes in ``seconds``."""
        if count >= LEAST_BYTES and seconds > 0:
            self._add(self._together, min(count / seconds, MOST_RATE))

    def hopped(self, steps: int, seconds: float) -> None:
        """Several walks together went ``steps`` steps in ``seconds``."""
        if steps > 0:
            self._add(self._lookahead, seconds / steps)

    def _add(self, average: Middle, sample: float) -> None:
        with self._lock:
            average.add(sample)
            self.samples += 1

    def passed(self, *ways: str) -> None:
        """Ways that were measured were passed over."""
        with self._lock:
            for way, average in (("windows", self._together), ("lookahead", self._lookahead)):
                if way in ways:
                    average.doubt *= DOUBT

    def as_dict(self) -> dict[str, float]:
        """What the catalog shall remember; 0: never measured."""
        return {
            name: average.value if average.known else 0.0
            for name, average in (
                ("latency", self._latency), ("stream", self._stream), ("together", self._together),
                ("lookahead", self._lookahead),
            )
        }  # fmt: skip
