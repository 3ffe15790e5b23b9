"""Reads packs: finds records in them, and proves that they are whole.

Opening checks all that upstream's ``IndexPack`` checks when it is made and when it is first read (lhotse 2.0.0a7):
sections without gaps, flags that agree, sums that add up. ``verify`` adds what upstream leaves out: checksums,
offsets that never decrease, and the layout hash computed anew.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from blendex.errors import BlendexError, Code
from blendex.formats.pack import (
    ARRAY,
    COLLECTION,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    OFFSETS,
    PATHS,
    SEGMENT,
    SEQUENCE,
    SIZE_KNOWN,
    VERSIONS,
    add_layout,
)

PIECE = 4 << 20
MAX_HEAD = 1 << 31


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record lies.

    Attributes:
        path: of the source.
        start: its first byte there.
        end: the byte after its last one.
        shard: which source of the collection, from 0.
        local: which record of that source, from 0.
    """

    path: str
    start: int
    end: int
    shard: int
    local: int


class PackCollection:
    """One collection of an opened pack."""

    def __init__(self, pack: PackReader, key: bytes, kind: str, holds: int, first: int, shards: int) -> None:
        self.pack, self.key, self.kind, self.holds, self.first, self.shards = pack, key, kind, holds, first, shards
        rows = pack.sequences[first : first + shards]
        self._segments = rows["segment"]
        self._ends = rows["end"]

    def __len__(self) -> int:
        return int(self._ends[-1]) if self.shards else 0

    def segment(self, shard: int) -> int:
        """The segment of a shard."""
        return int(self._segments[shard])

    def path(self, shard: int) -> str:
        """The source of a shard."""
        return self.pack.path(self.segment(shard))

    def source_size(self, shard: int) -> int | None:
        """Bytes of the source of a shard, where they are known."""
        row = self.pack.table[self.segment(shard)]
        if row["flags"] == PATHS:
            known = row["metadata"] & SIZE_KNOWN
            return int(self.pack.words(row, 0, 1)[0]) if known else int(row["size"]) or None
        return int(row["size"])

    def _shard(self, index: int) -> tuple[int, int]:
        count = len(self)
        number = index + count if index < 0 else index
        if not 0 <= number < count:
            raise IndexError(index)
        shard = bisect_right(self._ends, number)
        return shard, number - (int(self._ends[shard - 1]) if shard else 0)

    def locate(self, index: int) -> Place:
        """Where record ``index`` lies; negative numbers count from the end."""
        shard, local = self._shard(index)
        row = self.pack.table[self.segment(shard)]
        start, end = map(int, self.pack.words(row, local, 2))
        if not start <= end <= row["size"]:
            raise self.pack.damaged(f"record {local} of shard {shard} lies from byte {start} to {end}")
        return Place(self.path(shard), start, end, shard, local)

    def value(self, index: int) -> int:
        """Number ``index`` of an array."""
        shard, local = self._shard(index)
        row = self.pack.table[self.segment(shard)]
        return int.from_bytes(self.pack.read(int(row["payload"]) + 4 * local, 4), "little")

    def values(self, shard: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
        """All numbers of one shard of an array."""
        row = self.pack.table[self.segment(shard)]
        return np.frombuffer(self.pack.read(int(row["payload"]), int(row["bytes"])), "<u4")


class PackReader:
    """An opened pack.

    Args:
        path: the file.
        layout_hash: the one it must have, in hex.

    Raises:
        BlendexError: pack_damaged, pack_version, not_found.
    """

    def __init__(self, path: str, *, layout_hash: str | None = None) -> None:
        self.file = path
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise BlendexError(
                Code.NOT_FOUND, f"cannot be opened ({error.strerror}).", file=path, next_step="Check the path."
            ) from error
        try:
            self._open(layout_hash)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> PackReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._descriptor)

    def damaged(self, what: str) -> BlendexError:
        """What is wrong with this pack."""
        return BlendexError(
            Code.PACK_DAMAGED, f"this pack is damaged: {what}.", file=self.file, next_step="Build it again."
        )

    def read(self, offset: int, length: int) -> bytes:
        """Some bytes of the file."""
        data = os.pread(self._descriptor, length, offset)
        if len(data) != length:
            raise self.damaged(f"it ends before byte {offset + length}")
        return data

    def words(self, row: Any, first: int, count: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """Some 64-bit numbers of a segment."""
        return np.frombuffer(self.read(int(row["payload"]) + 8 * first, 8 * count), "<u8")

    def collection(self, key: bytes) -> PackCollection:
        """The collection of a key.

        Raises:
            BlendexError: not_found.
        """
        found = self.collections.get(key)
        if found is None:
            raise BlendexError(
                Code.NOT_FOUND,
                f"no collection {key.hex()} is in this pack.",
                file=self.file,
                next_step="Keys depend on the spelling of the entry: build the pack from the blend that is trained.",
            )
        return found

    def path(self, segment: int) -> str:
        """The source of a segment."""
        row = self.table[segment]
        return self._string(int(row["path"]), int(row["path_length"]))

    def _string(self, place: int, length: int) -> str:
        start = place - self._strings_at
        if start < 0 or start + length > len(self._strings):
            raise self.damaged("a text lies outside of the string table")
        try:
            return self._strings[start : start + length].decode()
        except UnicodeDecodeError:
            raise self.damaged("a text is not UTF-8") from None

    def _open(self, expected: str | None) -> None:
        self.size = os.fstat(self._descriptor).st_size
        if self.size < HEADER_BYTES:
            raise self.damaged(f"it has {self.size} bytes, less than its header")
        header = self.read(0, HEADER_BYTES)
        (
            magic, self.version, header_size, at, count, sequences_at, sequences, segments_at, segments,
            strings_at, strings, payloads_at, payloads, layout,
        ) = HEADER.unpack_from(header)  # fmt: skip
        if magic != MAGIC:
            raise self.damaged("it does not begin as a pack does")
        if self.version == 4:
            raise BlendexError(
                Code.PACK_VERSION,
                "this is a pack of version 4, with compressed manifests and their seek points inside; "
                "no released reader has it and its layout is not public.",
                file=self.file,
                next_step="Decompress the manifests and build a pack of version 2 or 3.",
            )
        if self.version not in VERSIONS:
            raise BlendexError(
                Code.PACK_VERSION,
                f"this is a pack of version {self.version}; 2 and 3 are read.",
                file=self.file,
                next_step="Update Blendex, or build the pack again.",
            )
        ends = (
            HEADER_BYTES,
            at + COLLECTION.size * count,
            sequences_at + SEQUENCE.itemsize * sequences,
            segments_at + SEGMENT.itemsize * segments,
            -(-(strings_at + strings) // 8) * 8,
            payloads_at + payloads,
        )
        starts = (at, sequences_at, segments_at, strings_at, payloads_at, self.size)
        if header_size != HEADER_BYTES or ends != starts:
            raise self.damaged("its sections do not follow each other")
        if payloads_at > MAX_HEAD:
            raise self.damaged("its catalogue is larger than any dataset needs")
        self.layout_hash = layout.hex()
        if expected is not None and expected.lower() != self.layout_hash:
            raise self.damaged(f"its layout hash is {self.layout_hash}, not {expected}")
        head = self.read(0, payloads_at)
        self.sequences = np.frombuffer(head, SEQUENCE, sequences, sequences_at)
        self.table = np.frombuffer(head, SEGMENT, segments, segments_at)
        self._strings, self._strings_at = head[strings_at : strings_at + strings], strings_at
        self._payloads_at = payloads_at
        self._spare = (header[HEADER.size :], head[strings_at + strings :])
        self._segments()
        self.collections: dict[bytes, PackCollection] = {}
        self._collections(list(COLLECTION.iter_unpack(head[at:sequences_at])))

    def _segments(self) -> None:
        """Each row of the segment table, and that payloads follow each other."""
        table = self.table
        flags = table["flags"]
        width = np.where(flags == ARRAY, 4, 8).astype(np.uint64)
        if (flags > (ARRAY if self.version == 3 else PATHS)).any():
            raise self.damaged("a segment has unknown flags")
        payload, length = table["payload"].astype(np.int64), table["bytes"].astype(np.int64)
        starts = self._payloads_at + np.cumsum(length) - length
        if (payload != starts).any() or self._payloads_at + int(length.sum()) != self.size:
            raise self.damaged("payloads do not follow each other")
        if (table["items"] * width != table["bytes"]).any() or ((flags != ARRAY) & (table["items"] < 1)).any():
            raise self.damaged("a segment has another length than its number of items")
        odd = (
            ((flags == ARRAY) & ((table["path_length"] | table["size"] | table["metadata"]) != 0))
            | ((flags == PATHS) & (table["items"] != 1))
            | ((flags == PATHS) & (table["metadata"] & SIZE_KNOWN != 0) & (table["size"] != 0))
        )
        if odd.any():
            raise self.damaged(f"segment {int(odd.argmax())} contradicts its flags")
        for number in range(len(table)):
            self.path(number)

    def _collections(self, rows: Sequence[tuple[Any, ...]]) -> None:
        records = np.where(self.table["flags"] == OFFSETS, self.table["items"].astype(np.int64) - 1, 0)
        records = np.where(self.table["flags"] == ARRAY, self.table["items"].astype(np.int64), records)
        at = 0
        for key, first, count, total, kind_at, kind_length, holds in rows:
            if holds > (ARRAY if self.version == 3 else PATHS):
                raise self.damaged("a collection has unknown flags")
            if first != at or first + count > len(self.sequences):
                raise self.damaged("sequence rows are not used in order")
            at = first + count
            if key in self.collections:
                raise self.damaged("two collections have one key")
            mine = self.sequences[first:at]
            numbers = mine["segment"]
            if (numbers >= len(self.table)).any():
                raise self.damaged("a sequence row names no segment")
            numbers = numbers.astype(np.int64)
            if (self.table["flags"][numbers] != holds).any():
                raise self.damaged("a collection mixes what it holds")
            sums = np.cumsum(records[numbers])
            if (mine["end"].astype(np.int64) != sums).any() or total != (int(sums[-1]) if count else 0):
                raise self.damaged("the records of a collection do not add up")
            kind = self._string(kind_at, kind_length)
            self.collections[key] = PackCollection(self, key, kind, holds, first, count)
        if at != len(self.sequences):
            raise self.damaged("sequence rows belong to no collection")

    @property
    def spare_is_zero(self) -> bool:
        """Whether the bytes that have no meaning are zeros, as every writer leaves them."""
        return not any(map(any, self._spare))

    def pieces(self, row: Any) -> Iterator[bytes]:
        """The payload of a segment, piece by piece."""
        start, left = int(row["payload"]), int(row["bytes"])
        while left:
            data = self.read(start, min(left, PIECE))
            start, left = start + len(data), left - len(data)
            yield data


def verify(pack: PackReader) -> None:
    """Read a pack whole: checksums, offsets that never decrease and end at the source's size, its layout hash.

    Raises:
        BlendexError: pack_damaged.
    """
    if not pack.spare_is_zero:
        raise pack.damaged("bytes without a meaning are not zero")
    for number, row in enumerate(pack.table):
        crc = 0
        last = 0
        for data in pack.pieces(row):
            crc = zlib.crc32(data, crc)
            if row["flags"] == OFFSETS:
                words = np.frombuffer(data, "<u8")
                if int(words[0]) < last or (words[1:] < words[:-1]).any():
                    raise pack.damaged(f"the offsets of {pack.path(number)} decrease")
                last = int(words[-1])
        if crc != int(row["crc"]):
            raise pack.damaged(f"segment {number} has another checksum")
        if row["flags"] == OFFSETS and last != int(row["size"]):
            raise pack.damaged(f"the offsets of {pack.path(number)} end at {last}, the source at {int(row['size'])}")
    found = computed_layout(pack)
    if found != pack.layout_hash:
        raise pack.damaged(f"its layout hash says {pack.layout_hash}, its content {found}")


def computed_layout(pack: PackReader) -> str:
    """The layout hash of what a pack holds, in hex."""
    digest = hashlib.sha256()
    for key, collection in pack.collections.items():
        shards = range(collection.shards)
        if collection.holds == ARRAY:
            counts = [int(pack.table[collection.segment(shard)]["items"]) for shard in shards]
            add_layout(digest, key, ARRAY, counts)
        else:
            add_layout(digest, key, collection.holds, [collection.path(at) for at in shards])
    return digest.hexdigest()
