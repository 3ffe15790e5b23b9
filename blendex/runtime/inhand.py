"""What a child has in hand, in memory that it shares with its parent: written for every source, read when it matters.

A message for each of many thousand small sources would cost more than reading them: the parent would wake for every
one. A page costs the child a copy, and the parent nothing until the child dies or somebody asks.
"""

from __future__ import annotations

import mmap
import os
from typing import Any

import orjson

# Two places, written in turn; the first byte tells which one is whole: a death in mid-write leaves the other.
PLACE_BYTES = 64 * 1024
SIZE = mmap.PAGESIZE + 2 * PLACE_BYTES
HEAD_BYTES = 4


class InHand:
    """A page for one child.

    Args:
        descriptor: of memory that ``create`` made. It is not needed any more afterwards.
    """

    def __init__(self, descriptor: int) -> None:
        self._map = mmap.mmap(descriptor, SIZE)

    @staticmethod
    def create() -> int:
        """New memory, with nothing in it: its descriptor, to be closed when both ends have it."""
        descriptor = os.memfd_create("blendex-hand", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, SIZE)
        return descriptor

    def write(self, data: dict[str, Any]) -> None:
        """Replace what is told.

        Raises:
            ValueError: it is longer than a place: no path is.
        """
        body = orjson.dumps(data)
        if len(body) > PLACE_BYTES - HEAD_BYTES:
            raise ValueError(f"{len(body)} bytes in hand")
        place = 1 if self._map[0] != 1 else 2
        start = mmap.PAGESIZE + (place - 1) * PLACE_BYTES
        self._map[start + HEAD_BYTES : start + HEAD_BYTES + len(body)] = body
        self._map[start : start + HEAD_BYTES] = len(body).to_bytes(HEAD_BYTES, "big")
        self._map[0] = place

    def clear(self) -> None:
        """Nothing is told: a call is about to be given."""
        self._map[0] = 0

    def read(self) -> dict[str, Any] | None:
        """What was told last; None when nothing was since ``clear``."""
        while place := self._map[0]:
            start = mmap.PAGESIZE + (place - 1) * PLACE_BYTES
            length = int.from_bytes(self._map[start : start + HEAD_BYTES], "big")
            body = self._map[start + HEAD_BYTES : start + HEAD_BYTES + length]
            if self._map[0] == place:  # else it was written twice meanwhile
                try:
                    value: dict[str, Any] = orjson.loads(body)
                except orjson.JSONDecodeError:
                    continue  # and a third time
                return value
        return None

    def close(self) -> None:
        """Let go of the memory."""
        self._map.close()
