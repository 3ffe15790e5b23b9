"""Headers of a tar that lie ahead: several walks at a time, each through a stretch of its own.

Where the next header is, only the one before it tells, so one walk waits for each. But headers can be known by their
look: a walk that begins in the middle finds the first one there (``ustar``, on a block, its checksum right) and goes
on from it. Nothing is concluded from what these walks see. They bring bytes that whoever walks through the archive in
order will ask for, at the places where they are; a walk that mistook the data of a member for a header brings what
nobody asks for.
"""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import Future

from blendex.formats.tarheader import BLOCK, first_header, to_next
from blendex.storage.endpoint import Endpoint
from blendex.storage.interface import Stat
from blendex.storage.profiles import Place

HOP = 4096  # a header, and what often follows it
WALKS = 8  # stretches in flight
STEPS_EACH = 32  # in one stretch, about
STEPS_FIRST = 16  # in each of the first ones: what walks are worth shall be known soon
LEAST_LOOK, MOST_LOOK = 64 * 1024, 2**20  # bytes that are searched for a first header at a time
LOOKS = 4
# Such a part of what is asked for was not found by walks: the object is no archive that they can follow.
FRUITLESS = 8


class Lookahead:
    """Blocks of one object by their places, ahead of who asks for them in order.

    Args:
        endpoint, place, stat: the object.
        start: of the first header, multiple of a block behind the object's begin.
        step: bytes from header to header, about.
    """

    cut = False

    def __init__(self, endpoint: Endpoint, place: Place, start: int, stat: Stat, step: float) -> None:
        self._endpoint = endpoint
        self._place = place
        self._stat = stat
        self._step = step
        self._start = self._next = self._stop = start
        self._most = max(1, min(WALKS, endpoint.profile.parallel))
        # The last walks shall end together: many stretches, or as many as there are walks.
        self._even = (stat.size - start) / self._most
        self._asked = 0
        self._flight: deque[tuple[int, Future[dict[int, bytes]]]] = deque()
        self._found: dict[int, bytes] = {}
        self._hits = self._misses = 0
        self._steps = self._taken = 0  # since the last measurement
        self._closed = False
        self._since = time.monotonic()

    def _ask(self) -> None:
        while len(self._flight) < self._most and self._next < self._stat.size:
            steps = STEPS_FIRST if self._asked < self._most else STEPS_EACH
            length = max(BLOCK, int(min(steps * self._step, self._even)) // BLOCK * BLOCK)
            start, stop = self._next, min(self._next + length, self._stat.size)
            self._asked += 1
            self._flight.append((stop, self._endpoint.pool().submit(self._walk, start, stop)))
            self._next = stop

    def _walk(self, start: int, stop: int) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        at = start if start == self._start else self._look(start, stop, found)
        while at is not None and at < stop and not self._closed:
            if at not in found:
                found[at] = self._endpoint.range(self._place, at, min(at + HOP, self._stat.size), self._stat)
            step = to_next(found[at])
            at = None if step is None else at + step
        return found

    def _look(self, start: int, stop: int, found: dict[int, bytes]) -> int | None:
        """The first header from ``start`` on, which is ``found`` where it was seen whole."""
        size = int(min(max(self._step, LEAST_LOOK), MOST_LOOK)) // BLOCK * BLOCK
        for look in range(LOOKS):
            at = start + look * size
            if at >= stop:
                return None
            data = self._endpoint.range(self._place, at, min(at + size, self._stat.size), self._stat)
            inside = first_header(data)
            if inside is not None:
                if inside + HOP <= len(data):
                    found[at + inside] = data[inside : inside + HOP]
                return at + inside
        return None

    @property
    def fruitless(self) -> bool:
        """Whether too little of what was asked for was found."""
        return self._misses > FRUITLESS + self._hits // FRUITLESS

    def piece(self, position: int) -> tuple[int, memoryview] | None:
        """Some bytes from ``position`` on; None where no walk came."""
        self._ask()
        while position >= self._stop and self._flight:
            self._stop, future = self._flight.popleft()
            self._found = future.result()
            self._measure(len(self._found))
            self._ask()
        data = self._found.get(position)
        if data is None:
            self._misses += 1
            return None
        self._hits += 1
        return position, memoryview(data)

    def _measure(self, steps: int) -> None:
        """After each round of stretches: the first of one is waited for, the others come with it."""
        self._steps += steps
        self._taken += 1
        if self._taken == self._most:
            now = time.monotonic()
            self._endpoint.meter.hopped(self._steps, now - self._since)
            self._steps, self._taken, self._since = 0, 0, now

    def close(self) -> None:
        """Let go what is in flight."""
        self._closed = True
        for _, future in self._flight:
            future.cancel()
        self._flight.clear()
