"""Stats by listing: one page tells of a thousand objects what a thousand requests would.

Addresses come sorted by path, so the keys of one folder come together. Of each stretch of keys in one bucket the
listing begins just before the first one wanted; where a page holds too few that are wanted, it goes on before the next
one wanted, and where that happens again the rest is asked for one by one. Listings are as strongly consistent as
reads, so a key that is not where it should be is missing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from itertools import islice

from blendex.errors import BlendexError, Code
from blendex.storage.driver import Listed
from blendex.storage.endpoint import Endpoint
from blendex.storage.failures import StoreFailure, Trouble
from blendex.storage.interface import Stat
from blendex.storage.patience import told
from blendex.storage.profiles import Place, place_of

STRETCH = 4096  # addresses that are looked at together
FEW = 8  # keys that are not worth a listing
THIN = 16  # fewer wanted keys than this on a page of a thousand: requests are as good


class Lister:
    """Stats and folders of one endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._closed: set[tuple[str, str]] = set()  # buckets that may be read but not listed

    def stats(self, addresses: Iterable[str], place: Callable[[str], Place]) -> Iterator[Stat | BlendexError]:
        """The stat of each address or why there is none, in order."""
        source = iter(addresses)
        while part := list(islice(source, STRETCH)):
            yield from self._stretch(part, place)

    def _stretch(self, addresses: list[str], place: Callable[[str], Place]) -> Iterator[Stat | BlendexError]:
        answers: dict[str, Stat | BlendexError] = {}
        places: dict[str, Place] = {}
        for address in addresses:
            try:
                places[address] = place(address)
            except BlendexError as error:
                answers[address] = error
        buckets: dict[tuple[str, str], list[Place]] = {}
        for item in places.values():
            buckets.setdefault((item.scheme, item.bucket), []).append(item)
        for bucket, items in buckets.items():
            if self._endpoint.driver.lists and len(items) >= FEW and bucket not in self._closed:
                for prefix, group in _groups(sorted(items)):
                    if len(group) >= FEW:
                        answers.update(self._listed(prefix, group))
        pool = self._endpoint.pool()
        asked: deque[tuple[str, Future[Stat]]] = deque()
        for address, item in places.items():
            if address not in answers:
                asked.append((address, pool.submit(self._endpoint.head, item)))
        for address, task in asked:
            try:
                answers[address] = task.result()
            except BlendexError as error:
                answers[address] = error
        for address in addresses:
            yield answers[address]

    def _listed(self, prefix: str, places: list[Place]) -> dict[str, Stat | BlendexError]:
        """What a listing tells of some objects of one bucket, sorted by key; none of what it did not come to."""
        found: dict[str, Stat | BlendexError] = {}
        wanted = {place.key: place for place in places}
        keys = deque(sorted(wanted))
        untold: set[str] = set()
        first = places[0]
        within = first._replace(key=prefix)
        more: str | None = None
        thin = 0
        after = _before(keys[0]) if self._endpoint.driver.lists_from else ""
        while keys:
            try:
                page = self._page(within, after, more)
            except BlendexError as error:
                if error.code not in (Code.STORE_DENIED, Code.SOURCE_MISSING):
                    raise
                self._closed.add((first.scheme, first.bucket))
                return found
            hits = 0
            for key, stat in page.stats:
                if key in wanted:
                    hits += 1
                    if stat is None:
                        untold.add(key)
                    else:
                        found[wanted[key].address] = stat
            last = page.stats[-1][0] if page.stats else ""
            while keys and (page.more is None or keys[0] <= last):
                key = keys.popleft()
                if wanted[key].address not in found and key not in untold:
                    found[wanted[key].address] = self._missing(wanted[key])
            if page.more is None:
                break
            thin = thin + 1 if hits < THIN else 0
            if thin > 1 or (thin and not self._endpoint.driver.lists_from):
                break
            more = page.more
            if thin and keys and self._endpoint.driver.lists_from:
                after, more = _before(keys[0]), None
        return found

    def _missing(self, place: Place) -> BlendexError:
        return told(StoreFailure(Trouble.MISSING, "not in the listing"), place, self._endpoint.profile)

    def _page(self, place: Place, after: str, more: str | None, folders: bool = False) -> Listed:
        return self._endpoint.request(lambda: self._endpoint.driver.page(place, after, more, folders), place)

    def folder(self, address: str) -> list[tuple[str, bool]]:
        """Names below a folder with whether each is a folder, sorted by name."""
        place = place_of(address)
        if place is None or not self._endpoint.profile.serves(place.scheme, place.bucket, place.key):
            raise BlendexError(
                Code.STORE_UNKNOWN,
                "no endpoint profile may read this.",
                file=address,
                next_step="Add its bucket or prefix to a profile, or correct the view of the submission.",
            )
        if not self._endpoint.driver.lists:
            raise BlendexError(
                Code.PATH_UNSUPPORTED,
                "a web server has no listings that could be relied on.",
                file=address,
                next_step="Name the files; those of a Shar folder by its fields (shar_path: {cuts: …, recording: …}).",
            )
        prefix = place.key.rstrip("/") + "/" if place.key else ""
        within = place._replace(key=prefix)
        names: dict[str, bool] = {}
        more: str | None = None
        while True:
            page = self._page(within, "", more, folders=True)
            for key, _ in page.stats:
                name, _, deeper = key.removeprefix(prefix).partition("/")
                if name:
                    names[name] = names.get(name, False) or bool(deeper)
            for folder in page.folders:
                names[folder.removeprefix(prefix).rstrip("/")] = True
            more = page.more
            if more is None:
                break
        if not names:
            raise BlendexError(
                Code.FOLDER_MISSING,
                "there is no object below this folder.",
                file=address,
                next_step="Check the path, and which profile and view the build uses.",
            )
        return sorted(names.items())


def _groups(places: list[Place]) -> Iterator[tuple[str, list[Place]]]:
    """Places of one bucket by folder, and folders that lie together under their common one."""
    folders: dict[str, list[Place]] = {}
    for place in places:
        folders.setdefault(place.key.rpartition("/")[0], []).append(place)
    # Many folders of a few keys, such as one per shard, are listed from above.
    small = [place for group in folders.values() if len(group) < FEW for place in group]
    for group in folders.values():
        if len(group) >= FEW:
            yield _common([place.key for place in group]), group
    if small:
        yield _common([place.key for place in small]), small


def _common(keys: list[str]) -> str:
    """What keys begin with, letter by letter: a listing's prefix need not end at a slash."""
    first, last = min(keys), max(keys)
    end = next((place for place, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[:end]


def _before(key: str) -> str:
    """A key from which on a listing soon comes to ``key``."""
    return key[:-1]
