"""Checksums of whole objects, of the kinds that stores tell: computed as bytes come, and compared.

A checksum is (kind, value). Kinds are ``xxhash2``, ``xxhash`` (both XXH64 with seed 0), ``md5``, ``sha1``, ``sha256``,
``sha512``, ``crc32``, ``crc32c`` and ``crc64nvme``; of the last two awscrt computes what zlib cannot. Any other kind,
such as ``composite`` for the checksum of an upload's parts, is told by the store and cannot be compared.
"""

from __future__ import annotations

import hashlib
import zlib
from base64 import b64encode
from collections.abc import Callable
from typing import Protocol

COMPOSITE = "composite"


class Summer(Protocol):
    """A checksum in the making."""

    def update(self, data: bytes | memoryview, /) -> object: ...
    def hexdigest(self) -> str: ...


class _Crc:
    def __init__(self, step: Callable[[bytes | memoryview, int], int], digits: int) -> None:
        self._step = step
        self._digits = digits
        self._value = 0

    def update(self, data: bytes | memoryview, /) -> None:
        self._value = self._step(data, self._value)

    def hexdigest(self) -> str:
        return f"{self._value:0{self._digits}x}"


def summer(kind: str) -> Summer | None:
    """A checksum of a kind, as stores call it; None for a kind that is not computed here."""
    if kind in ("xxhash2", "xxhash"):
        try:
            import xxhash
        except ImportError:
            return None
        made: Summer = xxhash.xxh64()
        return made
    if kind in ("md5", "sha256", "sha512", "sha1"):
        return hashlib.new(kind, usedforsecurity=False)
    if kind == "crc32":
        return _Crc(zlib.crc32, 8)
    if kind in ("crc32c", "crc64nvme"):
        try:
            from awscrt import checksums
        except ImportError:
            return None
        return _Crc(checksums.crc32c, 8) if kind == "crc32c" else _Crc(checksums.crc64nvme, 16)
    return None


def agrees(ours: str, value: str) -> bool:
    """Whether a hex digest is what a store tells, in hex or in base64."""
    return ours == value.lower() or b64encode(bytes.fromhex(ours)).decode() == value


def matches(data: bytes, kind: str, value: str) -> bool:
    """Whether a checksum is that of these bytes; a kind that is not computed here says nothing."""
    made = summer(kind)
    if made is None:
        return True
    made.update(data)
    return agrees(made.hexdigest(), value)


def uncompared(kind: str, profile: str) -> str:
    """What people are told of checksums that nothing was compared with."""
    if kind == COMPOSITE:
        return (
            f"Objects at {profile} were uploaded in parts, and the store tells checksums of the parts: lengths and "
            "versions are checked, checksums are not."
        )
    return f"Checksums of kind {kind} at {profile} cannot be computed here, and are not compared."
