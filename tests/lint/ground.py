"""A disk made of a dict, as the ground of the linter; and the linter over examples."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import orjson

from blendex.blend.load import Limits
from blendex.blend.model import Source
from blendex.blend.world import World
from blendex.errors import BlendexError, Code
from blendex.formats.findings import Finding as SourceFinding
from blendex.formats.pack import ARRAY, PATHS, Collection
from blendex.formats.packreader import PackReader
from blendex.formats.packwriter import PackWriter
from blendex.lint.context import Context
from blendex.lint.engine import examine
from blendex.lint.facts import Facts, read_facts
from blendex.lint.ground import Seen, Sidecar
from blendex.lint.launcher import Launcher, read_launcher
from blendex.lint.model import Report
from blendex.lint.profile import profile
from blendex.lint.rule import Packed
from blendex.storage.interface import Opened, Stat
from tests.blend.fakes import Tree


class Bytes:
    """An opened file of a disk made of a dict."""

    def __init__(self, address: str, data: bytes) -> None:
        self.stat = Stat(address, len(data), "t", 1, 1)
        self.size = len(data)
        self._data = data

    def pread(self, length: int, offset: int) -> bytes:
        return self._data[offset : offset + length]

    def pread_into(self, buffer: memoryview, offset: int) -> int:
        part = self._data[offset : offset + len(buffer)]
        buffer[: len(part)] = part
        return len(part)

    def unchanged(self) -> bool:
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class Disk(Tree):
    """Files by absolute path, all of one age."""

    def stat_many(self, addresses: Sequence[str]) -> Iterator[Stat | BlendexError]:
        for address in addresses:
            yield self._stat(address)

    def _stat(self, address: str) -> Stat | BlendexError:
        if address not in self.files:
            return BlendexError(Code.SOURCE_MISSING, "there is no such file.", file=address, next_step="Check it.")
        return Stat(address, len(self._bytes(address)), "t", 1, 1)

    def _bytes(self, address: str) -> bytes:
        text = self.files[address]
        return text if isinstance(text, bytes) else text.encode()

    def open(self, address: str) -> Opened:
        self.reads.append(address)
        if address not in self.files:
            raise BlendexError(Code.SOURCE_MISSING, "there is no such file.", file=address, next_step="Check it.")
        return Bytes(address, self._bytes(address))

    def pack(self, address: str) -> PackReader:
        if address not in self.files:
            raise BlendexError(Code.SOURCE_MISSING, "there is no such file.", file=address, next_step="Check it.")
        descriptor = os.memfd_create("pack")
        try:
            os.write(descriptor, self._bytes(address))
            return PackReader(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)

    def sidecar(self, address: str, source: Stat | None) -> Sidecar:
        if address not in self.files:
            return Sidecar(True, "it is not there")
        data = self._bytes(address)
        (last,) = struct.unpack("<Q", data[-8:])
        return Sidecar(False, "" if source is None or last == source.size else "it is stale")


def pack_of(collections: Iterable[Packed | Collection], *, layout: bytes = b"") -> bytes:
    """A pack, written as ours are: each source has one record of nine bytes; an array one number for each."""
    held = [
        item if isinstance(item, Collection) else Collection(item.role, item.kind, item.spec, item.paths)
        for item in collections
    ]
    descriptor = os.memfd_create("pack")
    try:
        writer = PackWriter(descriptor, held)
        for path, holds in writer.segments():
            del path
            if holds == ARRAY:
                writer.array(struct.pack("<I", 0))
            elif holds == PATHS:
                writer.path(9)
            else:
                writer.stream(iter([memoryview(struct.pack("<2Q", 0, 9))]), 16, 9, "x.idx")
        written = writer.finish()
        data = os.pread(descriptor, written.size, 0)
    finally:
        os.close(descriptor)
    return data[:96] + layout + data[96 + len(layout) :]


class Known:
    """Findings by path."""

    def __init__(self, findings: Mapping[str, list[tuple[str, int]]]) -> None:
        self._findings = findings

    def seen(self, sources: Iterable[tuple[Source, str]]) -> dict[Source, Seen]:
        return {
            source: Seen(tuple(SourceFinding(name, count, 0) for name, count in self._findings[source.path]))
            for source, _ in sources
            if source.path in self._findings
        }


def run(
    text: str,
    *,
    files: Mapping[str, str | bytes] | None = None,
    launcher: str = "",
    script: str = "job.sbatch",
    facts: Mapping[str, Any] | None = None,
    upstream: str = "main",
    findings: Mapping[str, list[tuple[str, int]]] | None = None,
    **world: Any,
) -> tuple[Context, Report]:
    """Lint a text as /cfg/train.yaml."""
    given: Facts | None = read_facts(orjson.dumps(facts)) if facts is not None else None
    read: Launcher | None = read_launcher(launcher.encode(), script) if launcher else None
    return examine(
        text.encode(), "/cfg/train.yaml", World(**world), Disk(files), profile=profile(upstream), facts=given,
        launcher=read, knowledge=Known(findings) if findings is not None else None, limits=Limits(),
    )  # fmt: skip


def rules(report: Report) -> list[str]:
    """The ids of what was found."""
    return [finding.rule for finding in report.findings]


def fatals(report: Report) -> list[str]:
    return [finding.rule for finding in report.findings if finding.severity == "fatal"]
