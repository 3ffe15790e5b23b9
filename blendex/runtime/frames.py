"""Messages between a parent and its child: a 4-byte big-endian length, then JSON."""

from __future__ import annotations

import os
import struct
from typing import Any

import orjson

LENGTH = struct.Struct(">I")
MAX_FRAME = 1 << 30


def encode(message: dict[str, Any]) -> bytes:
    """One frame."""
    body = orjson.dumps(message)
    return LENGTH.pack(len(body)) + body


def read_exactly(descriptor: int, length: int) -> bytes:
    """``length`` bytes; fewer when the other end closed."""
    data = bytearray()
    while len(data) < length:
        piece = os.read(descriptor, min(length - len(data), 1 << 20))
        if not piece:
            break
        data += piece
    return bytes(data)


def read(descriptor: int) -> dict[str, Any] | None:
    """The next frame; None when the other end closed."""
    head = read_exactly(descriptor, LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    body = read_exactly(descriptor, LENGTH.unpack(head)[0])
    message: dict[str, Any] = orjson.loads(body)
    return message


class Decoder:
    """Cuts a byte stream that arrives in pieces into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """The frames that ``data`` completes.

        Raises:
            ValueError: a frame is longer than any we send: the stream is not ours.
        """
        self._buffer += data
        messages = []
        while len(self._buffer) >= LENGTH.size:
            length = LENGTH.unpack_from(self._buffer)[0]
            if length > MAX_FRAME:
                raise ValueError(f"frame of {length} bytes")
            end = LENGTH.size + length
            if len(self._buffer) < end:
                break
            messages.append(orjson.loads(memoryview(self._buffer)[LENGTH.size : end]))
            del self._buffer[:end]
        return messages
