"""Packs: the sidecars of a dataset in one file that training maps into memory (lhotse 2.0.0a7, ``index_pack.py``).

Layout, little-endian, no gaps::

    header (256) | collections (72 each) | sequences (16 each) | segments (56 each) | strings | zeros to 8 | payloads

A collection is what one key of one entry names: its key, and a run of sequence rows. A sequence row is one shard: a
segment and the records of the collection up to its end. A segment is a sidecar, stored once however often it is named;
or a path without one; or, in version 3, an array of 32-bit numbers. Payloads follow each other unaligned, in the order
of the segments.

Version 4 (compressed manifests with their seek points inside) is not written and not read: no released reader has it.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from blendex.errors import BlendexError, Code

MAGIC = b"IDXPACK2"
VERSIONS = (2, 3)
HEADER = struct.Struct("<8sIIQQQQQQQQQQ32s")
HEADER_BYTES = 256
COLLECTION = struct.Struct("<32sQQQQII")
SEQUENCE = np.dtype([("segment", "<u8"), ("end", "<u8")])
SEGMENT = np.dtype(
    [
        ("path", "<u8"), ("payload", "<u8"), ("path_length", "<u4"), ("flags", "<u4"), ("items", "<u8"),
        ("size", "<u8"), ("bytes", "<u8"), ("crc", "<u4"), ("metadata", "<u4"),
    ]
)  # fmt: skip
OFFSETS, PATHS, ARRAY = 0, 1, 2
"""What a collection and its segments hold; the flags of both."""
SIZE_KNOWN = 1
"""Flag in the metadata of a segment without offsets: its payload is the size of the source."""
_U64 = struct.Struct("<Q")
_AT_ONCE = 8192
Numbers = NDArray[np.int64]
SKIPPED = 0xFFFF_FFFF
"""In a route: this row is never drawn. Ordinals and positions stay below."""


def refused(message: str, file: str | None = None, next_step: str = "") -> BlendexError:
    """Why a pack cannot be written."""
    return BlendexError(Code.PACK_REFUSED, message, file=file, next_step=next_step)


def collection_key(role: str, kind: str, spec: Any) -> bytes:
    """The key under which training looks a collection up (lhotse ``index_pack_collection_key``).

    Args:
        role: what the collection is for, such as ``manifest``.
        kind: of its sidecars.
        spec: the value of the configuration, its interpolations resolved, its patterns as they are.

    Raises:
        BlendexError: pack_refused, when the value is none that a configuration can hold.
    """
    for name, value in (("role", role), ("kind", kind)):
        if not isinstance(value, str) or not value:
            raise refused(f"the {name} of a collection is empty.", next_step="Name it.")
    try:
        text = json.dumps(
            {"kind": kind, "role": role, "source_spec": canonical(spec)},
            ensure_ascii=False,
            separators=(",", ":"),
            sort_keys=True,
        ).encode()
    except (TypeError, UnicodeEncodeError) as error:
        raise refused(
            "a collection is named by a value that JSON cannot hold.",
            next_step="Use text, numbers, lists and mappings of valid Unicode.",
        ) from error
    return hashlib.sha256(text).digest()


def canonical(value: Any) -> Any:
    """``value`` in the form that enters a key (lhotse ``_canonicalize``)."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): canonical(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        return [canonical(item) for item in value]
    return value


@dataclass(frozen=True)
class Collection:
    """One collection to be packed.

    Args:
        role: what it is for.
        kind: of its sidecars.
        spec: the configured value that it stands for.
        paths: its sources in order; for an array as many as it has shards, and without meaning.
        holds: ``OFFSETS``, ``PATHS`` or ``ARRAY``.
    """

    role: str
    kind: str
    spec: Any
    paths: tuple[str, ...]
    holds: int = OFFSETS

    @property
    def key(self) -> bytes:
        """Its key."""
        return collection_key(self.role, self.kind, self.spec)


def add_layout(digest: Any, key: bytes, holds: int, shards: Sequence[str] | Sequence[int]) -> None:
    """Add one collection to a layout hash, which tells two packs apart whatever their offsets are
    (lhotse ``index_pack_layout_hash``).

    Args:
        digest: a SHA-256 on its way, over the collections before.
        key: of the collection.
        holds: what it holds.
        shards: the path of each shard; for an array, its numbers.
    """
    digest.update(key)
    digest.update(struct.pack("<BQ", {OFFSETS: 1, PATHS: 0, ARRAY: 2}[holds], len(shards)))
    if holds == ARRAY:
        digest.update(struct.pack(f"<{len(shards)}Q", *shards))
        return
    paths = cast("Sequence[str]", shards)
    for start in range(0, len(paths), _AT_ONCE):
        digest.update(_after_lengths(paths[start : start + _AT_ONCE]))


def _after_lengths(paths: Sequence[str]) -> bytes:
    """Some paths as a layout hash takes them, each after its length."""
    if not "".join(paths).isascii():
        return b"".join(_U64.pack(len(data)) + data for data in map(encoded, paths))
    lengths = list(map(len, paths))
    packed = {length: _U64.pack(length).decode("latin-1") for length in set(lengths)}  # few lengths, many paths
    pieces = [""] * (2 * len(paths))
    pieces[::2] = map(packed.__getitem__, lengths)
    pieces[1::2] = paths
    return "".join(pieces).encode("latin-1")


class Strings:
    """The string table: every text once, none ended; the empty one lies where the first was asked for."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._places: dict[str, int] = {}

    def add(self, text: str) -> tuple[int, int]:
        """Where ``text`` lies in the table, and its length."""
        data = encoded(text)
        place = self._places.setdefault(text, len(self.data))
        if place == len(self.data):
            self.data += data
        return place, len(data)

    def add_last(self, texts: Sequence[str], *, unique: bool) -> tuple[Numbers, Numbers]:
        """Where each of ``texts`` lies, and their lengths; nothing can be added afterwards.

        Args:
            texts: many of them, as a rule.
            unique: whether each is known to be there once.
        """
        if not unique or not self._places.keys().isdisjoint(texts) or "" in texts:
            places, each = zip(*map(self.add, texts), strict=True)
            return np.array(places), np.array(each)
        start = len(self.data)
        lengths = np.empty(len(texts), np.int64)
        for first in range(0, len(texts), _AT_ONCE):  # all of them encoded at once are 10 MB of 100,000
            part = texts[first : first + _AT_ONCE]
            data, lengths[first : first + _AT_ONCE] = _joined(part)
            self.data += data
        return start + np.cumsum(lengths) - lengths, lengths


def _joined(paths: Sequence[str]) -> tuple[bytes, Numbers]:
    """Many paths as they are stored, one after another, and the bytes of each; raises what ``encoded`` raises."""
    text = "".join(paths)
    if text.isascii():  # as nearly all are: encoded together, three times as fast as one by one
        return text.encode(), np.fromiter(map(len, paths), np.int64, len(paths))
    data = list(map(encoded, paths))
    return b"".join(data), np.fromiter(map(len, data), np.int64, len(data))


def encoded(path: str) -> bytes:
    """A path as it is stored.

    Raises:
        BlendexError: pack_refused, when it is no valid Unicode.
    """
    try:
        return path.encode()
    except UnicodeEncodeError:
        raise refused("a path is not valid Unicode; no pack can name it.", next_step="Rename the file.") from None
