"""Under which recipe and address the catalog knows the sources of one build."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from sys import intern
from typing import Any

from sqlalchemy.orm import Session

from blendex.blend.world import World
from blendex.catalog import blobs, builds, sources
from blendex.catalog.sources import Known
from blendex.formats.kinds import KINDS, Origin, content_of, recipe
from blendex.storage.driver import identity
from blendex.storage.local import token_mtime_ns
from blendex.storage.profiles import is_object

CHUNK = 4096


class Places:
    """Finds the place of each source.

    Args:
        compat: of the build.
        world: of its submission.
        derived: what its derived sources are made from, as its plan told.
    """

    def __init__(self, compat: str, world: World, derived: Iterable[dict[str, Any]]) -> None:
        self.compat = compat
        self._world = world
        self._derived = {(spec["kind"], spec["path"]): spec for spec in derived}
        self._plain: dict[str, str] = {}  # recipes of what is not derived, by kind: asked for with every source

    def recipe(self, kind: str, path: str) -> str:
        """The recipe of a source."""
        if self._derived and (spec := self._derived.get((kind, path))) is not None:
            return recipe(kind, self.compat, spec["derivation"])
        if (plain := self._plain.get(kind)) is None:
            plain = self._plain[kind] = recipe(kind, self.compat)
        return plain

    def of(self, kind: str, path: str) -> tuple[str, str]:
        """(recipe, address) of a source."""
        spec = self._derived.get((kind, path)) if self._derived else None
        address = spec["address"] if spec is not None else self._world.address(path)
        return self.recipe(kind, path), address


def content_hash(kind: str, path: str, known: Known) -> str:
    """The content hash that keys and receipts name for a source."""
    if not KINDS[kind].bound:
        return known.content_hash
    origin = Origin(path, known.size, token_mtime_ns(known.token), identity(known.token))
    return content_of(kind, known.content_hash, origin)


class Contents:
    """What the rows of a build hold, as keys, packs and figures want it: 65 bytes a row.

    Args:
        count: of rows.

    Attributes:
        records, sizes, seconds: of each row; seconds are NaN where its records do not tell.
        remote: 1 for each row that lies in an object store.
    """

    def __init__(self, count: int) -> None:
        self._hashes = bytearray(32 * count)
        self._strengths = [""] * count
        self._bound: dict[int, str] = {}
        self.records = array("Q", bytes(8 * count))
        self.sizes = array("Q", bytes(8 * count))
        self.seconds = array("d", bytes(8 * count))
        self.remote = bytearray(count)

    def put(self, number: int, kind: str, path: str, known: Known) -> None:
        """Keep what a row holds."""
        self._hashes[32 * number : 32 * number + 32] = bytes.fromhex(known.content_hash)
        self._strengths[number] = intern(known.strength)
        self.records[number] = known.records
        self.sizes[number] = known.size
        self.seconds[number] = math.nan if known.seconds is None else known.seconds
        self.remote[number] = is_object(known.address)
        if KINDS[kind].bound:
            self._bound[number] = content_hash(kind, path, known)

    def of(self, number: int) -> tuple[str, int]:
        """Content hash, as it was read, and size."""
        return self._hashes[32 * number : 32 * number + 32].hex(), self.sizes[number]

    def in_key(self, number: int) -> tuple[str, str]:
        """Strength and content hash as keys and receipts name them."""
        return self._strengths[number], self._bound.get(number) or self.of(number)[0]


def rows_of(session: Session, build: str) -> list[tuple[str, str]]:
    """(kind, path) of every source that a build planned, sorted."""
    return sorted(
        {
            member
            for dataset in builds.datasets(session, build)
            for member in blobs.unpack_list(blobs.get(session, dataset.list_hash))
        }
    )


def known_rows(
    session: Session, places: Places, rows: Sequence[tuple[str, str]], numbers: Iterable[int]
) -> Iterator[tuple[int, Known | None]]:
    """What the catalog knows of some rows, in order, a few thousand at a time: never of all at once."""
    numbers = iter(numbers)
    while part := list(islice(numbers, CHUNK)):
        wanted: dict[str, list[str]] = {}
        found_at = [places.of(*rows[number]) for number in part]
        for name, address in found_at:
            wanted.setdefault(name, []).append(address)
        found = {
            (name, item.address): item
            for name, addresses in wanted.items()
            for item in sources.known(session, name, addresses)
        }
        for number, place in zip(part, found_at, strict=True):
            yield number, found.get(place)
