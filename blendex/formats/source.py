"""What a builder reads from: an opened source, whatever store it lies on."""

from __future__ import annotations

from typing import Protocol

from blendex.errors import BlendexError, Code


class Readable(Protocol):
    """An opened source. Storage implements it; formats only ever read by position.

    Attributes:
        size: its size in bytes when it was opened.
    """

    @property
    def size(self) -> int: ...

    def pread(self, length: int, offset: int) -> bytes:
        """Up to ``length`` bytes at ``offset``; shorter only at the end of the file."""
        ...

    def pread_into(self, buffer: memoryview, offset: int) -> int:
        """Fills ``buffer`` from ``offset``; the number of bytes read, 0 at the end of the file."""
        ...


def read_full(source: Readable, buffer: memoryview, offset: int) -> int:
    """Fills ``buffer`` from ``offset`` over short reads; less than its length only at the end of the file."""
    done = 0
    while done < len(buffer):
        count = source.pread_into(buffer[done:], offset + done)
        if count == 0:
            break
        done += count
    return done


def changed(byte: int) -> BlendexError:
    """The source is not as long as it was when it was opened; ``byte`` is where that showed."""
    return BlendexError(
        Code.SOURCE_CHANGED,
        "the file changed its length while it was read",
        byte=byte,
        next_step="Wait until its writer has finished, then build again.",
    )


_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
}


def refuse_compressed(head: bytes) -> None:
    """Raises ``PATH_COMPRESSED`` if the first bytes of a source are a compressor's, whatever its name."""
    for magic, name in _COMPRESSED.items():
        if head.startswith(magic):
            raise BlendexError(
                Code.PATH_COMPRESSED,
                f"the content is {name}-compressed, so records have no byte offsets",
                byte=0,
                next_step="Decompress it and name the plain file in the blend.",
            )
