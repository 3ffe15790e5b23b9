"""Sidecars of WebDataset tars with any number of members per sample: offsets and canonical metadata.

Format (``create_wds_v2_tar_index``, NeMo Speech main): unsigned 64-bit little-endian offsets of the first member of
each sample, then the size of the file; beside it compact JSON that ties the offsets to the source: its path as
configured, size and modification time. A sample is a run of regular members with one key: their folder and their
base name up to its first dot. It has exactly one ``.json``, which holds an object, and something else.

Content hash (strength ``structure``): BLAKE3 over the hash of the walk and the bytes of every ``.json``, since both
decide whether there is a sidecar. What the metadata says of the source itself joins it in ``kinds.content_of``.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, NoReturn

import numpy as np
import orjson
from blake3 import blake3

from blendex.errors import BlendexError, Code
from blendex.formats import tarheader as th
from blendex.formats.findings import Collector
from blendex.formats.source import Readable, changed
from blendex.formats.summary import Origin, Sink, Summary
from blendex.formats.tar import Member, walk
from blendex.formats.text import shown

ALGORITHM = "posix-parent-plus-basename-prefix-before-first-dot-v1"
_MAX_JSON = 64 << 20  # of one member; real ones take kilobytes
_COUNT = 8  # the number of regular members, kept behind the offsets in a bundle


def build_wds_v2(source: Readable, sink: Sink, upstream: bool) -> Summary:
    """Streams the offsets of the samples into ``sink``, then the number of regular members.

    Raises:
        BlendexError: ``WDS_BAD_SAMPLE`` where upstream refuses the archive; else as ``walk``.
    """
    scan = _Scan(source, sink)
    end = walk(source, scan.found, scan.visit)
    scan.close()
    sink(source.size.to_bytes(8, "little"))
    sink(scan.regular.to_bytes(_COUNT, "little"))
    digest = blake3(bytes.fromhex(end.content_hash))
    digest.update(scan.json_hash.digest())
    return Summary(
        records=scan.samples,
        size=source.size,
        content_hash=digest.hexdigest(),
        findings=scan.found.findings(),
        facts={"members": end.members, "regular": scan.regular, "end": end.end},
    )


def files_of(stored: bytes, origin: Origin) -> tuple[bytes, bytes]:
    """The two files of a sidecar, from what ``build_wds_v2`` wrote and what the store says of the source."""
    offsets = stored[:-_COUNT]
    metadata = {
        "format": "nemo-wds-sample-index",
        "version": 2,
        "sample_key_algorithm": ALGORITHM,
        "offsets_sha256": hashlib.sha256(offsets).hexdigest(),
        "regular_member_count": int.from_bytes(stored[-_COUNT:], "little"),
        "sample_count": len(offsets) // 8 - 1,
        "source": origin.metadata(),
    }
    return offsets, canonical(metadata)


def canonical(value: Any) -> bytes:
    """Compact JSON with sorted keys, as upstream compares it byte by byte."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


def sample_key(name: bytes) -> tuple[bytes, str]:
    """The key of a member, and why there is none (``wds_sample_key``, NeMo Speech main)."""
    parts = name.split(b"/")
    if not name or name.startswith(b"/"):
        return b"", "has no name or an absolute one"
    if b"." in parts or b".." in parts:
        return b"", "has . or .. in its name"
    folders = [part for part in parts if part]
    base = folders.pop() if folders else b""
    dot = base.find(b".")
    if dot == 0:
        return b"", "has a base name that begins with a dot"
    if dot < 0 or dot == len(base) - 1:
        return b"", "has no suffix"
    return b"/".join((*folders, base[:dot])), ""


class _Scan:
    def __init__(self, source: Readable, sink: Sink) -> None:
        self.found = Collector()
        self.samples = 0
        self.regular = 0
        self.json_hash = blake3()
        self._source, self._sink = source, sink
        self._members = 0
        self._names: set[bytes] = set()
        self._closed: dict[bytes, int] = {}
        self._key: bytes | None = None
        self._start = 0
        self._json = self._payloads = 0

    def visit(self, batch: list[Member]) -> None:
        offsets = []
        for record, member in enumerate(batch, self._members):
            offset, name, kind, size, _ = member
            if kind not in th.REGULAR:
                continue
            self.regular += 1
            if kind == ord("7"):
                self.found.add("contiguous_member", offset, record)
            key, wrong = sample_key(name)
            if wrong:
                self._refuse(f"the member {shown(name)} {wrong}", offset)
            if key != self._key:
                self._begin(key, offset)
                offsets.append(offset)
            if name in self._names:
                self._refuse(f"two members are called {shown(name)}", offset)
            self._names.add(name)
            if name.endswith(b".json"):
                self._json += 1
                self._check_json(member)
            else:
                self._payloads += 1
                if size == 0:
                    self.found.add("empty_member", offset, record)
        self._members += len(batch)
        self.samples += len(offsets)
        if offsets:
            self._sink(np.array(offsets, "<u8").tobytes())

    def _begin(self, key: bytes, offset: int) -> None:
        self.close()
        if key in self._closed:
            self._refuse(f"the sample {shown(key)} at byte {self._closed[key]} comes back", offset)
        self._key, self._start = key, offset
        self._json = self._payloads = 0

    def close(self) -> None:
        """The sample in hand is complete."""
        if self._key is None:
            return
        if self._json != 1:
            self._refuse(f"the sample {shown(self._key)} has {self._json} .json members", self._start)
        if not self._payloads:
            self._refuse(f"the sample {shown(self._key)} has nothing beside its .json", self._start)
        self._closed[self._key] = self._start

    def _check_json(self, member: Member) -> None:
        offset, name, _, size, extended = member
        if size > _MAX_JSON:
            self._refuse(f"{shown(name)} has {size:,} bytes; at most {_MAX_JSON:,} are read", offset)
        data = self._source.pread(size, self._data(offset, extended))
        if len(data) < size:
            raise changed(offset)
        self.json_hash.update(size.to_bytes(8, "little") + data)
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError:
            try:
                value = json.loads(data)  # takes NaN and deeper nesting, as upstream does
            except (ValueError, RecursionError):
                self._refuse(f"{shown(name)} is not JSON", offset)
        if not isinstance(value, dict):
            self._refuse(f"{shown(name)} is not a JSON object", offset)

    def _data(self, at: int, extended: bool) -> int:
        """Where the data of a member begins whose first header is at ``at``; the walk has checked the headers."""
        while extended:
            header = self._source.pread(th.BLOCK, at)
            if len(header) < th.BLOCK:
                raise changed(at)
            extended = header[156] in th.EXTENDED
            if extended:
                at += th.BLOCK + th.blocks(th.size_of(header[124:136]))
        return at + th.BLOCK

    def _refuse(self, what: str, byte: int) -> NoReturn:
        raise BlendexError(
            Code.WDS_BAD_SAMPLE,
            f"{what}, which WebDataset samples of version 2 must not",
            byte=byte,
            next_step="Pack every sample as neighbours of one base name: one .json with an object, and its audio.",
        )
