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
    """

    records: int
    size: int
    content_hash: str
    findings: tuple[Finding, ...]
    facts: dict[str, Any] = field(default_factory=dict)
