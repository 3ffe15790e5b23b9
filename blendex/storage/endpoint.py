"""One endpoint, whatever its kind: requests that are tried again, checked, resumed and measured.

Nothing that a store answers is taken on trust. A range is the one that was asked for, to the byte, of an object as long
as it was; every response is of the object whose stat is expected, by its token; a whole object has the length and the
checksum that its stat tells. A body that breaks is resumed where it broke, so a fault costs its own bytes once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from blendex.errors import BlendexError
from blendex.storage.checksums import matches, summer, uncompared
from blendex.storage.driver import Body, Driver, differ, parse_range
from blendex.storage.failures import StoreFailure, Trouble
from blendex.storage.interface import Figures, Stat
from blendex.storage.meter import LEAST_BYTES, Meter
from blendex.storage.patience import Gate, Tries, told
from blendex.storage.profiles import Place, Profile

PIECE = 256 * 1024
# A store or proxy that ignores ranges is put up with below this: the object is read whole and cut.
WHOLE_INSTEAD = 64 * 2**20
# A body may be slow, but not forever: so long, and a second more for every so many bytes.
BODY_SECONDS = 120.0
SLOWEST = 256 * 1024
# How long an endpoint that did not answer within a profile's patience is not asked again.
DOWN_SECONDS = 30.0
# Stacks of 8 MiB a thread would count against the memory of a child.
STACK = 512 * 1024

T = TypeVar("T")
_POOL = threading.Lock()


def pool(threads: int) -> ThreadPoolExecutor:
    """Threads with small stacks."""
    with _POOL:
        before = threading.stack_size(STACK)
        try:
            made = ThreadPoolExecutor(threads, thread_name_prefix="blendex-store")
            for _ in range(threads):  # started now, under the small size
                made.submit(time.sleep, 0)
        finally:
            threading.stack_size(before)
    return made


class Endpoint:
    """The requests of one child to one endpoint.

    Args:
        profile: how it is reached.
        driver: what speaks to it.
        figures: what is counted.
    """

    def __init__(self, profile: Profile, driver: Driver, figures: Figures) -> None:
        self.profile = profile
        self.driver = driver
        self.figures = figures
        self.meter = Meter(profile.pace)
        self.gate = Gate(profile.parallel)
        self.step: float | None = None  # between two reads of the last object that was read in steps
        self.cuts = False  # whether it ignored a range: only going forward in one body is cheap then
        self.damaged: set[Place] = set()  # whose bytes were wrong once: a second time is an error
        self._count = threading.Lock()
        self._down: StoreFailure | None = None
        self._down_until = 0.0
        self._pool: ThreadPoolExecutor | None = None

    def pool(self) -> ThreadPoolExecutor:
        """As many threads as there may be requests."""
        if self._pool is None:
            self._pool = pool(self.profile.parallel)
        return self._pool

    def tries(self) -> Tries:
        """The tries of a new request."""
        return Tries(self.profile, self.gate)

    def counted(self, **more: int) -> None:
        """Add to the figures."""
        with self._count:
            for name, value in more.items():
                setattr(self.figures, name, getattr(self.figures, name) + value)

    def request(self, call: Callable[[], T], place: Place, tries: Tries | None = None, alone: bool = True) -> T:
        """One request, tried as often as it may be; ``alone``: its time tells of the endpoint, and not of company.

        Raises:
            BlendexError: none succeeded.
        """
        tries = tries or self.tries()
        while True:
            try:
                if self._down is not None and time.monotonic() < self._down_until:
                    # Who asks for thousands of objects need not wait for each that nobody answers.
                    raise told(self._down, place, self.profile)
                with self.gate.turn():
                    self.counted(requests=1)
                    began = time.monotonic()
                    answer = call()
            except StoreFailure as failure:
                self.counted(retries=1)
                try:
                    tries.after(failure, place)
                except BlendexError:
                    if failure.trouble is Trouble.DOWN:
                        self._down = failure
                        self._down_until = time.monotonic() + DOWN_SECONDS
                    raise
                continue
            if alone:
                self.meter.answered(time.monotonic() - began)
            self.gate.calm()
            return answer

    def head(self, place: Place) -> Stat:
        """What the store says of an object."""
        self.counted(stats=1)
        return self.request(lambda: self.driver.head(place), place)

    def get(
        self, place: Place, start: int, stop: int | None, expect: Stat | None, tries: Tries | None = None,
        alone: bool = True,
    ) -> Body:  # fmt: skip
        """A checked response whose body begins at ``start``, or at 0 where the store ignores ranges.

        Args:
            place: the object.
            start, stop: the range, half open; ``stop`` None: to the end.
            expect: the stat of the object this must be; None: whichever it is.
            tries: those of a request that is resumed.
            alone: no other request is under way for the same reader.
        """
        return self.request(lambda: self._get(place, start, stop, expect), place, tries, alone)

    def _get(self, place: Place, start: int, stop: int | None, expect: Stat | None) -> Body:
        body = self.driver.get(place, start, stop, expect)
        try:
            self._check(body, start, stop, expect)
        except BaseException:
            body.close()
            raise
        return body

    def _check(self, body: Body, start: int, stop: int | None, expect: Stat | None) -> None:
        if expect is not None and (body.total != expect.size or differ(body.stat.token, expect.token)):
            raise StoreFailure(Trouble.CHANGED, "another version answered")
        if start == 0 and stop is None:
            if body.status != 200:
                raise StoreFailure(Trouble.WRONG, f"HTTP {body.status} for a whole object")
            length = body.total
        elif body.status == 206:
            last = (body.total if stop is None else min(stop, body.total)) - 1
            if parse_range(body.content_range) != (start, last, body.total):
                raise StoreFailure(Trouble.WRONG, "another range than was asked for")
            length = last + 1 - start
        elif body.status == 200:
            # Something between us and the store took the range away; small objects are read whole and cut.
            if start and body.total > WHOLE_INSTEAD:
                raise StoreFailure(Trouble.WRONG, "the endpoint ignores byte ranges")
            self.figures.note(f"The endpoint {self.profile.name} ignores byte ranges: objects are read whole.")
            length = body.total
        else:
            raise StoreFailure(Trouble.WRONG, f"HTTP {body.status} for a range")
        if body.length is not None and body.length != length:
            raise StoreFailure(Trouble.WRONG, "a body of another length than was asked for")

    def stream(self, place: Place, start: int, stop: int, expect: Stat) -> Stream:
        """The bytes from ``start`` to ``stop`` of an object, in order."""
        return Stream(self, place, start, stop, expect)

    def range(self, place: Place, start: int, stop: int, expect: Stat) -> bytes:
        """Exactly the bytes from ``start`` to ``stop``."""
        with self.stream(place, start, stop, expect) as stream:
            stream.measured = False  # others run beside it: it tells nothing of a stream alone
            return stream.take(stop - start)

    def whole(self, place: Place, expect: Stat | None = None, limit: int | None = None) -> tuple[Stat, bytes] | Stat:
        """A whole object with its stat; its stat alone when it is larger than ``limit``.

        The checksum that the store tells, where it is one of the whole object, is compared; a difference is read once
        more before it is an error.
        """
        tries = self.tries()
        while True:
            body = self.get(place, 0, None, expect, tries)
            stat = body.stat
            if limit is not None and stat.size > limit:
                body.close()
                return stat
            with Stream(self, place, 0, stat.size, stat, body, tries) as stream:
                data = stream.take(stat.size)
            checksum = stat.checksum or (expect.checksum if expect is not None else None)
            self.compares(checksum)
            if checksum is None or matches(data, *checksum):
                return stat, data
            if place in self.damaged:
                failure = StoreFailure(Trouble.DAMAGED, f"the {checksum[0]} of {len(data)} bytes")
                raise told(failure, place, self.profile)
            self.damaged.add(place)
            self.counted(retries=1)

    def compares(self, checksum: tuple[str, str] | None) -> bool:
        """Whether a checksum can be computed here; of one that cannot people are told."""
        if checksum is not None and summer(checksum[0]) is None:
            self.figures.note(uncompared(checksum[0], self.profile.name))
            return False
        return checksum is not None

    def close(self) -> None:
        """End the threads; connections are the driver's, which outlives this."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None


class Stream:
    """Bytes of one object in order, over as many responses as it takes.

    Attributes:
        position: of the next byte.
        cut: whether the store ignored the range, so that only going forward is cheap.
    """

    def __init__(
        self, endpoint: Endpoint, place: Place, start: int, stop: int, expect: Stat,
        body: Body | None = None, tries: Tries | None = None,
    ) -> None:  # fmt: skip
        self._endpoint = endpoint
        self._place = place
        self._stop = stop
        self._expect = expect
        self._body: Body | None = None
        self._tries = tries or endpoint.tries()
        self._skip = 0
        self._came, self._waited = 0, 0.0
        self.measured = True
        self._deadline = time.monotonic() + BODY_SECONDS + (stop - start) / SLOWEST
        self.position = start
        self.cut = False
        if body is not None:
            self._begin(body)

    def _begin(self, body: Body) -> None:
        self._body = body
        self._skip = 0
        if body.status == 200:
            self._skip = self.position
            self.cut = self.cut or self.position > 0 or self._stop < body.total
            self._endpoint.cuts = self._endpoint.cuts or self.cut

    def _open(self) -> Body:
        if self._body is None:
            self._came, self._waited = 0, 0.0
            whole = self.position == 0 and self._stop == self._expect.size
            stop = None if whole or self._stop == self._expect.size else self._stop
            body = self._endpoint.get(self._place, self.position, stop, self._expect, self._tries, self.measured)
            self._begin(body)
        assert self._body is not None
        return self._body

    def _piece(self, count: int) -> bytes:
        """Some bytes from here on; a break is mended."""
        while True:
            body = self._open()
            try:
                data = self._read(body, count)
            except StoreFailure as failure:
                self.close()
                self._endpoint.counted(retries=1)
                self._tries.after(failure, self._place)
                continue
            self._tries.progress(len(data))
            return data

    def _read(self, body: Body, count: int) -> bytes:
        while True:
            if time.monotonic() > self._deadline:
                raise StoreFailure(Trouble.BROKEN, "a body slower than anything useful")
            data = body.read(min(PIECE, self._skip) if self._skip else count)
            if not data:
                raise StoreFailure(Trouble.BROKEN, "a body that ended early")
            self._endpoint.counted(bytes_read=len(data))
            if not self._skip:
                return data
            self._skip -= len(data)

    def read(self, count: int) -> bytes:
        """At least one byte and at most ``count``, unless all were read."""
        count = min(count, self._stop - self.position)
        if count <= 0:
            return b""
        begun = self._body is not None  # else the piece comes with the wait for its response
        began = time.monotonic()
        data = self._piece(count)
        if begun:
            self._waited += time.monotonic() - began
            self._came += len(data)
        if self._came >= LEAST_BYTES and self.measured:
            self._endpoint.meter.streamed(self._came, self._waited)
            self._came, self._waited = 0, 0.0
        self.position += len(data)
        if self.position == self._stop:
            self.close()
        return data

    def take(self, count: int) -> bytes:
        """Exactly ``count`` bytes, or all that are left."""
        parts: list[bytes] = []
        while count > 0 and (data := self.read(min(count, 4 * PIECE))):
            parts.append(data)
            count -= len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def skip(self, count: int) -> None:
        """Go forward without keeping what is read."""
        while count > 0 and (data := self.read(min(count, PIECE))):
            count -= len(data)

    def close(self) -> None:
        """Let the response go."""
        if self._body is not None:
            body, self._body = self._body, None
            body.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
