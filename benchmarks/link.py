"""A store at the end of an emulated link, in time that is computed and not waited for.

Readers, endpoints, tries and meters are the product's own; what they take for the clock is this one. A request takes
processor time of one core that all requests of a process share, the latency, and then its bytes over the link. What
runs in threads is run when it is handed in, on a clock of its own; whoever waits for it goes on when it ended.
Bandwidth and core are kept by the millisecond, so what is computed earlier may lie later; who is called off gives back
what it would have used.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from blendex.storage import endpoint, lookahead, patience, reader
from blendex.storage.driver import token
from blendex.storage.interface import Figures, Stat
from blendex.storage.objects import ObjectStorage
from blendex.storage.profiles import Place, Profile

TICK = 0.001
MODULES = (endpoint, lookahead, patience, reader)


class Resource:
    """So much of something in every second, shared by all."""

    def __init__(self, rate: float) -> None:
        self._most = rate * TICK
        self._used: defaultdict[int, float] = defaultdict(float)
        self.taken: list[tuple[Resource, int, float]] | None = None

    def _use(self, tick: int, amount: float) -> None:
        self._used[tick] += amount
        if self.taken is not None:
            self.taken.append((self, tick, amount))

    def give_back(self, tick: int, amount: float) -> None:
        """Somebody who had taken it does not want it any more."""
        self._used[tick] -= amount

    def take(self, now: float, amount: float) -> float:
        """When ``amount`` is had by who begins ``now``."""
        tick = int(now / TICK)
        while True:
            free = self._most - self._used[tick]
            if amount <= free:
                self._use(tick, amount)
                return max(now, (tick + self._used[tick] / self._most) * TICK)
            if free > 0:
                amount -= free
                self._use(tick, free)
            tick += 1

    def forget(self, now: float) -> None:
        """Nobody begins before ``now`` any more."""
        for tick in [tick for tick in self._used if tick < int(now / TICK)]:
            del self._used[tick]


@dataclass
class Line:
    """What lies between: latency and processor seconds of a request, bytes per second, of all or of each response."""

    latency: float
    bandwidth: float
    shared: bool
    core_seconds: float

    def __post_init__(self) -> None:
        self.now = 0.0
        self.link = Resource(self.bandwidth)
        self.core = Resource(1.0)

    def request(self) -> None:
        self.now = self.core.take(self.now, self.core_seconds) + self.latency

    def bring(self, count: int) -> None:
        self.now = self.link.take(self.now, count) if self.shared else self.now + count / self.bandwidth


class Body:
    """A response on its way."""

    def __init__(self, line: Line, piece: Callable[[int, int], bytes], start: int, stop: int, stat: Stat) -> None:
        self._line, self._piece, self._at, self._stop = line, piece, start, stop
        self.stat, self.total, self.length = stat, stat.size, stop - start
        self.status = 200 if self.length == stat.size else 206
        self.content_range = f"bytes {start}-{stop - 1}/{stat.size}"

    def read(self, count: int) -> bytes:
        count = min(count, self._stop - self._at)
        self._line.bring(count)
        data = self._piece(self._at, self._at + count)
        self._at += count
        return data

    def close(self) -> None:
        pass


class Driver:
    """Answers for one object under every key."""

    lists = lists_from = False

    def __init__(self, line: Line, piece: Callable[[int, int], bytes], size: int) -> None:
        self._line, self._piece, self._size = line, piece, size

    def head(self, place: Place) -> Stat:
        self._line.request()
        return self._stat(place)

    def _stat(self, place: Place) -> Stat:
        return Stat(place.address, self._size, token(self._size, "s3", "one", "1"), 0, 0)

    def get(self, place: Place, start: int, stop: int | None, expect: Stat | None) -> Body:
        self._line.request()
        return Body(self._line, self._piece, start, self._size if stop is None else stop, self._stat(place))

    def page(self, *_: Any) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        pass


class _Later:
    def __init__(self, line: Line, value: Any, ready: float, taken: list[tuple[Resource, int, float]]) -> None:
        self._line, self._value, self._ready, self._taken = line, value, ready, taken

    def result(self) -> Any:
        self._line.now = max(self._line.now, self._ready)
        return self._value

    def cancel(self) -> None:
        """What it would have used from now on is free again."""
        for resource, tick, amount in self._taken:
            if tick > self._line.now / TICK:
                resource.give_back(tick, amount)


class _Pool:
    def __init__(self, line: Line) -> None:
        self._line = line

    def submit(self, call: Callable[..., Any], *arguments: Any) -> _Later:
        line, taken = self._line, list[tuple[Resource, int, float]]()
        began = line.now
        line.link.taken = line.core.taken = taken
        value = call(*arguments)
        line.link.taken = line.core.taken = None
        later = _Later(line, value, line.now, taken)
        line.now = began
        return later

    def shutdown(self, **_: Any) -> None:
        pass


@contextmanager
def store(line: Line, piece: Callable[[int, int], bytes], size: int) -> Iterator[ObjectStorage]:
    """A store at the end of a line, as profile ``lab``."""
    real = [module.time for module in MODULES]  # type: ignore[attr-defined]
    for module in MODULES:
        module.time = SimpleNamespace(monotonic=lambda: line.now)  # type: ignore[attr-defined]
    try:
        profile = Profile.from_dict({"name": "lab", "kind": "s3", "buckets": ["*"]})
        made = endpoint.Endpoint(profile, Driver(line, piece, size), Figures())
        made._pool = _Pool(line)  # type: ignore[assignment]
        yield ObjectStorage(made)
    finally:
        for module, time in zip(MODULES, real, strict=True):
            module.time = time  # type: ignore[attr-defined]
