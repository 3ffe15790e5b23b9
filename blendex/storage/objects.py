"""An object store as a store of sources: stat, list, open and read ahead, over one endpoint."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from itertools import islice

from blendex.errors import BlendexError, Code
from blendex.storage.endpoint import Endpoint
from blendex.storage.interface import Stat
from blendex.storage.listing import Lister
from blendex.storage.profiles import Place, place_of
from blendex.storage.reader import WHOLE, OpenedObject

# Objects whose turn has not come: so many are asked for, each read whole up to so many bytes. 48 MiB at most.
ASKED = 48
AHEAD = 2**20


class ObjectStorage:
    """Sources of one endpoint.

    Args:
        endpoint: the requests.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.figures = endpoint.figures
        self.lister = Lister(endpoint)

    def _place(self, address: str) -> Place:
        place = place_of(address)
        profile = self.endpoint.profile
        if place is None or place.profile != profile.name or not profile.serves(place.scheme, place.bucket, place.key):
            raise BlendexError(
                Code.STORE_UNKNOWN,
                "the endpoint profile may not read this.",
                file=address,
                next_step="Add its bucket or prefix to the profile, or correct the view of the submission.",
            )
        if not place.key or "\0" in place.key:
            raise BlendexError(
                Code.SOURCE_NOT_REGULAR,
                "this is a bucket, not an object.",
                file=address,
                next_step="Name the objects themselves.",
            )
        return place

    def _judged(self, stat: Stat) -> Stat:
        if stat.weak and self.endpoint.profile.trust_size:
            return replace(stat, weak=False)
        if stat.weak:
            self.figures.note(
                f"Objects at {self.endpoint.profile.name} have neither version nor checksum nor strong ETag: their "
                "tokens prove nothing, and they are read for every build."
            )
        return stat

    def stat(self, address: str) -> Stat:
        """Size and token of one object; raises what the store's failures are told as."""
        return self._judged(self.endpoint.head(self._place(address)))

    def stat_many(self, addresses: Iterable[str]) -> Iterator[Stat | BlendexError]:
        """``stat`` of each, in order: by listings where keys lie together, else by many requests at a time."""
        for answer in self.lister.stats(addresses, self._place):
            yield self._judged(answer) if isinstance(answer, Stat) else answer

    def open(self, address: str, *, whole: bool = False) -> OpenedObject:
        """An object, with the stat of what is read."""
        place = self._place(address)
        self._opens(address)
        if whole:
            answer = self.endpoint.whole(place, limit=WHOLE)
            if not isinstance(answer, Stat):
                return OpenedObject(self.endpoint, place, self._judged(answer[0]), data=answer[1])
            return OpenedObject(self.endpoint, place, self._judged(answer), whole=True)
        return OpenedObject(self.endpoint, place, self.stat(address))

    def _opens(self, address: str) -> None:
        self.endpoint.counted(opens=1)
        self.figures.opened.append(address)

    def _open_ahead(self, address: str, whole: bool) -> OpenedObject:
        """As ``open``, with less of it in memory: many of them wait for their turn."""
        place = self._place(address)
        self._opens(address)
        if not whole:
            return OpenedObject(self.endpoint, place, self.stat(address))
        answer = self.endpoint.whole(place, limit=AHEAD)
        if isinstance(answer, Stat):
            return OpenedObject(self.endpoint, place, self._judged(answer), whole=True)
        return OpenedObject(self.endpoint, place, self._judged(answer[0]), data=answer[1])

    def open_many(self, items: Iterable[tuple[str, bool]]) -> Iterator[OpenedObject | BlendexError]:
        """Each object in order; those that come next are asked for while one is worked on."""
        pool = self.endpoint.pool()
        waiting: deque[Future[OpenedObject]] = deque()
        source = iter(items)
        try:
            while True:
                for address, whole in islice(source, ASKED - len(waiting)):
                    waiting.append(pool.submit(self._open_ahead, address, whole))
                if not waiting:
                    return
                try:
                    opened: OpenedObject | BlendexError = waiting.popleft().result()
                except BlendexError as error:
                    opened = error
                yield opened
        finally:
            for task in waiting:
                task.cancel()

    def list(self, address: str) -> list[tuple[str, bool]]:
        """Names below a folder with whether each is a folder, sorted by name."""
        return self.lister.folder(address)

    def read(self, address: str, limit: int) -> bytes:
        """A whole small object, such as a nested blend."""
        place = self._place(address)
        self._opens(address)
        answer = self.endpoint.whole(place, limit=limit)
        if isinstance(answer, Stat):
            raise BlendexError(
                Code.BLEND_TOO_LARGE,
                f"the object has {answer.size} bytes; at most {limit} are read.",
                file=address,
                next_step="Split it.",
            )
        return answer[1]

    def now_ns(self) -> int:
        """Now; the tokens of objects hold no time that could be too young."""
        return time.time_ns()

    def paces(self) -> dict[str, dict[str, float]]:
        """What was measured of the endpoint, by its profile; nothing when nothing was asked of it."""
        meter = self.endpoint.meter
        return {self.endpoint.profile.name: meter.as_dict()} if meter.samples else {}

    def close(self) -> None:
        """End the threads."""
        self.endpoint.close()
