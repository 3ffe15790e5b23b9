"""An opened object: bytes by position, over requests that are chosen as the reading goes.

Four ways lead through a large object, and the endpoint's measured latency L and bandwidth b say which is the shortest:

* one stream, reading on over what is skipped: ``m / b`` seconds for a step of m bytes;
* hops, a small range for each step: ``L + w / b``;
* windows, several ranges of one megabyte and more in flight, of which everything is read: ``m / B``, where B is what
  they bring together;
* lookahead, several walks from header to header that run ahead (``Lookahead``): what a hop costs, shared among them.

Steps are what a builder does: the members of a tar, the chunks of a manifest. The first steps are hops, the next ones a
stream, unless no stream could be quicker; then the cheapest way is taken, at once where objects of the same endpoint
were read before, and thought over now and again. What was never measured is taken for as good as it can be, so it is
tried, and known from then on. All but hops only go forward; whoever goes back hops. Small objects that are wanted
whole come in one response, and their checksum is verified.
"""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from blendex.storage.checksums import agrees, summer
from blendex.storage.endpoint import Endpoint, Stream
from blendex.storage.interface import Stat
from blendex.storage.lookahead import HOP, WALKS, Lookahead
from blendex.storage.patience import damaged
from blendex.storage.profiles import Place

# Up to here an object that is wanted whole is read into memory at once.
WHOLE = 8 * 2**20
FIRST = 128 * 1024
FLIGHT = 4  # windows in flight
LEAST_WINDOW = 2**20
MOST_WINDOW = 4 * 2**20
STREAM_PIECE = 256 * 1024
# Steps before the first decision at an endpoint, and between two.
LEARNING, STEPS = 6, 24
# A way is left only for one that is clearly shorter.
CLEARLY = 0.9
# One stream is measured once, over so many bytes, unless none as quick as this could be the shortest way.
MEASURED = 3 * 2**19
QUICKEST = 1e9
# A tar with fewer steps left is not worth several walks.
FEWEST_STEPS = 4 * WALKS


class Windows:
    """Bytes of one object in order, by several ranges in flight."""

    def __init__(self, endpoint: Endpoint, place: Place, start: int, stat: Stat) -> None:
        self._endpoint = endpoint
        self._place = place
        self._stat = stat
        self._next = start
        window = 2 * endpoint.meter.stream * endpoint.meter.latency
        self._window = int(min(max(window, LEAST_WINDOW), MOST_WINDOW))
        self._flight: deque[tuple[int, Future[bytes]]] = deque()
        self._data = memoryview(b"")
        self._at = start
        self._came = 0
        self._waited = 0.0
        self.cut = False

    def _ask(self) -> None:
        while len(self._flight) < FLIGHT and self._next < self._stat.size:
            start, stop = self._next, min(self._next + self._window, self._stat.size)
            future = self._endpoint.pool().submit(self._endpoint.range, self._place, start, stop, self._stat)
            self._flight.append((start, future))
            self._next = stop

    def piece(self, position: int) -> tuple[int, memoryview]:
        """Some bytes with their place, among them the one at ``position``."""
        while position >= self._at + len(self._data):
            self._ask()
            began = time.monotonic()
            start, future = self._flight.popleft()
            self._data, self._at = memoryview(future.result()), start
            self._waited += time.monotonic() - began
            self._came += len(self._data)
            if self._came >= FLIGHT * self._window and self._waited > 0:
                self._endpoint.meter.windowed(self._came, self._waited)
                self._came, self._waited = 0, 0.0
            self._ask()
        return self._at, self._data

    def close(self) -> None:
        """Let go what is in flight."""
        for _, future in self._flight:
            future.cancel()
        self._flight.clear()


class Onward:
    """Bytes of one object in order, by one stream."""

    def __init__(self, endpoint: Endpoint, place: Place, start: int, stat: Stat) -> None:
        self._stream: Stream = endpoint.stream(place, start, stat.size, stat)
        self._data = memoryview(b"")
        self._at = start

    @property
    def cut(self) -> bool:
        """Whether the store ignores ranges."""
        return self._stream.cut

    def piece(self, position: int) -> tuple[int, memoryview]:
        """Some bytes with their place, among them the one at ``position``."""
        while position >= self._at + len(self._data):
            self._at = self._stream.position
            self._data = memoryview(self._stream.read(STREAM_PIECE))
        return self._at, self._data

    def close(self) -> None:
        """Let the response go."""
        self._stream.close()


class OpenedObject:
    """One object, guarded by its stat: every response was of the very object that it tells of.

    ``forced`` is for measurements: one way (hop, stream, windows or lookahead) instead of the choice.

    Args:
        endpoint: where it is.
        place: which it is.
        stat: as it is expected.
        whole: all of it will be read, in order.
        data: the object itself, where it was read already.
    """

    forced: str | None = None

    def __init__(
        self, endpoint: Endpoint, place: Place, stat: Stat, *, whole: bool = False, data: bytes | None = None
    ) -> None:
        self._endpoint = endpoint
        self._place = place
        self._whole = whole
        self._way: Windows | Onward | Lookahead | None = None
        self._lookahead = True  # whether walks can follow it
        self._data = memoryview(b"" if data is None else data)
        self._at = 0
        self._steps = 0
        self._need = 0 if (self.forced and self.forced != "lookahead") or endpoint.step else LEARNING
        self._from = 0  # where the steps since the last decision began
        self._last = -1
        self._taken: str | None = None  # which way was chosen
        wanted = whole and data is None and endpoint.compares(stat.checksum)
        self._sum = summer(stat.checksum[0]) if wanted and stat.checksum else None
        self._summed = 0
        self.stat = stat
        self.size = stat.size

    def pread(self, length: int, offset: int) -> bytes:
        """Up to ``length`` bytes at ``offset``; fewer only at the end of the object."""
        self._steps += 1
        inside = offset - self._at
        if inside >= 0 and inside + length <= len(self._data):
            return bytes(self._data[inside : inside + length])
        buffer = bytearray(max(0, min(length, self.size - offset)))
        count = self._fill(memoryview(buffer), offset)
        return bytes(buffer[:count])

    def pread_into(self, buffer: memoryview, offset: int) -> int:
        """Fills ``buffer`` from ``offset``; the number of bytes read, fewer only at the end of the object."""
        self._steps += 1
        return self._fill(buffer, offset)

    def _fill(self, buffer: memoryview, offset: int) -> int:
        wanted = max(0, min(len(buffer), self.size - offset))
        done = 0
        while done < wanted:
            at, data = self._piece(offset + done, wanted - done)
            inside = offset + done - at
            part = data[inside : inside + wanted - done]
            buffer[done : done + len(part)] = part
            done += len(part)
        if self._sum is not None and offset <= self._summed < offset + done:
            self._sum.update(buffer[self._summed - offset : done])
            self._summed = offset + done
        return done

    def _piece(self, position: int, length: int) -> tuple[int, memoryview]:
        if not self._at <= position < self._at + len(self._data):
            self._endpoint.counted(reads=1)
            self._at, self._data = self._fetch(position, length)
        return self._at, self._data

    def _fetch(self, position: int, length: int) -> tuple[int, memoryview]:
        """Some bytes with their place, among them the one at ``position``."""
        backward = position < self._last
        if self._way is None and self._whole:
            self._way = self._onward(position)
        if self._way is None and self._last < 0 and self.stat.present is False and not self.forced:
            # The first touch makes the cluster fetch all of it: hops would wait for what a stream brings meanwhile.
            self._taken = "stream"
            self._way = Onward(self._endpoint, self._place, position, self.stat)
        elif not self._whole and not backward:
            self._think(position)
        self._last = position
        if self._way is not None and not backward:
            found = self._way.piece(position)
            if found is not None:
                return found
            if isinstance(self._way, Lookahead) and self._way.fruitless:
                self._leave()
                self._lookahead, self._taken, self._steps = False, "hop", self._need + 1
        if backward and self._way is not None:
            self._leave()
        # A step by its own request: small where steps are long, else a window that several of them share.
        size = max(length, HOP if self._taken == "hop" or self._steps > 2 else FIRST)
        stop = min(position + size, self.size)
        stream = self._endpoint.stream(self._place, position, stop, self.stat)
        stream.measured = self._way is None
        data = stream.take(stop - position)
        if stream.cut:
            # Every further range would bring the whole object again: go forward in one body instead.
            self._whole = True
        return position, memoryview(data)

    def _think(self, position: int) -> None:
        """Choose the way when enough steps were seen since the last choice."""
        steps = self._steps
        if steps <= self._need:
            return
        step = self._endpoint.step or float(FIRST)
        if steps > LEARNING:
            step = self._endpoint.step = max(1.0, (position - self._from) / steps)
        self._steps, self._from, self._need = 0, position, STEPS
        best = self.forced or self._best(step, position)
        if best == self._taken:
            return
        self._leave()
        self._taken = best
        if best == "windows":
            self._way = Windows(self._endpoint, self._place, position, self.stat)
        elif best == "stream":
            self._way = Onward(self._endpoint, self._place, position, self.stat)
        elif best == "lookahead":
            self._way = Lookahead(self._endpoint, self._place, position, self.stat, step)

    def _best(self, step: float, position: int) -> str:
        """The way that takes the least time by what is known, for steps of so many bytes."""
        if self._endpoint.cuts:
            return "stream"
        meter = self._endpoint.meter
        left = self.size - position
        hop = meter.latency + HOP / meter.stream
        costs = {"hop": hop, "stream": step / meter.stream}
        if left > 2 * LEAST_WINDOW:
            costs["windows"] = step / (meter.together or FLIGHT * meter.stream)
        if self._lookahead and left > FEWEST_STEPS * step:
            costs["lookahead"] = meter.lookahead or hop / WALKS
        best = min(costs, key=lambda way: costs[way])
        if best != "stream" and not meter.streamed_once and self._taken != "stream" and step / QUICKEST < costs[best]:
            self._need = max(1, int(MEASURED / step))
            return "stream"
        meter.passed(*(way for way in costs if way != best))
        taken = self._taken
        return taken if taken in costs and costs[best] > CLEARLY * costs[taken] else best

    def _onward(self, position: int) -> Windows | Onward:
        if self.size - position > FLIGHT * LEAST_WINDOW and self.size > WHOLE and not self._endpoint.cuts:
            return Windows(self._endpoint, self._place, position, self.stat)
        return Onward(self._endpoint, self._place, position, self.stat)

    def _leave(self) -> None:
        if self._way is not None:
            self._way.close()
            self._way = None

    def unchanged(self) -> bool:
        """Always: each response proved that it is of the object that was opened.

        Raises:
            DamagedError: all of it was read, and its checksum is not the one that the store tells.
        """
        checksum = self.stat.checksum
        read = self._sum is not None and self._summed == self.size
        if self._sum is not None and checksum is not None and read and not agrees(self._sum.hexdigest(), checksum[1]):
            self._endpoint.damaged.add(self._place)
            raise damaged(self._place, checksum[0])
        return True

    def close(self) -> None:
        """Let go what is under way."""
        self._leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
