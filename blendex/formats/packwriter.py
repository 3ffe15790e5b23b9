"""Writes a pack in one pass: the size of all that stands before the payloads is known from the paths alone.

Payloads are gathered in one buffer, checked there all at once and written; the catalogue, which names their checksums,
is written last, in front of them. Memory is the buffer and about 700 bytes per segment.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
    Collection,
    Numbers,
    Strings,
    add_layout,
    refused,
)

BUFFER_BYTES = 1 << 19  # stays in the L2 cache from the read to the write: 8 MiB are 15 % slower
_LAST = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Written:
    """What a pack came to.

    Attributes:
        layout_hash: hex, as in its header.
        size: bytes of the file.
        version: 2, or 3 with arrays.
        collections: how many.
        segments: how many.
        records: of all collections that hold offsets.
    """

    layout_hash: str
    size: int
    version: int
    collections: int
    segments: int
    records: int


def bad_sidecar(path: str, sidecar: str, what: str) -> BlendexError:
    """A sidecar that cannot be packed."""
    return BlendexError(
        Code.SIDECAR_DAMAGED,
        f"the sidecar of {path} {what}.",
        file=sidecar,
        next_step="Index the source again, then pack.",
    )


class PackWriter:
    """One pack under construction.

    ``segments()`` names what is wanted, in order; each is given by ``room`` and ``take``, many at once by ``put``,
    others by ``stream``, ``path`` or ``array``. Then ``finish``.

    Args:
        descriptor: an empty file, open for reading and writing.
        collections: what is packed, in order.
        buffer_bytes: how much is gathered before it is written.

    Raises:
        BlendexError: pack_refused.
    """

    def __init__(self, descriptor: int, collections: Sequence[Collection], *, buffer_bytes: int = BUFFER_BYTES) -> None:
        if not collections:
            raise refused("there is no collection to pack.", next_step="Give it a dataset with sources.")
        self._descriptor = descriptor
        self._collections = collections
        self._keys: dict[bytes, None] = {}
        strings = Strings()
        kinds = []
        for collection in collections:
            key = collection.key
            if key in self._keys:
                raise refused(
                    f"two collections are the same {collection.role} of kind {collection.kind}.",
                    next_step="Give one of them another role or another spelling.",
                )
            self._keys[key] = None
            kinds.append(strings.add(collection.kind))
        self._rows, self.paths, holds, unique = self._number(collections)
        self.holds = np.frombuffer(holds, np.uint8).astype(np.uint32)
        count = len(self.paths)
        self._table = np.zeros(count, SEGMENT)
        self._table["flags"] = self.holds
        # Of each segment as it is written; they enter the table together, since its rows lie far apart in memory.
        self._bytes, self._source = np.zeros(count, np.int64), np.zeros(count, np.uint64)
        self._crc = np.zeros(count, np.uint32)
        places, lengths = strings.add_last(self.paths, unique=unique)
        self._table["path_length"] = lengths
        self._table["path"] = places
        rows = sum(map(len, self._rows))
        self._sections = [HEADER_BYTES]
        for size in (COLLECTION.size * len(collections), SEQUENCE.itemsize * rows, self._table.nbytes):
            self._sections.append(self._sections[-1] + size)
        self._table["path"] += np.uint64(self._sections[3])
        self._kinds = [(place + self._sections[3], length) for place, length in kinds]
        self._strings = strings.data
        self._payloads = -(-(self._sections[3] + len(self._strings)) // 8) * 8
        self._buffer = bytearray(buffer_bytes)
        self._view = memoryview(self._buffer)
        self._at = self._payloads  # where the buffer goes
        self._used = 0
        self._first = self._next = 0  # segments in the buffer: from, up to
        self._lengths: list[int] = []
        self._sizes: list[int] = []

    @staticmethod
    def _number(collections: Sequence[Collection]) -> tuple[list[Numbers], list[str], bytearray, bool]:
        """The segments of each collection's rows; the path of each segment, and what it holds; whether no path is
        known to be there twice."""
        numbers: dict[int, dict[str, int]] = {OFFSETS: {}, PATHS: {}}
        paths: list[str] = []
        holds = bytearray()
        rows: list[Numbers] = []
        for collection in collections:
            count, first = len(collection.paths), len(paths)
            if collection.holds == ARRAY:
                rows.append(np.arange(first, first + count))
                paths += [""] * count
            else:
                known = numbers[collection.holds]
                found = dict(zip(collection.paths, range(first, first + count), strict=True))
                if len(found) == count and known.keys().isdisjoint(found):  # the common case: all of them are new
                    if known:
                        known |= found
                    else:
                        numbers[collection.holds] = found
                    rows.append(np.arange(first, first + count))
                    paths += collection.paths
                else:
                    mine = np.empty(count, np.int64)
                    for row, path in enumerate(collection.paths):
                        number = known.setdefault(path, len(paths))
                        if number == len(paths):
                            paths.append(path)
                        mine[row] = number
                    rows.append(mine)
            holds += bytes([collection.holds]) * (len(paths) - len(holds))
        return rows, paths, holds, not (numbers[OFFSETS] and numbers[PATHS])

    def segments(self) -> Iterator[tuple[str, int]]:
        """Path and content of each segment that is still to be given, in order."""
        while self._next < len(self.paths):
            before = self._next
            yield self.paths[before], int(self.holds[before])
            assert self._next > before, "a segment was asked for and not given"

    def room(self, length: int) -> memoryview | None:
        """Room for ``length`` bytes at the end of the buffer; None when it never fits, and must be streamed."""
        if length > len(self._buffer) - self._used:
            self.flush()
            if length > len(self._buffer):
                return None
        return self._view[self._used : self._used + length]

    def take(self, length: int, size: int) -> None:
        """The next segment lies in the room that was given last.

        Args:
            length: bytes of the sidecar.
            size: of its source; what its last word must be.
        """
        self._lengths.append(length)
        self._sizes.append(size)
        self._used += length
        self._next += 1

    def put(self, data: bytes, lengths: Numbers, sizes: Numbers, crcs: Numbers) -> None:
        """The next segments, whole sidecars one after another in ``data``, with sizes of sources and CRC-32 of each."""
        self.flush()
        self._next += len(lengths)
        self._block(memoryview(data), lengths, sizes.astype(np.uint64), crcs)

    def patch_size(self, size: int, length: int) -> None:
        """Write ``size`` over the last word of a sidecar of ``length`` bytes that was just read into the room."""
        _LAST.pack_into(self._buffer, self._used + length - 8, size)

    def path(self, size: int | None) -> None:
        """The next segment is a path alone, with the size of its source where that is known."""
        room = self.room(8)
        assert room is not None
        room[:] = _LAST.pack(size or 0)
        self._table["metadata"][self._next] = 0 if size is None else SIZE_KNOWN
        self.take(8, size or 0)

    def array(self, data: bytes) -> None:
        """The next segment is an array of 32-bit numbers."""
        if len(data) % 4:
            raise refused(f"an array has {len(data)} bytes, which are no 32-bit numbers.", next_step="Write it again.")
        self.flush()
        self._bytes[self._next], self._crc[self._next] = len(data), zlib.crc32(data)
        self._write(memoryview(data))
        self._next += 1
        self._first = self._next

    def stream(self, pieces: Iterator[memoryview], length: int, size: int, sidecar: str) -> None:
        """The next segment is larger than the buffer: it comes in pieces of whole words."""
        self.flush()
        path = self.paths[self._next]
        self._bytes[self._next], self._source[self._next] = length, size
        crc, last, left = 0, 0, length
        for piece in pieces:
            words = np.frombuffer(piece, "<u8")
            if int(words[0]) < last or bool((words[1:] < words[:-1]).any()):
                raise bad_sidecar(path, sidecar, "has offsets that decrease")
            last = int(words[-1])
            crc = zlib.crc32(piece, crc)
            self._write(piece)
            left -= len(piece)
        if left or last != size:
            raise bad_sidecar(path, sidecar, f"ends at byte {last}, the source has {size}")
        self._crc[self._next] = crc
        self._next += 1
        self._first = self._next

    def _write(self, data: memoryview) -> None:
        while data:
            written = os.pwrite(self._descriptor, data, self._at)
            self._at += written
            data = data[written:]

    def flush(self) -> None:
        """Check and write what the buffer holds."""
        if self._lengths:
            lengths = np.array(self._lengths, np.int64)
            sizes = np.array(self._sizes, np.uint64)
            self._lengths.clear()
            self._sizes.clear()
            self._block(self._view[: self._used], lengths, sizes, None)
        self._used = 0
        self._first = self._next

    def _block(self, data: memoryview, lengths: Numbers, sizes: NDArray[np.uint64], crcs: Numbers | None) -> None:
        """Check and write the segments from the first that is not written up to the next that is wanted."""
        first, end = self._first, self._next
        ends = np.cumsum(lengths)
        starts = ends - lengths
        if crcs is None:
            crcs = np.array([zlib.crc32(data[a:b]) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)])
        self._check(data, first, sizes, starts, ends)
        self._bytes[first:end], self._source[first:end], self._crc[first:end] = lengths, sizes, crcs
        self._write(data)
        self._first = end

    def _check(self, data: memoryview, first: int, sizes: NDArray[np.uint64], starts: Numbers, ends: Numbers) -> None:
        """Offsets never decrease within a sidecar, and its last word is the size of its source."""
        words = np.frombuffer(data, "<u8", int(ends[-1]) // 8)
        last = words[ends // 8 - 1]
        wrong = last != sizes
        falls = words[1:] < words[:-1]
        falls[starts[1:] // 8 - 1] = False  # from the end of one to the beginning of the next
        if falls.any():
            place = int(falls.argmax()) + 1
            number = int(np.searchsorted(ends // 8, place, side="right"))
            path = self.paths[first + number]
            raise bad_sidecar(
                path, path, f"has offsets that decrease: {int(words[place])} follows {int(words[place - 1])}"
            )
        if wrong.any():
            number = int(wrong.argmax())
            path = self.paths[first + number]
            raise bad_sidecar(path, path, f"ends at byte {int(last[number])}, the source has {int(sizes[number])}")

    def finish(self) -> Written:
        """Write the catalogue; flushing the file and giving it a name is left to the caller."""
        assert self._next == len(self.paths), "segments are missing"
        self.flush()
        items = self._bytes // np.where(self.holds == ARRAY, 4, 8)
        self._table["payload"] = self._payloads + np.cumsum(self._bytes) - self._bytes
        self._table["bytes"], self._table["items"], self._table["crc"] = self._bytes, items, self._crc
        self._table["size"] = np.where(self.holds == OFFSETS, self._source, 0)
        records = np.select([self.holds == OFFSETS, self.holds == ARRAY], [items - 1, items], 0)
        end = self._at
        head = bytearray()
        row = total = 0
        self._at = self._sections[1]
        layout = hashlib.sha256()
        for collection, key, mine, (place, length) in zip(
            self._collections, self._keys, self._rows, self._kinds, strict=True
        ):
            sequence = np.zeros(len(mine), SEQUENCE)
            sequence["segment"] = mine
            sequence["end"] = np.cumsum(records[mine])
            count = int(sequence["end"][-1]) if len(mine) else 0
            total += count if collection.holds == OFFSETS else 0
            head += COLLECTION.pack(key, row, len(mine), count, place, length, collection.holds)
            row += len(mine)
            self._write(memoryview(sequence.tobytes()))
            shards = records[mine].tolist() if collection.holds == ARRAY else collection.paths
            add_layout(layout, key, collection.holds, shards)
        self._write(memoryview(self._table.tobytes()))
        self._write(memoryview(self._strings.ljust(self._payloads - self._sections[3], b"\0")))
        version = 3 if any(collection.holds == ARRAY for collection in self._collections) else 2
        header = HEADER.pack(
            MAGIC, version, HEADER_BYTES,
            self._sections[0], len(self._collections), self._sections[1], row, self._sections[2], len(self.paths),
            self._sections[3], len(self._strings), self._payloads, end - self._payloads, layout.digest(),
        )  # fmt: skip
        self._at = 0
        self._write(memoryview(header.ljust(HEADER_BYTES, b"\0") + head))
        return Written(layout.hexdigest(), end, version, len(self._collections), len(self.paths), total)
