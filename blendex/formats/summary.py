"""What a builder gives back besides the bytes of the sidecar."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from blendex.formats.findings import Finding

Sink = Callable[[bytes | memoryview], Any]
"""Receives the bytes of a sidecar, in order, piece by piece. A piece is only valid during the call."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What one pass over a source taught.

    Attributes:
        records: records in the sidecar (its offsets without the sentinel).
        size: bytes of the source.
        content_hash: hex BLAKE3 of what decides sidecar and findings (the kind's strength says what).
        findings: in the order of the closed table.
        facts: small and JSON-able; its keys depend on the kind.
        learned: what the records are called and where they lead, packed (``learned``); None when not asked for.
    """

    records: int
    size: int
    content_hash: str
    findings: tuple[Finding, ...]
    facts: dict[str, Any] = field(default_factory=dict)
    learned: bytes | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """What the store says of a source, as far as sidecars carry it.

    Attributes:
        path: as configured.
        size: in bytes.
        mtime_ns: of a local file; 0 in an object store.
        identity: version, ETag or checksum in an object store; None for a local file.
    """

    path: str
    size: int
    mtime_ns: int
    identity: str | None = None

    def metadata(self) -> dict[str, Any]:
        """The record that upstream's ``indexed_source_metadata`` makes (NeMo Speech main)."""
        return {
            "mtime_ns": self.mtime_ns,
            "object_identity": self.identity,
            "path": self.path,
            "size_bytes": self.size,
        }
