"""Bundles: what one unit leaves behind, the sidecars of many sources in one self-describing file.

Layout, little-endian::

    "BLXBNDL1" | sidecars, one after another | directory | footer
    footer = u64 directory offset | u64 directory length | 32 bytes SHA-256 of the directory | "BLXBNDL1"

The directory is zlib-compressed JSON, an array with an object per source: path, kind, recipe, strength,
content_hash, size, offset, length, digest (BLAKE3 of the sidecar), crc (its CRC-32), records, findings, facts, address,
token, racy.
What was learnt of the records, where that was asked for, follows the sidecar; facts has its place and length under
``learned``.
It makes a bundle worth something without a catalog: a lost database is filled again from bundles alone.
The file's name is the SHA-256 of its bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import zlib
from typing import Any

import orjson
from blake3 import blake3

from blendex.errors import BlendexError, Code

MAGIC = b"BLXBNDL1"
FOOTER = struct.Struct("<QQ32s8s")
BUFFER_BYTES = 1 << 20
# A directory entry takes about 400 bytes; a unit holds at most a few thousand sources.
MAX_DIRECTORY_BYTES = 1 << 28


class BundleWriter:
    """Writes one private bundle file: sidecars as they are made, the directory at the end.

    Args:
        path: a name that does not exist yet, in a folder of the filesystem that ``objects/`` is on.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o444)
        self._hash = hashlib.sha256()
        self._buffer = bytearray()
        self._flushed = 0
        self._entries: list[dict[str, Any]] = []
        self._append(MAGIC)

    def _append(self, data: bytes | memoryview) -> None:
        self._hash.update(data)
        self._buffer += data
        if len(self._buffer) >= BUFFER_BYTES:
            self._flush()

    def _flush(self) -> None:
        view = memoryview(self._buffer)
        while view:
            written = os.pwrite(self._descriptor, view, self._flushed)
            self._flushed += written
            view = view[written:]
        view.release()
        self._buffer = bytearray()

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self._flushed + len(self._buffer)

    def begin(self) -> None:
        """Start a sidecar; ``write`` it, then ``commit`` or ``abort``."""
        self._start = self.size
        self._start_hash = self._hash.copy()
        self._digest = blake3()
        self._crc = 0

    def write(self, data: bytes | memoryview) -> None:
        """The next bytes of the sidecar in hand."""
        self._digest.update(data)
        self._crc = zlib.crc32(data, self._crc)
        self._append(data)

    def commit(self, entry: dict[str, Any], learned: bytes | None = None) -> None:
        """Keep the sidecar in hand, described by ``entry`` (offset, length, digest and crc are added).

        Args:
            entry: its directory entry.
            learned: what was learnt of its records.
        """
        entry["offset"] = self._start
        entry["length"] = self.size - self._start
        entry["digest"] = self._digest.hexdigest()
        entry["crc"] = self._crc
        if learned is not None:
            entry["facts"] = entry["facts"] | {"learned": [self.size, len(learned)]}
            self._append(learned)
        self._entries.append(entry)

    def abort(self) -> None:
        """Forget the sidecar in hand: its source turned out bad."""
        self._hash = self._start_hash
        if self._start >= self._flushed:
            del self._buffer[self._start - self._flushed :]
            return
        self._buffer = bytearray()
        os.ftruncate(self._descriptor, self._start)
        self._flushed = self._start

    @property
    def entries(self) -> list[dict[str, Any]]:
        """The directory so far."""
        return self._entries

    def finish(self) -> tuple[str, int]:
        """Write the directory, flush, close; the SHA-256 of the file in hex and its size."""
        directory = zlib.compress(orjson.dumps(self._entries), 6)
        offset = self.size
        self._append(directory)
        self._append(FOOTER.pack(offset, len(directory), hashlib.sha256(directory).digest(), MAGIC))
        self._flush()
        os.fsync(self._descriptor)
        self._close()
        return self._hash.hexdigest(), self._flushed

    def discard(self) -> None:
        """Close and remove the private file, if it is there still: a file that is open keeps its place on the disk."""
        self._close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def read_directory(path: str) -> list[dict[str, Any]]:
    """The entries of a bundle, after its footer and directory have been checked.

    Raises:
        BlendexError: object_damaged, naming the file and what is wrong.
    """

    def damaged(reason: str) -> BlendexError:
        return BlendexError(
            Code.OBJECT_DAMAGED,
            f"this bundle is damaged: {reason}.",
            file=path,
            next_step="Move it out of objects/ and build again: its sources will be read once more.",
        )

    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < len(MAGIC) + FOOTER.size or file.read(len(MAGIC)) != MAGIC:
            raise damaged("it does not begin as a bundle does")
        file.seek(size - FOOTER.size)
        offset, length, digest, magic = FOOTER.unpack(file.read(FOOTER.size))
        if magic != MAGIC or offset + length + FOOTER.size != size or length > MAX_DIRECTORY_BYTES:
            raise damaged("it does not end as a bundle does")
        file.seek(offset)
        directory = file.read(length)
    if hashlib.sha256(directory).digest() != digest:
        raise damaged("its directory has another checksum")
    inflater = zlib.decompressobj()
    data = inflater.decompress(directory, MAX_DIRECTORY_BYTES)
    if inflater.unconsumed_tail:
        raise damaged("its directory is too large")
    entries: list[dict[str, Any]] = orjson.loads(data)
    return entries
