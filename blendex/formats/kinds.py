"""The kinds of sidecars: what builds them, by which recipe, and what their content hash covers.

A new kind is a module with a builder and one entry in ``KINDS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType

from blake3 import blake3

from blendex.errors import BlendexError, Code
from blendex.formats import wds_v2
from blendex.formats.jsonl import build_jsonl
from blendex.formats.learned import MemberReader, RowReader
from blendex.formats.nemo_tar import build_nemo_tar
from blendex.formats.source import Readable
from blendex.formats.summary import Origin, Sink, Summary
from blendex.formats.tar_path import build_tar_path
from blendex.formats.wds_tar import build_wds_tar

__all__ = ["KINDS", "Kind", "Origin", "Sink", "Summary", "build", "content_of", "files_of", "recipe"]

Builder = Callable[[Readable, Sink, bool], Summary]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of sidecar.

    Attributes:
        name: as in blends, receipts and keys.
        version: of its builder; another one is another recipe, so raise it when any byte may differ.
        strength: what the content hash covers: ``full`` bytes, ``structure`` (headers and size), or ``size``.
        suffix: of the sidecar's file name.
        build: builds from a source into a sink; True for upstream's exact bytes. None for a derived kind, which has
            inputs instead of a source.
        files: what lies in a mirror, the index first, made from what ``build`` wrote and from what the store says of
            the source. None: one file, as written.
        loose: whether it can lie in a mirror by itself; else only packs hold it.
    """

    name: str
    version: int
    strength: str
    suffix: str
    build: Builder | None
    files: Callable[[bytes, Origin], tuple[bytes, ...]] | None = None
    loose: bool = True

    @property
    def derived(self) -> bool:
        """Whether it is made from other sources of its entry."""
        return self.build is None

    @property
    def bound(self) -> bool:
        """Whether its files say of their source more than its bytes do, so that a touch makes other ones."""
        return self.files is not None


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            Kind("jsonl", 1, "full", ".idx", build_jsonl),
            Kind("nemo_tar", 1, "structure", ".idx", build_nemo_tar),
            Kind("wds_tar", 1, "structure", ".idx", build_wds_tar),
            Kind("wds_tar_v2", 1, "structure", ".wds-v2.idx", wds_v2.build_wds_v2, wds_v2.files_of),
            Kind("sharegpt_route", 1, "full", ".sgroute", None),
            Kind("tar_path", 1, "size", "", build_tar_path, loose=False),
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


def recipe(kind: str, compat: str, derivation: str = "") -> str:
    """Everything besides the bytes that decides a sidecar, such as ``jsonl/1`` or ``jsonl/1+upstream``.

    Args:
        kind: a key of ``KINDS``.
        compat: ``""``, or ``upstream`` for upstream's exact bytes.
        derivation: of a derived kind, a digest of its parameters and inputs.
    """
    entry = _kind(kind, compat)
    return _recipe(entry.name, entry.version, compat, derivation)


@lru_cache(maxsize=4_096)  # asked for every source, and few in number
def _recipe(name: str, version: int, compat: str, derivation: str) -> str:
    return f"{name}/{version}" + (f"+{compat}" if compat else "") + (f":{derivation}" if derivation else "")


def content_of(kind: str, content_hash: str, origin: Origin) -> str:
    """The content hash that keys and receipts name: for most kinds the one that reading gave.

    Kinds whose files carry what the store says of the source add it: a touch makes another mirror, though the
    offsets are those that were read before.
    """
    if not KINDS[kind].bound:
        return content_hash
    return blake3(bytes.fromhex(content_hash) + wds_v2.canonical(origin.metadata())).hexdigest()


def files_of(kind: str, stored: bytes, origin: Origin) -> tuple[bytes, ...]:
    """The files that a sidecar consists of, from what is stored of it; the index first."""
    make = KINDS[kind].files
    return (stored,) if make is None else make(stored, origin)


def build(kind: str, source: Readable, sink: Sink, compat: str = "", *, learn: bool = False) -> Summary:
    """Builds the sidecar of a source: one pass, flat memory, its bytes streamed into ``sink``.

    Args:
        kind: a key of ``KINDS`` that is not derived.
        source: an opened source.
        sink: receives the bytes of the sidecar in order; drop them if this raises.
        compat: ``""``, or ``upstream`` for upstream's exact bytes.
        learn: whether to learn in the same pass what the records are called and where they lead.

    Raises:
        BlendexError: the source cannot be indexed; ``byte`` says where, the caller adds ``file``.
    """
    entry = _kind(kind, compat)
    assert entry.build is not None
    upstream = compat == "upstream"
    if kind == "jsonl":
        reader = RowReader(source, blank_rows=upstream, names=learn)
        summary = entry.build(reader, sink, upstream)
        facts, learned = reader.finish()
        return replace(summary, facts=summary.facts | facts, learned=learned)
    if learn and kind == "nemo_tar":
        return build_nemo_tar(source, sink, upstream, MemberReader())
    return entry.build(source, sink, upstream)
