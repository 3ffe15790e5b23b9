"""Local copies of objects, in folders laid out ``<bucket>/<key>``: to training, ``LHOTSE_S3_LOCAL_MIRROR_ROOTS``.

A copy stands for the object's address, never for its path: keys, sidecars and views are the same with and without it.
Its token is that of a file, so a source that is served from elsewhere than before is read again, once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import TypeVar

from blendex.errors import BlendexError
from blendex.storage.interface import Figures, Opened, Stat
from blendex.storage.listing import STRETCH
from blendex.storage.local import LocalStorage, OpenedFile
from blendex.storage.objects import ObjectStorage
from blendex.storage.profiles import Profile, place_of

Item = TypeVar("Item")
Answer = TypeVar("Answer")


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

    def _each(
        self,
        items: Iterable[Item],
        address: Callable[[Item], str],
        of_copy: Callable[[str, str], Answer],
        of_store: Callable[[Iterable[Item]], Iterator[Answer | BlendexError]],
    ) -> Iterator[Answer | BlendexError]:
        """In order: each copy by itself, and the store asked once for what has none, to list, batch and read ahead."""
        source = iter(items)
        while part := list(islice(source, STRETCH)):
            paths = [self._copy(address(item)) for item in part]
            others = of_store([item for item, path in zip(part, paths, strict=True) if path is None])
            for item, path in zip(part, paths, strict=True):
                if path is None:
                    yield next(others)
                    continue
                try:
                    yield of_copy(path, address(item))
                except BlendexError as error:
                    yield error

    def stat(self, address: str) -> Stat:
        """Of the local copy, or of the object."""
        path = self._copy(address)
        return self.store.stat(address) if path is None else self._stat(path, address)

    def _stat(self, path: str, address: str) -> Stat:
        return replace(self._local.stat(path), address=address)

    def stat_many(self, addresses: Iterable[str]) -> Iterator[Stat | BlendexError]:
        """``stat`` of each, in order."""
        return self._each(addresses, lambda address: address, self._stat, self.store.stat_many)

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
        return self._each(items, lambda item: item[0], self._file, self.store.open_many)

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
