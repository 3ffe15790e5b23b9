"""Sidecars of tars in pairs: Lhotse Shar and WebDataset with metadata.

Format (lhotse 2.0.0a7 create_tar_index): unsigned 64-bit little-endian offsets of members 0, 2, 4, … of any
type, then a sentinel. Upstream's sentinel is the bytes its stream consumed: whole records of 10,240 bytes up
to the end marker, less than the file where more follows, and such a sidecar fails upstream's own check
against the file size. Here the sentinel is the size of the file, unless ``upstream`` is asked for. Readers
only need it not to be smaller than the end of the last member.
"""

from __future__ import annotations

import numpy as np

from blendex.errors import BlendexError, Code
from blendex.formats.findings import Collector
from blendex.formats.nemo_tar import stem_of
from blendex.formats.source import Readable
from blendex.formats.summary import Sink, Summary
from blendex.formats.tar import Member, walk
from blendex.formats.tarheader import BLOCK, REGULAR
from blendex.formats.text import shown

_TAR_RECORD = 10240
_METADATA = (b"json", b"nometa")
_METADATA_SUFFIXES = tuple(b"." + suffix for suffix in _METADATA)
_PLACEHOLDERS = (b".nodata", b".nometa")  # empty by design (lhotse 2.0.0a7 shar writers)


def build_wds_tar(source: Readable, sink: Sink, upstream: bool) -> Summary:
    """Streams the sidecar of a tar in pairs into ``sink``.

    Args:
        source: the archive.
        sink: receives the sidecar.
        upstream: True for upstream's sentinel.

    Raises:
        BlendexError: ``TAR_ODD_MEMBERS`` with the byte of the lone member; else as ``walk``.
    """
    scan = _Scan(sink)
    end = walk(source, scan.found, scan.visit)
    if scan.open is not None:
        raise BlendexError(
            Code.TAR_ODD_MEMBERS,
            f"the archive has {end.members} members, which do not make pairs; {shown(scan.open[1])} stands alone",
            byte=scan.open[0],
            next_step="Pack data and metadata of every sample as two neighbours.",
        )
    sentinel = source.size
    if upstream and end.marked:
        consumed = -(-(end.end + BLOCK) // _TAR_RECORD) * _TAR_RECORD
        sentinel = min(sentinel, consumed)
    sink(sentinel.to_bytes(8, "little"))
    return Summary(
        records=end.members // 2,
        size=source.size,
        content_hash=end.content_hash,
        findings=scan.found.findings(),
        facts={"members": end.members, "end": end.end},
    )


class _Scan:
    def __init__(self, sink: Sink) -> None:
        self.found = Collector()
        self.open: Member | None = None  # first of a pair whose second is not here yet
        self._sink = sink
        self._members = 0

    def visit(self, batch: list[Member]) -> None:
        first = 0
        if self.open is not None:
            self._pair(self.open, batch[0], self._members - 1)
            first = 1
        data, metadata = batch[first::2], batch[first + 1 :: 2]
        for record, (one, two) in enumerate(zip(data, metadata, strict=False)):
            self._pair(one, two, self._members + first + 2 * record)
        self.open = data[-1] if len(data) > len(metadata) else None
        self._members += len(batch)
        if data:
            self._sink(np.array([member[0] for member in data], "<u8").tobytes())

    def _pair(self, one: Member, two: Member, record: int) -> None:
        """Judges a pair; ``record`` is the member number of its first. A plain pair passes after one test."""
        _, name, kind, size, extended = one
        _, other_name, other_kind, other_size, other_extended = two
        root, _, suffix = name.rpartition(b".")
        other, _, other_suffix = other_name.rpartition(b".")
        if not (
            kind == other_kind == 0x30
            and size
            and other_size
            and other_suffix in _METADATA
            and suffix not in _METADATA
            and root == other
            and not (extended or other_extended)
        ):
            self._odd_pair(one, two, record)

    def _odd_pair(self, one: Member, two: Member, record: int) -> None:
        regular, meta, roots = [], [], []
        for number, (offset, name, kind, size, extended) in enumerate((one, two), record):
            regular.append(kind in REGULAR)
            meta.append(name.endswith(_METADATA_SUFFIXES))
            roots.append(_root(name))
            if kind not in REGULAR:
                self.found.add("not_regular", offset, number)
            elif size == 0 and not name.endswith(_PLACEHOLDERS):
                self.found.add("empty_member", offset, number)
            if extended:
                self.found.add("long_name", offset, number)
        if all(regular):
            if meta[0] == meta[1] or roots[0] != roots[1]:
                self.found.add("mispaired", one[0], record)
            elif meta[0]:
                self.found.add("metadata_first", one[0], record)


def _root(name: bytes) -> tuple[bytes, bytes]:
    """Folder and stem of a name: what the members of a pair share."""
    return name.rpartition(b"/")[0], stem_of(name)
