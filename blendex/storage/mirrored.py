"""Local copies of objects, in folders laid out ``<bucket>/<key>``: to training, ``LHOTSE_S3_LOCAL_MIRROR_ROOTS``.

A copy stands for the object's address, never for its path: keys, sidecars and views are the same with and without it.
Its token is that of a file, so a source that is served from elsewhere than before is read again, once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace

from blendex.errors import BlendexError
from blendex.storage.interface import Figures, Opened, Stat
from blendex.storage.local import LocalStorage, OpenedFile
from blendex.storage.objects import ObjectStorage
from blendex.storage.profiles import Profile, place_of


class Mirrored:
    """A store whose S3 objects are looked for in local folders first.

    Args:
        store: where they are otherwise.
        profile: names the folders.
        figures: what is counted.
    """

    def __init__(self, store: ObjectStorage, profile: Profile, figures: Figures) -> None:
        self.store = store
        self._roots = [os.path.realpath(root) for root in profile.local_mirrors]
        self._local = LocalStorage(self._roots)
        self._local.figures = figures
        self.figures = figures

    def _copy(self, address: str) -> str | None:
        """The file that stands for an object, inside the folders; None: there is none."""
        place = place_of(address)
        if place is None or place.scheme != "s3" or ".." in place.key.split("/"):
            return None
        for root in self._roots:
            path = os.path.join(root, place.bucket, place.key)
            if os.path.isfile(path):
                return path
        return None

    def stat(self, address: str) -> Stat:
        """Of the local copy, or of the object."""
        path = self._copy(address)
        return self.store.stat(address) if path is None else replace(self._local.stat(path), address=address)

    def stat_many(self, addresses: Iterable[str]) -> Iterator[Stat | BlendexError]:
        """``stat`` of each, in order."""
        for address in addresses:
            try:
                yield self.stat(address)
            except BlendexError as error:
                yield error

    def open(self, address: str, *, whole: bool = False) -> Opened:
        """The local copy, or the object."""
        path = self._copy(address)
        return self.store.open(address, whole=whole) if path is None else self._file(path, address)

    def _file(self, path: str, address: str) -> OpenedFile:
        opened = self._local.open(path)
        opened.stat = replace(opened.stat, address=address)
        return opened

    def open_many(self, items: Iterable[tuple[str, bool]]) -> Iterator[Opened | BlendexError]:
        """Each in order."""
        for address, whole in items:
            try:
                yield self.open(address, whole=whole)
            except BlendexError as error:
                yield error

    def list(self, address: str) -> list[tuple[str, bool]]:
        """As the store has it."""
        return self.store.list(address)

    def read(self, address: str, limit: int) -> bytes:
        """The local copy, or the object."""
        path = self._copy(address)
        return self.store.read(address, limit) if path is None else self._local.read(path, limit)

    def now_ns(self) -> int:
        """Now."""
        return self.store.now_ns()

    def paces(self) -> dict[str, dict[str, float]]:
        """Of the store."""
        return self.store.paces()

    def close(self) -> None:
        """End the threads."""
        self.store.close()
