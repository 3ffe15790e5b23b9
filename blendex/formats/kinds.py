"""The kinds of sidecars: what builds them, by which recipe, and what their content hash covers.

A new kind is a module with a builder and one entry in ``KINDS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from blendex.errors import BlendexError, Code
from blendex.formats.jsonl import build_jsonl
from blendex.formats.nemo_tar import build_nemo_tar
from blendex.formats.source import Readable
from blendex.formats.summary import Sink, Summary
from blendex.formats.wds_tar import build_wds_tar

__all__ = ["KINDS", "Kind", "Sink", "Summary", "build", "recipe"]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of sidecar.

    Attributes:
        name: as in blends, receipts and keys.
        version: of its builder; another one is another recipe, so raise it when any byte may differ.
        strength: what the content hash covers: ``full`` bytes, or ``structure`` (headers and size).
        suffix: of the sidecar's file name.
        build: builds from a source into a sink; True for upstream's exact bytes.
    """

    name: str
    version: int
    strength: str
    suffix: str
    build: Callable[[Readable, Sink, bool], Summary]


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            Kind("jsonl", 1, "full", ".idx", build_jsonl),
            Kind("nemo_tar", 1, "structure", ".idx", build_nemo_tar),
            Kind("wds_tar", 1, "structure", ".idx", build_wds_tar),
        )
    }
)


def _kind(name: str, compat: str) -> Kind:
    if name not in KINDS:
        raise BlendexError(Code.BAD_VALUE, f"there is no kind {name!r}", next_step=f"Use one of {', '.join(KINDS)}.")
    if compat not in ("", "upstream"):
        raise BlendexError(
            Code.BAD_VALUE, f"there is no compat {compat!r}", next_step='Use "upstream", or leave it out.'
        )
    return KINDS[name]


def recipe(kind: str, compat: str) -> str:
    """Everything besides the bytes that decides a sidecar, such as ``jsonl/1`` or ``jsonl/1+upstream``.

    Args:
        kind: a key of ``KINDS``.
        compat: ``""``, or ``upstream`` for upstream's exact bytes.
    """
    entry = _kind(kind, compat)
    return f"{entry.name}/{entry.version}" + (f"+{compat}" if compat else "")


def build(kind: str, source: Readable, sink: Sink, compat: str = "") -> Summary:
    """Builds the sidecar of a source: one pass, flat memory, its bytes streamed into ``sink``.

    Args:
        kind: a key of ``KINDS``.
        source: an opened source.
        sink: receives the bytes of the sidecar in order; drop them if this raises.
        compat: ``""``, or ``upstream`` for upstream's exact bytes.

    Raises:
        BlendexError: the source cannot be indexed; ``byte`` says where, the caller adds ``file``.
    """
    return _kind(kind, compat).build(source, sink, compat == "upstream")
