"""What a team may see: what was built for it, and mirrors of which it may read every source."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import orjson

from blendex.builds.latest import Latest
from blendex.builds.site import Site
from blendex.catalog.models import Mirror
from blendex.storage.profiles import place_of
from blendex.units.receipt import open_archive

# Verdicts kept, each of one mirror for one set of rules. A mirror never changes, so a verdict is right for ever.
KEPT = 50_000
DERIVED = "derived:"
# Of a list that is mostly others': looked through for one page.
MOST_BATCHES = 20
T = TypeVar("T")


def reader(site: Site) -> Callable[[str], bool]:
    """Whether whoever uses a site may read an address. Folders are followed to where they really are, once each."""
    if site.who.everything:
        return lambda _: True
    stores = {profile.name: profile for profile in site.stores}
    folders: dict[str, bool] = {}

    def inside(folder: str) -> bool:
        real = os.path.realpath(folder)
        return any(root in ("/", real) or real.startswith(root + "/") for root in site.roots)

    def may(address: str) -> bool:
        if address.startswith("/"):
            folder = os.path.dirname(address)
            if folder not in folders:
                folders[folder] = inside(folder)
            return folders[folder]
        # What is made from others lies nowhere; the others are sources of the same mirror.
        if address.startswith(DERIVED):
            return True
        place = place_of(address)
        profile = stores.get(place.profile) if place is not None else None
        return place is not None and profile is not None and profile.serves(place.scheme, place.bucket, place.key)

    return may


def visible(
    fetch: Callable[[T | None, int], list[T]], may: Callable[[T], bool], limit: int, batch: int = 0
) -> tuple[list[T], T | None]:
    """A page of those rows of a list that may be seen.

    Args:
        fetch: the list: at most so many rows of it, those after one of them or the first ones.
        may: whether a row may be seen.
        limit: most rows on the page.
        batch: rows that are looked through at a time, if more than ``limit``.

    Returns:
        The rows, and the one after which the next page begins; None at the end. Where few may be seen, a page may be
        shorter than ``limit`` though there is a next one.
    """
    most = max(limit, batch)
    seen: list[T] = []
    after: T | None = None
    for _ in range(MOST_BATCHES):
        rows = fetch(after, most + 1)
        for row in rows[:most]:
            if may(row):
                seen.append(row)
                if len(seen) == limit:
                    return seen, None if row is rows[-1] else row
        if len(rows) <= most:
            return seen, None
        after = rows[most - 1]
    return seen, after


def _lines(site: Site, key: str) -> Iterator[bytes]:
    path = os.path.join(site.root.mirror(key), "sources.jsonl")
    if os.path.exists(path):
        with open(path, "rb") as file:
            yield from file
        return
    with open_archive(site.root.receipt(key)) as lines:
        lines.readline()  # the receipt
        yield from lines


class Verdicts:
    """Whether mirrors may be seen, kept."""

    def __init__(self) -> None:
        self._kept = Latest[Any, bool](KEPT)
        self._lock = threading.Lock()

    def mirror(self, site: Site, key: str) -> bool:
        """Whether whoever uses ``site`` may read all that a mirror was made from; False for one that is not there.

        The first answer for a set of rules reads the list of its sources, or as much as it takes to find one that may
        not be read: 400,000 sources take about a second.
        """
        if site.who.everything:
            return True
        rules = key, site.roots, tuple((profile.name, profile.buckets, profile.prefixes) for profile in site.stores)
        with self._lock:
            if (kept := self._kept.get(rules)) is not None:
                self._kept.move_to_end(rules)
                return kept
        may = reader(site)
        try:
            verdict = all(may(orjson.loads(line)["address"]) for line in _lines(site, key))
        except FileNotFoundError:
            return False
        with self._lock:
            self._kept[rules] = verdict
        return verdict

    def page(
        self, site: Site, fetch: Callable[[int | None, int], list[Mirror]], before: int | None, limit: int
    ) -> tuple[list[Mirror], str | None]:
        """A page of those mirrors of a list that may be seen.

        Args:
            site: as it is used.
            fetch: the list: (before, limit) to rows, newest first.
            before: where the page begins.
            limit: most rows on it.

        Returns:
            The rows, and the key after which the next page begins; None at the end.
        """
        found, last = visible(
            lambda after, most: fetch(before if after is None else after.id, most),
            lambda row: self.mirror(site, row.key),
            limit,
        )
        return found, None if last is None else last.key
