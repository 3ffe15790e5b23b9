"""All stores that a child may read, behind one interface: paths go to the local one, URLs to their endpoints.

What reads objects is imported with the first of them, and the SDK of its kind: a child that reads files holds neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from blendex.errors import BlendexError, Code
from blendex.storage.interface import Figures, Opened, Stat, Storage
from blendex.storage.local import LocalStorage
from blendex.storage.profiles import Profile, place_of


class Stores:
    """The stores of one process.

    Args:
        roots: folders in which paths may be read.
        profiles: the endpoints.
        clock_dir: a folder on the file server, to learn its clock.
        threads: that stat files.
    """

    def __init__(
        self, roots: Iterable[str], profiles: Iterable[Profile] = (), clock_dir: str | None = None, threads: int = 1
    ) -> None:
        self.local = LocalStorage(list(roots), clock_dir, threads=threads)
        self.figures: Figures = self.local.figures
        self._profiles = {profile.name: profile for profile in profiles}
        self._opened: dict[str, Storage] = {}

    def of(self, address: str) -> Storage:
        """The store of an address.

        Raises:
            BlendexError: store_unknown, store_sdk, store_settings.
        """
        place = place_of(address)
        if place is None:
            return self.local
        if place.profile not in self._opened:
            profile = self._profiles.get(place.profile)
            if profile is None:
                raise BlendexError(
                    Code.STORE_UNKNOWN,
                    f"there is no endpoint profile {place.profile}.",
                    file=address,
                    next_step="Add it to BLENDEX_STORES of every process, or build again.",
                )
            from blendex.storage.endpoints import open_for  # 1.8 MB with what it imports

            self._opened[place.profile] = open_for(place, profile, self.figures)
        return self._opened[place.profile]

    def stat(self, address: str) -> Stat:
        """What the store of an address says of it."""
        return self.of(address).stat(address)

    def stat_many(self, addresses: Iterable[str]) -> Iterator[Stat | BlendexError]:
        """``stat`` of each, or its error, in order."""
        return self._each(addresses, lambda address: address, lambda store, part: store.stat_many(part))

    def open(self, address: str, *, whole: bool = False) -> Opened:
        """The source at an address."""
        return self.of(address).open(address, whole=whole)

    def open_many(self, items: Iterable[tuple[str, bool]]) -> Iterator[Opened | BlendexError]:
        """Each source in order, opened when its turn comes, or its error."""
        return self._each(items, lambda item: item[0], lambda store, part: store.open_many(part))

    def _each(
        self,
        items: Iterable[Any],
        address: Callable[[Any], str],
        ask: Callable[[Storage, Iterator[Any]], Iterator[Any]],
    ) -> Iterator[Any]:
        """Ask the store of each stretch of items."""

        def store_of(item: Any) -> Storage | None:
            try:
                return self.of(address(item))
            except BlendexError:
                return None

        for store, part in groupby(items, key=store_of):
            if store is not None:
                yield from ask(store, part)
                continue
            for item in part:
                try:
                    self.of(address(item))
                except BlendexError as error:
                    yield error

    def list(self, address: str) -> list[tuple[str, bool]]:
        """Names in a folder with whether each is a folder, sorted by name."""
        return self.of(address).list(address)

    def read(self, address: str, limit: int) -> bytes:
        """A whole small source, such as a nested blend."""
        return self.of(address).read(address, limit)

    def now_ns(self) -> int:
        """Now by the file server's clock."""
        return self.local.now_ns()

    def paces(self) -> dict[str, dict[str, float]]:
        """What was measured of each endpoint that was asked for something."""
        return {name: pace for store in self._opened.values() for name, pace in store.paces().items()}

    def close(self) -> None:
        """End what was begun."""
        for store in self._opened.values():
            store.close()
        self._opened.clear()


def open_stores(arguments: Mapping[str, Any], clock_dir: str | None = None) -> Stores:
    """The stores that the arguments of a child name (roots, stores, stat_threads)."""
    profiles = [Profile.from_dict(item) for item in arguments.get("stores", ())]
    return Stores(arguments["roots"], profiles, clock_dir, arguments.get("stat_threads", 1))
