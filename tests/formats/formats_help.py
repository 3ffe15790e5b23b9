"""What the tests of formats share: sources in memory, archives by hand, and a short way to build."""

from __future__ import annotations

import importlib.util
import io
import json
import random
import struct
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from blendex.errors import BlendexError
from blendex.formats.kinds import Summary, build

DATA = Path(__file__).parents[1] / "data" / "golden"


def _load_gen() -> Any:
    spec = importlib.util.spec_from_file_location("golden_gen", DATA / "gen.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


gen = _load_gen()
EXPECTED = json.loads((DATA / "expected.json").read_text())["cases"]
member, header, padded, pax, extended, END = (
    gen.member,
    gen.header,
    gen.padded,
    gen.pax,
    gen.extended,
    gen.END,
)


class Memory:
    """A source in memory. ``size`` may claim another length, as of a file that changes while it is read."""

    def __init__(self, data: bytes, size: int | None = None, short: random.Random | None = None) -> None:
        self.data, self.size, self._short = data, len(data) if size is None else size, short
        self.reads = 0

    def pread(self, length: int, offset: int) -> bytes:
        self.reads += 1
        return self.data[offset : offset + length]

    def pread_into(self, buffer: memoryview, offset: int) -> int:
        length = len(buffer) if self._short is None else self._short.randint(1, len(buffer))
        part = self.data[offset : offset + length]
        buffer[: len(part)] = part
        return len(part)


def unpack(sidecar: bytes) -> list[int]:
    """The numbers of a sidecar."""
    return list(struct.unpack(f"<{len(sidecar) // 8}Q", sidecar))


def run(kind: str, data: bytes, compat: str = "") -> tuple[list[int], Summary]:
    """Offsets and summary of a source in memory."""
    out = bytearray()
    summary = build(kind, Memory(data), out.extend, compat)
    offsets = unpack(bytes(out))
    assert summary.records == len(offsets) - 1
    assert summary.size == len(data)
    return offsets, summary


def found(kind: str, data: bytes, compat: str = "") -> dict[str, tuple[int, int, int | None]]:
    """Findings by name: count, first byte, record."""
    return {f.name: (f.count, f.first, f.record) for f in run(kind, data, compat)[1].findings}


def failure(kind: str, data: bytes, compat: str = "") -> BlendexError:
    """The error that a source must raise."""
    with pytest.raises(BlendexError) as caught:
        run(kind, data, compat)
    assert caught.value.next_step
    assert caught.value.byte is not None
    return caught.value


def tarfile_members(data: bytes) -> list[tarfile.TarInfo] | None:
    """What Python's tarfile lists, None where it raises or does not come to an end."""
    members: list[tarfile.TarInfo] = []
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for info in archive:
                members.append(info)
                if len(members) > len(data) // 512:
                    return None
    except Exception:  # whatever it raises on hostile input
        return None
    return members


def nemo_rule(members: Sequence[tarfile.TarInfo]) -> list[int]:
    """Offsets of the regular members whose stem is not that of the one before."""
    offsets, before = [], None
    for info in members:
        if info.isreg():
            stem = Path(info.name).stem
            if stem != before:
                offsets.append(info.offset)
            before = stem
    return offsets
