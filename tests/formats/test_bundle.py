"""Bundles: what was written is read; what is broken is named."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from blendex.errors import BlendexError, Code
from blendex.formats.bundle import BUFFER_BYTES, BundleWriter, read_directory
from blendex.storage.root import Root
from blendex.units.bundles import private_bundle


def write(path: Path, parts: list[tuple[bytes, bool]]) -> tuple[list[dict[str, Any]], str, int]:
    writer = BundleWriter(str(path))
    for number, (data, good) in enumerate(parts):
        writer.begin()
        for start in range(0, len(data), 100_000):
            writer.write(data[start : start + 100_000])
        if good:
            writer.commit({"path": str(number)})
        else:
            writer.abort()
    sha256, size = writer.finish()
    return writer.entries, sha256, size


@given(st.lists(st.tuples(st.binary(max_size=300), st.booleans()), max_size=8))
def test_sidecars_come_back_and_aborted_ones_leave_no_trace(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[bytes, bool]]
) -> None:
    path = tmp_path_factory.mktemp("bundle") / "b"
    entries, sha256, size = write(path, parts)
    data = path.read_bytes()
    assert (hashlib.sha256(data).hexdigest(), len(data)) == (sha256, size)
    assert read_directory(str(path)) == entries
    kept = [part for part, good in parts if good]
    assert [data[item["offset"] : item["offset"] + item["length"]] for item in entries] == kept
    assert [item["digest"] for item in entries] == [blake3(part).hexdigest() for part in kept]


def test_an_abort_after_a_flush_takes_the_bytes_back(tmp_path: Path) -> None:
    long = os.urandom(BUFFER_BYTES * 2)
    entries, sha256, _ = write(tmp_path / "b", [(b"one", True), (long, False), (b"two", True)])
    data = (tmp_path / "b").read_bytes()
    assert len(data) < 1000
    assert hashlib.sha256(data).hexdigest() == sha256
    assert [data[item["offset"] : item["offset"] + 3] for item in entries] == [b"one", b"two"]


@pytest.mark.parametrize("where", [0, 12, -50, -1])
def test_damage_is_named(tmp_path: Path, where: int) -> None:
    path = tmp_path / "b"
    write(path, [(b"", True), (b"", True)])
    data = bytearray(path.read_bytes())
    data[where] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)
    with pytest.raises(BlendexError) as raised:
        read_directory(str(path))
    assert raised.value.code is Code.OBJECT_DAMAGED
    assert raised.value.file == str(path)


def test_a_short_file_is_no_bundle(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"BLXBNDL1")
    with pytest.raises(BlendexError):
        read_directory(str(tmp_path / "b"))


def test_what_fails_keeps_nothing_of_the_disk(tmp_path: Path) -> None:
    root = Root(tmp_path)
    root.prepare()

    def full() -> None:
        with private_bundle(root, "b.1-1") as writer:
            writer.begin()
            writer.write(bytes(2 * BUFFER_BYTES))
            assert os.path.getsize(writer.path) > BUFFER_BYTES
            raise OSError(errno.ENOSPC, "full")

    with pytest.raises(OSError, match="full"):
        full()
    # A file that is open takes its place, though it has no name. Others of this process come and go meanwhile.
    opened = [os.path.realpath(descriptor) for descriptor in Path("/proc/self/fd").iterdir()]
    assert not any(str(tmp_path) in path for path in opened)
    assert os.listdir(tmp_path / "staging") == []
