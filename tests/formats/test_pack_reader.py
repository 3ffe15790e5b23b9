"""Reading packs: damage of any byte shows, and inspection says what a file holds."""

from __future__ import annotations

import itertools
import random
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blendex.errors import BlendexError, Code
from blendex.formats.inspection import inspect
from blendex.formats.pack import ARRAY, COLLECTION, PATHS, Collection
from blendex.formats.packfiles import pack_files
from blendex.formats.packreader import PackReader, verify
from blendex.formats.packwriter import PackWriter
from tests.formats.test_pack_golden import DATA, GOOD


def _read(path: Path) -> None:
    with PackReader(str(path)) as pack:
        verify(pack)
        for collection in pack.collections.values():
            for shard in range(collection.shards):
                collection.path(shard)


def _unprotected(data: bytes) -> set[int]:
    """Bytes that no checksum and no rule covers: kind strings, and what a size of an unread source is."""
    collections, count, sequences = struct.unpack_from("<3Q", data, 16)
    free: set[int] = set()
    for number in range(count):
        row = COLLECTION.unpack_from(data, collections + number * COLLECTION.size)
        free.update(range(row[4], row[4] + row[5]))
        start = collections + number * COLLECTION.size
        free.update(range(start + 56, start + 68))  # where the kind lies: another text is a kind as well
    segments, many = struct.unpack_from("<2Q", data, 48)
    for number in range(many):
        start = segments + 56 * number
        (flags,) = struct.unpack_from("<I", data, start + 20)
        if flags:
            free.update((*range(start, start + 8), *range(start + 32, start + 40)))
        free.update(range(start + 52, start + 56))
    assert sequences
    return free


@pytest.mark.parametrize("name", GOOD)
def test_damage_of_a_byte_shows(name: str, tmp_path: Path) -> None:
    data = (DATA / "packs" / f"{name}.idxpack").read_bytes()
    free = _unprotected(data)
    path = tmp_path / "x.idxpack"
    places = random.Random(1).sample(range(len(data)), min(len(data), 200))
    for place in places:
        broken = bytearray(data)
        broken[place] ^= 0x10
        path.write_bytes(broken)
        try:
            _read(path)
        except BlendexError as error:
            assert error.code in (Code.PACK_DAMAGED, Code.PACK_VERSION), (place, error)  # noqa: PT017
        else:
            assert place in free, place


@pytest.mark.parametrize("keep", [0, 7, 255, 256, 400])
def test_a_cut_pack_is_damaged(keep: int, tmp_path: Path) -> None:
    path = tmp_path / "x.idxpack"
    path.write_bytes((DATA / "packs" / "v3_native_route.idxpack").read_bytes()[:keep])
    with pytest.raises(BlendexError) as caught:
        PackReader(str(path))
    assert caught.value.code is Code.PACK_DAMAGED
    assert inspect(str(path))["faults"]


def test_version_4_is_refused_with_the_reason(tmp_path: Path) -> None:
    data = bytearray((DATA / "packs" / "v2_empty_shard.idxpack").read_bytes())
    data[8] = 4
    path = tmp_path / "x.idxpack"
    path.write_bytes(data)
    with pytest.raises(BlendexError, match="version 4") as caught:
        PackReader(str(path))
    assert caught.value.code is Code.PACK_VERSION
    assert "Decompress" in caught.value.next_step


def test_another_layout_than_expected_is_refused() -> None:
    path = str(DATA / "packs" / "v2_empty_shard.idxpack")
    with pytest.raises(BlendexError, match="layout hash"):
        PackReader(path, layout_hash="00" * 32)


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.lists(st.integers(0, 1 << 40), max_size=12), min_size=1, max_size=12),
    order=st.lists(st.integers(0, 11), min_size=1, max_size=20),
    buffer=st.sampled_from([16, 64, 4096]),
    array=st.lists(st.lists(st.integers(0, 2**32 - 1), max_size=5), max_size=3),
)
def test_records_through_a_pack_are_those_through_sidecars(
    lengths: list[list[int]],
    order: list[int],
    buffer: int,
    array: list[list[int]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    offsets = [[0, *sorted(one)] for one in lengths]
    paths = tuple(f"/d/{number % len(offsets)}.jsonl" for number in order)
    collections = [
        Collection("r", "k", "x", ("",) * len(array), ARRAY),
        Collection("manifest", "jsonl", "a", paths),
        Collection("manifest", "jsonl", "b", paths[::-1]),
        Collection("tar", "nemo_tar", "c", paths[:2], PATHS),
    ]
    path = tmp_path_factory.mktemp("packs") / "x.idxpack"
    with path.open("w+b") as file:
        writer = PackWriter(file.fileno(), collections, buffer_bytes=buffer)
        arrays = iter(array)
        for name, holds in writer.segments():
            if holds == ARRAY:
                shard = next(arrays)
                writer.array(struct.pack(f"<{len(shard)}I", *shard))
            elif holds == PATHS:
                writer.path(None)
            else:
                words = offsets[int(name[3:-6])]
                data = struct.pack(f"<{len(words)}Q", *words)
                room = writer.room(len(data))
                if room is None:
                    pieces = iter([memoryview(data)[at : at + 16] for at in range(0, len(data), 16)])
                    writer.stream(pieces, len(data), words[-1], name)
                else:
                    room[:] = data
                    writer.take(len(data), words[-1])
        written = writer.finish()
    with PackReader(str(path), layout_hash=written.layout_hash) as pack:
        verify(pack)
        for wanted in collections[1:3]:
            spans = [
                (name, start, end)
                for name in wanted.paths
                for one in (offsets[int(name[3:-6])],)
                for start, end in itertools.pairwise(one)
            ]
            got = pack.collection(wanted.key)
            places = [got.locate(number) for number in range(len(got))]
            assert [(place.path, place.start, place.end) for place in places] == spans
            assert not spans or got.locate(-1) == places[-1]
        numbers = pack.collection(collections[0].key)
        assert [numbers.value(at) for at in range(len(numbers))] == [value for shard in array for value in shard]


def test_inspection_of_a_sidecar(tmp_path: Path) -> None:
    source, sidecar = tmp_path / "a.jsonl", tmp_path / "a.jsonl.idx"
    source.write_bytes(b"{}\n{}\n")
    sidecar.write_bytes(struct.pack("<3Q", 0, 3, 6))
    found = inspect(str(sidecar), str(source))
    assert (found["records"], found["sentinel"], found["longest_record"], found["faults"]) == (2, 6, 3, [])
    sidecar.write_bytes(struct.pack("<3Q", 3, 0, 5))
    assert len(inspect(str(sidecar), str(source))["faults"]) == 2
    sidecar.write_bytes(b"123")
    assert inspect(str(sidecar))["faults"]


def test_inspection_holds_a_pack_against_its_sources(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    source.write_bytes(b"{}\n")
    (tmp_path / "a.idx").write_bytes(struct.pack("<2Q", 0, 3))
    pack = str(tmp_path / "a.idxpack")
    pack_files(pack, [Collection("m", "jsonl", "s", (str(source),))], lambda _: str(tmp_path / "a.idx"))
    assert inspect(pack)["faults"] == []
    assert inspect(pack)["sources_here"] == 1
    source.write_bytes(b"{}\n{}\n")
    assert inspect(pack)["faults"] == [f"{source} has 6 bytes, the pack was made of 3."]


def test_inspection_of_a_route(tmp_path: Path) -> None:
    from blendex.formats.sgroute import Digests, pack

    path = tmp_path / "a.sgroute"
    data = pack([[(0, 1)], [], [(1, 0), (0, 0)]], 2, Digests(*[bytes([n]) * 32 for n in range(5)]))
    path.write_bytes(data)
    found = inspect(str(path))
    assert (found["rows"], found["records"], found["tars"], found["faults"]) == (3, 3, 2, [])
    path.write_bytes(data[:-1] + b"\7")
    assert inspect(str(path))["faults"]
