"""Sidecars of NeMo tarred audio.

Format (NeMo 3.0.0 create_tar_index): unsigned 64-bit little-endian offsets of regular members whose stem
differs from that of the regular member before, then the size of the file. The stem is that of pathlib: the
last part of the name without its last suffix, whatever the folder. Regular are tarfile's isreg() types:
files, contiguous, sparse.
"""

from __future__ import annotations

import numpy as np

from blendex.formats.findings import Collector
from blendex.formats.learned import MemberReader
from blendex.formats.source import Readable
from blendex.formats.summary import Sink, Summary
from blendex.formats.tar import Member, walk
from blendex.formats.tarheader import REGULAR


def stem_of(name: bytes) -> bytes:
    """``pathlib.Path(name).stem`` of a member name, in bytes."""
    base = name.rpartition(b"/")[2]
    if not base or base == b".":  # pathlib drops empty and "." parts
        parts = [part for part in name.split(b"/") if part not in (b"", b".")]
        base = parts[-1] if parts else b""
    dot = base.rfind(b".")
    return base[:dot] if 0 < dot < len(base) - 1 else base


def build_nemo_tar(source: Readable, sink: Sink, upstream: bool, members: MemberReader | None = None) -> Summary:
    """Streams the sidecar of a NeMo tar into ``sink``. Upstream's bytes are the same, so ``upstream`` is
    unused. ``members`` learns the names on the way.

    Raises:
        BlendexError: as ``walk``.
    """
    scan = _Scan(sink, members)
    end = walk(source, scan.found, scan.visit)
    sink(source.size.to_bytes(8, "little"))
    return Summary(
        records=scan.records,
        size=source.size,
        content_hash=end.content_hash,
        findings=scan.found.findings(),
        facts={"members": end.members, "regular": scan.regular, "end": end.end}
        | ({"learnt": True} if members is not None else {}),
        learned=members.packed() if members is not None else None,
    )


class _Scan:
    def __init__(self, sink: Sink, learner: MemberReader | None) -> None:
        self._learner = learner
        self.found = Collector()
        self.records = 0
        self.regular = 0
        self._sink = sink
        self._members = 0
        self._stem: bytes | None = None
        self._name = b""  # of the member that the present record reads

    def visit(self, batch: list[Member]) -> None:
        offsets = []
        before = self._members
        for record, (offset, name, kind, size, _) in enumerate(batch, before):
            if kind != 0x30:
                if kind not in REGULAR:
                    continue
                if kind == ord("7"):
                    self.found.add("contiguous_member", offset, record)
            self.regular += 1
            if size == 0:
                self.found.add("empty_member", offset, record)
            stem = stem_of(name)
            if stem != self._stem:
                offsets.append(offset)
                self._stem, self._name = stem, name
            else:
                self.found.add(_why_merged(self._name, name), offset, record)
        if self._learner is not None:
            self._learn(batch, offsets)
        self._members += len(batch)
        self.records += len(offsets)
        if offsets:
            self._sink(np.array(offsets, "<u8").tobytes())

    def _learn(self, batch: list[Member], offsets: list[int]) -> None:
        assert self._learner is not None
        begin = set(offsets)
        for offset, name, kind, _, _ in batch:
            if kind in REGULAR:
                self._learner.add(name, first=offset in begin)


def _why_merged(first: bytes, name: bytes) -> str:
    """The finding for a member with the stem of the one that its record reads."""
    folder, _, base = name.rpartition(b"/")
    first_folder, _, first_base = first.rpartition(b"/")
    return "stem_group" if folder == first_folder and base != first_base else "merged_directories"
