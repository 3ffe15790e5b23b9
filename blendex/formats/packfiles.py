"""A pack from sidecars that lie as files beside or apart from their sources (lhotse ``write_index_pack``).

The file comes to its name by a link, never over another one, when all is checked and flushed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from blendex.errors import BlendexError, Code
from blendex.formats.pack import ARRAY, PATHS, Collection, refused
from blendex.formats.packwriter import PackWriter, Written, bad_sidecar

_REMOTE = re.compile(r"^[A-Za-z][A-Za-z0-9+.\-]*://|^pipe:")


def pack_files(
    output: str,
    collections: Sequence[Collection],
    sidecar: Callable[[str], str],
    *,
    sizes: Mapping[str, int] | None = None,
    arrays: Iterable[bytes] = (),
) -> Written:
    """Write the pack of some collections.

    Args:
        output: a name that does not exist yet.
        collections: what is packed.
        sidecar: the sidecar of a source.
        sizes: of sources, where their sidecars say another one that is known to be wrong.
        arrays: the shards of the arrays among the collections, in order.

    Raises:
        BlendexError: pack_refused, sidecar_missing, sidecar_damaged, source_missing, source_changed; nothing is left.
    """
    if os.path.lexists(output):
        raise refused("a file of this name exists.", output, "Choose another name, or move it away.")
    private = f"{output}.{os.urandom(8).hex()}"
    descriptor = os.open(private, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o644)
    try:
        writer = PackWriter(descriptor, collections)
        known, shards = sizes or {}, iter(arrays)
        for path, holds in writer.segments():
            if holds == ARRAY:
                writer.array(next(shards))
            elif holds == PATHS:
                writer.path(_size(path, known))
            else:
                _give(writer, path, sidecar(path), known.get(path))
        written = writer.finish()
        os.fsync(descriptor)
        os.link(private, output)
    finally:
        os.close(descriptor)
        os.unlink(private)
    return written


def _size(path: str, known: Mapping[str, int]) -> int | None:
    size = known.get(path)
    if size is not None and not _REMOTE.match(path) and os.path.exists(path):
        _agree(path, size, os.stat(path).st_size)
    return size


def _agree(path: str, given: int, real: int) -> None:
    if given < 0 or given != real:
        raise refused(f"its size is said to be {given}, and is {real}.", path, "Leave the size out.")


def _give(writer: PackWriter, path: str, sidecar: str, known: int | None) -> None:
    if _REMOTE.match(sidecar):
        raise refused("a sidecar that is not on this machine cannot be packed.", sidecar, "Copy the sidecars first.")
    try:
        descriptor = os.open(sidecar, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise BlendexError(
            Code.SIDECAR_MISSING, f"{path} has no sidecar.", file=sidecar, next_step="Index the source, then pack."
        ) from None
    try:
        status = os.fstat(descriptor)
        length = status.st_size
        if length < 8 or length % 8:
            raise bad_sidecar(path, sidecar, f"has {length} bytes, which are no 64-bit offsets")
        size = known
        if not _REMOTE.match(path):
            real = _stat(path)
            if known is None:
                size = real.st_size
                if real.st_mtime_ns > status.st_mtime_ns:
                    raise BlendexError(
                        Code.SOURCE_CHANGED,
                        "the source is newer than its sidecar.",
                        file=path,
                        next_step="Index it again, then pack.",
                    )
            else:
                _agree(path, known, real.st_size)
        elif known is None:
            size = int.from_bytes(os.pread(descriptor, 8, length - 8), "little")
        assert size is not None
        room = writer.room(length)
        if room is None:
            writer.stream(_pieces(descriptor, length), length, size, sidecar)
            return
        if os.preadv(descriptor, [room], 0) != length:
            raise bad_sidecar(path, sidecar, "changes while it is read")
        if known is not None:
            writer.patch_size(size, length)
        writer.take(length, size)
    finally:
        os.close(descriptor)


def _stat(path: str) -> os.stat_result:
    try:
        return os.stat(path)
    except FileNotFoundError:
        raise BlendexError(
            Code.SOURCE_MISSING, "the source is not there.", file=path, next_step="Mend the path, or bring it back."
        ) from None


def _pieces(descriptor: int, length: int, step: int = 4 << 20) -> Iterator[memoryview]:
    buffer = memoryview(bytearray(step))
    done = 0
    while done < length:
        want = min(step, length - done)
        count = os.preadv(descriptor, [buffer[:want]], done) & -8
        if not count:
            return
        yield buffer[:count]
        done += count
