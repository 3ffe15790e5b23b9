"""Routing indexes of ShareGPT collections: for each manifest row, in which tar its audio lies, and as which record.

Format and rules of ``build_sharegpt_tar_routing_index`` (NeMo Speech main), version 2, little-endian: a header of 288
bytes with counts and digests, u64 row offsets (one more than rows), then records of two u32: position of the tar in the
collection, record in that tar's ``nemo_tar`` index. The digests tie it to the spelling, content and identity of the
manifests, to the identity of the tars and to the prefix map. Of local files, identity is size, modification time,
device and inode: a route is valid on the machine whose numbers it holds, and on no copy of the tree.

The content hash covers the whole file, since everything in it can differ.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NoReturn

import orjson

from blendex.errors import BlendexError, Code
from blendex.formats import tarheader as th
from blendex.formats.findings import Collector
from blendex.formats.nemo_tar import stem_of
from blendex.formats.source import Readable, changed
from blendex.formats.summary import Origin
from blendex.formats.tar import Member, walk
from blendex.formats.text import shown
from blendex.formats.wds_v2 import canonical

MAGIC = b"SGROUTE2"
HEADER = struct.Struct("<8sIIIIQQQQQQII32s32s32s32s32s32s16s")
HEADER_SIZE = 288
_U64 = struct.Struct("<Q")
_RECORD = struct.Struct("<II")
_AUDIO_FIELDS = ("sound", "speech", "ori_sound")
_MAX_ROW = 64 << 20  # upstream reads at most this much of a manifest at a time

assert HEADER.size == HEADER_SIZE


@dataclass(frozen=True, slots=True)
class Digests:
    """The five digests in a header, in their order."""

    specs: bytes
    content: bytes
    manifests: bytes
    tars: bytes
    prefixes: bytes


@dataclass(frozen=True, slots=True)
class Input:
    """A manifest or tar of a collection.

    Attributes:
        origin: what its store says of it.
        device: of a local file, with ``inode``; None in an object store.
        inode: see ``device``.
        content_hash: what its own sidecar was made from.
    """

    origin: Origin
    device: int | None
    inode: int | None
    content_hash: str

    def identity(self) -> bytes:
        """The record of ``_source_identity_record`` (NeMo Speech main)."""
        local = {} if self.device is None else {"device": self.device, "inode": self.inode}
        return canonical(self.origin.metadata() | local)


def pack(rows: Iterable[Sequence[tuple[int, int]]], tars: int, digests: Digests) -> bytes:
    """The bytes of a routing index.

    Args:
        rows: for each manifest row, (tar, record) of each of its audio files.
        tars: how many tars the collection has.
        digests: what ties it to its sources.
    """
    offsets = bytearray(_U64.pack(0))
    records = bytearray()
    count = routes = 0
    for row in rows:
        for tar, record in row:
            records += _RECORD.pack(tar, record)
        count += 1
        routes += len(row)
        offsets += _U64.pack(routes)
    at = HEADER_SIZE + len(offsets)
    body = bytes(offsets + records)
    head = HEADER.pack(
        MAGIC, 2, HEADER_SIZE, 3, 0, count, routes, tars, HEADER_SIZE, at, at + len(records), _RECORD.size, 0,
        digests.specs, digests.content, digests.manifests, digests.tars, digests.prefixes,
        hashlib.sha256(body).digest(), bytes(16),
    )  # fmt: skip
    return head + body


def prefix_digest(prefixes: Mapping[str, str]) -> bytes:
    """Of a prefix map."""
    return hashlib.sha256(canonical(dict(prefixes))).digest()


def spec_digest(paths: Sequence[str], specs: Sequence[str]) -> bytes:
    """Of the manifests' paths, each with the text it was expanded from."""
    return _records(canonical({"path": path, "spec": spec}) for path, spec in zip(paths, specs, strict=True))


def identity_digest(inputs: Iterable[Input]) -> bytes:
    """Of what the stores say of some sources."""
    return _records(item.identity() for item in inputs)


def _records(records: Iterable[bytes]) -> bytes:
    digest = hashlib.sha256()
    for record in records:
        digest.update(_U64.pack(len(record)) + record)
    return digest.digest()


def _broken(what: str, file: str, byte: int | None, next_step: str) -> BlendexError:
    return BlendexError(Code.ROUTE_BROKEN, what, file=file, byte=byte, next_step=next_step)


class Members:
    """Where each audio member of a collection lies, by its name, and by its base name where that is unique.

    Add the tars in the order of the collection.
    """

    def __init__(self) -> None:
        self.tars = 0
        self._exact: dict[bytes, tuple[int, int]] = {}
        self._bases: dict[bytes, tuple[int, int] | None] = {}  # None: several members have it

    def add(self, source: Readable, item: Input) -> None:
        """Take the members of one more tar.

        Raises:
            BlendexError: a record of its index has more than one member, or a name comes twice; SOURCE_CHANGED when
            it is not what its sidecar was made from; what ``walk`` raises.
        """
        path = item.origin.path
        scan = _Names(path)
        end = walk(source, Collector(), scan.visit)
        if end.content_hash != item.content_hash:
            raise changed(0)
        for record, (name, offset) in enumerate(scan.names):
            if name in self._exact:
                self._twice(name, path, offset)
            self._exact[name] = (self.tars, record)
            base = name.rstrip(b"/").rpartition(b"/")[2]
            self._bases[base] = None if base in self._bases else (self.tars, record)
        self.tars += 1

    def _twice(self, name: bytes, path: str, offset: int) -> NoReturn:
        raise _broken(
            f"two members of the collection are called {shown(name)}",
            path,
            offset,
            "Pack the tars with names that are unique in the collection.",
        )

    def find(self, reference: str) -> tuple[int, int] | str:
        """The member that a row means; or why there is none."""
        name = reference.encode("utf-8", "surrogateescape")
        exact = self._exact.get(name)
        if exact is not None:
            return exact
        base = name.rstrip(b"/").rpartition(b"/")[2]
        if base not in self._bases:
            return "names audio that no tar of the collection has"
        return self._bases[base] or "names audio by a base name that several members have"


class _Names:
    """The regular members of a tar, each of which must be a record of its own."""

    def __init__(self, path: str) -> None:
        self.names: list[tuple[bytes, int]] = []
        self._path = path
        self._stem: bytes | None = None

    def visit(self, batch: list[Member]) -> None:
        for offset, name, kind, _, _ in batch:
            if kind not in th.REGULAR:
                continue
            stem = stem_of(name)
            if stem == self._stem:
                raise _broken(
                    f"the member {shown(name)} shares a record of the index with the one before it",
                    self._path,
                    offset,
                    "Pack the tars so that neighbours differ in their stems: a route leads to records, not members.",
                )
            self._stem = stem
            self.names.append((name, offset))


class Rows:
    """The rows of one manifest after another, as routes.

    Args:
        members: the collection.
        placeholders: what stands for audio in a turn.
    """

    def __init__(self, members: Members, placeholders: Sequence[str]) -> None:
        self._members = members
        # The leftmost placeholder wins, of two that begin at one place the longer one; they never overlap.
        marks = sorted(placeholders, key=len, reverse=True)
        self._marks = re.compile("|".join(map(re.escape, marks)))
        self._content = hashlib.sha256()

    def content_digest(self) -> bytes:
        """Of all bytes read so far."""
        return self._content.digest()

    def read(self, source: Readable, offsets: Sequence[int], path: str) -> Iterator[list[tuple[int, int]]]:
        """The routes of each row.

        Args:
            source: the manifest.
            offsets: its index, with the sentinel.
            path: its name in messages.

        Raises:
            BlendexError: ROUTE_BROKEN with the byte of the row.
        """
        self._content.update(_U64.pack(source.size))
        for row, (start, end) in enumerate(pairwise(offsets)):
            if end - start > _MAX_ROW:
                self._refuse("is longer than upstream reads", row, path, start)
            data = source.pread(end - start, start)
            if len(data) != end - start:
                raise changed(start)
            self._content.update(data)
            found: list[tuple[int, int]] = []
            for reference in self._audio(data, row, path, start):
                where = self._members.find(reference)
                if isinstance(where, str):
                    self._refuse(where, row, path, start)
                found.append(where)
            yield found

    def _refuse(self, what: str, row: int, path: str, byte: int) -> NoReturn:
        raise _broken(f"row {row} {what}", path, byte, "Correct the row, or add the tar that has its audio.")

    def _audio(self, data: bytes, row: int, path: str, start: int) -> Sequence[str]:
        """The audio that a row refers to, in the order of its placeholders."""
        document = _decoded(data)
        if not isinstance(document, dict):
            self._refuse("is not a JSON object", row, path, start)
        wanted = self._count(document, row, path, start)
        value = next((document[key] for key in _AUDIO_FIELDS if document.get(key) not in (None, "", [])), None)
        if value is None:
            if wanted:
                self._refuse(f"has placeholders but none of {', '.join(_AUDIO_FIELDS)}", row, path, start)
            return ()
        paths = [value] if isinstance(value, str) else value
        if not isinstance(paths, list) or not all(isinstance(item, str) and item for item in paths):
            self._refuse("has audio that is neither a path nor a flat list of paths", row, path, start)
        if wanted == 0:
            return ()
        if len(paths) > 1 and wanted > 1 and wanted != len(paths):
            self._refuse(f"has {len(paths)} audio paths for {wanted} placeholders", row, path, start)
        return paths

    def _count(self, document: dict[str, Any], row: int, path: str, start: int) -> int:
        turns = document.get("conversations")
        if not isinstance(turns, list):
            self._refuse("has no list of conversations", row, path, start)
        count = 0
        for turn in turns:
            speaker = turn.get("from") if isinstance(turn, dict) else None
            if not isinstance(speaker, str):
                self._refuse("has a turn without a speaker", row, path, start)
            if speaker.lower() in ("human", "user"):
                text = turn.get("value", "")
                if not isinstance(text, str):
                    self._refuse("has a turn without text", row, path, start)
                count += sum(1 for _ in self._marks.finditer(text))
        return count


def _decoded(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            return None
