"""Questions about the bytes of a text chunk, answered without a Python object per line."""

from __future__ import annotations

import codecs

import numpy as np
from numpy.typing import NDArray

SPACE = b" \t\r"
"""JSON white space besides the newline."""

_IS_SPACE = np.zeros(256, np.bool_)
_IS_SPACE[list(SPACE)] = True

# Mean line in bytes above which one search per line beats a mask over the chunk, and below which a 64-byte
# word of the mask usually holds several newlines
_LONG, _SHORT = 2500, 80
_STEPS = 3


def newlines(
    buffer: bytearray, data: NDArray[np.uint8], offset: int, mask: NDArray[np.bool_], mean: float
) -> NDArray[np.int64]:
    """Positions of 0x0A in ``data``, ascending.

    Args:
        buffer: the memory that ``data`` is a view of, from ``offset`` on.
        data: the chunk.
        offset: where the chunk begins in ``buffer``.
        mask: scratch, at least as long as the chunk.
        mean: expected bytes per line, 0 if unknown; it decides how to search, never what is found.
    """
    if mean > _LONG:
        return _search(buffer, offset, offset + len(data))
    hits = np.equal(data, 0x0A, out=mask[: len(data)])
    if 0 < mean < _SHORT or len(data) % 64:
        return np.flatnonzero(hits)
    # nonzero over 64-bit words of a bit mask is 5 times faster than over bytes, as long as few words are not
    # 0
    words = np.packbits(hits, bitorder="little").view(np.uint64)
    filled = words.astype(np.bool_).nonzero()[0]  # nonzero of numbers itself takes 3 times as long
    word = words.take(filled)
    if len(word) and np.bitwise_count(word).max() > 1:  # two newlines in 64 bytes
        return np.flatnonzero(hits)
    found: NDArray[np.int64] = filled << 6
    found += np.bitwise_count(word - np.uint64(1))
    return found


def _search(buffer: bytearray, start: int, end: int) -> NDArray[np.int64]:
    found: list[int] = []
    at = buffer.find(b"\n", start, end)
    while at >= 0:
        found.append(at - start)
        at = buffer.find(b"\n", at + 1, end)
    return np.array(found, np.int64)


def solid_edges(
    data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First and last position of each line ``[starts, ends)`` that is not white space.

    Each line must have a newline before and after it in ``data``. For a blank line the first position is that
    of the newline after it, the last that of the newline before it.

    A few steps over white space settle CRLF and small indents at a price per line; what is left needs one
    search over the whole chunk, so a line of a megabyte of spaces costs no more than any other.
    """
    first, last = starts.copy(), ends - 1
    for _ in range(_STEPS):
        ahead, behind = _IS_SPACE[data[first]], _IS_SPACE[data[last]]
        if not ahead.any() and not behind.any():
            return first, last
        first += ahead
        last -= behind
    solid = np.flatnonzero(~_IS_SPACE[data])
    return solid[solid.searchsorted(first)], solid[solid.searchsorted(last, side="right") - 1]


class Utf8Check:
    """Finds bytes that are not UTF-8 (RFC 3629) in chunks that need not end between characters.

    Only chunks with a byte above 0x7F, or after an unfinished character, have to be fed.
    """

    def __init__(self) -> None:
        self.pending = 0  # bytes of an unfinished character at the end of what was fed
        self._broken = False

    def feed(self, buffer: bytearray, start: int, end: int) -> tuple[int, int] | None:
        """Checks ``buffer[start:end]``; the bytes fed before must stand right before ``start``.

        Returns:
            Position of the first bad byte relative to ``start``, and how many there are; None without any.
        """
        begin = start - self.pending
        with memoryview(buffer)[begin:end] as view:
            if not self._broken:
                try:
                    _, used = codecs.utf_8_decode(view, "strict", False)
                except UnicodeDecodeError as error:
                    self._broken = True
                    first = begin - start + error.start  # the first error of the file
                else:
                    self.pending = end - begin - used
                    return None
            else:
                first = 0
            text, used = codecs.utf_8_decode(view, "surrogateescape", False)
        self.pending = end - begin - used
        # UTF-8 never decodes to a surrogate, so what was escaped into one is a bad byte
        points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        count = int(np.count_nonzero((points >= 0xDC80) & (points <= 0xDCFF)))
        return (first, count) if count else None

    def close(self) -> tuple[int, int] | None:
        """The unfinished character at the end of the file, as ``feed`` would report it."""
        return (-self.pending, self.pending) if self.pending else None


def shown(name: bytes, most: int = 120) -> str:
    """A name out of an archive for a message: readable, short, with every odd byte as an escape."""
    text = name[:most].decode("utf-8", "backslashreplace")
    safe = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return f"{safe}…" if len(name) > most else safe
