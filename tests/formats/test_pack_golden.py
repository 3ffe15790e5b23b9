"""Packs, byte for byte what lhotse 2.0.0a7 writes for the same collections, and refused where it refuses."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from blendex.errors import BlendexError, Code
from blendex.formats.pack import ARRAY, OFFSETS, PATHS, Collection, collection_key
from blendex.formats.packfiles import pack_files
from blendex.formats.packreader import PackReader, verify

DATA = Path(__file__).parents[1] / "data" / "golden"
GOLDEN = json.loads((DATA / "packs.json").read_text())
GOOD = [name for name, case in GOLDEN["cases"].items() if "error" not in case]
BAD = {
    "err_no_collections": Code.PACK_REFUSED,
    "err_duplicate_key": Code.PACK_REFUSED,
    "err_missing_sidecar": Code.SIDECAR_MISSING,
    "err_missing_source": Code.SOURCE_MISSING,
    "err_non_monotonic": Code.SIDECAR_DAMAGED,
    "err_sentinel": Code.SIDECAR_DAMAGED,
    "err_sidecar_size": Code.SIDECAR_DAMAGED,
    "err_sidecar_empty": Code.SIDECAR_DAMAGED,
    "err_pair_sentinel_trailing_zero": Code.SIDECAR_DAMAGED,
    "err_array_size": Code.PACK_REFUSED,
    "err_override_wrong": Code.PACK_REFUSED,
    "err_remote_sidecar": Code.PACK_REFUSED,
    "err_missing_sidecar_surrogate_path": Code.SIDECAR_MISSING,
}
RUINED = {
    "_tmp/bad_mono.idx": struct.pack("<4Q", 0, 90, 50, 316),
    "_tmp/bad_sent.idx": struct.pack("<3Q", 0, 50, 51),
    "_tmp/bad_size.idx": b"\0" * 12,
    "_tmp/empty.idx": b"",
}


def collections_of(case: dict[str, Any]) -> list[Collection]:
    return [
        Collection(item["role"], item["kind"], item["spec"], ("",) * len(item["arrays"]), ARRAY)
        if "arrays" in item
        else Collection(
            item["role"], item["kind"], item["spec"], tuple(item["paths"]), OFFSETS if item["offsets"] else PATHS
        )
        for item in case["collections"]
    ]


def arrays_of(case: dict[str, Any]) -> Iterator[bytes]:
    for item in case["collections"]:
        for shard in item.get("arrays", ()):
            yield struct.pack(f"<{len(shard)}I", *shard)


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sources of the right sizes, their sidecars under idx/, and ruined ones under _tmp/."""
    monkeypatch.chdir(tmp_path)
    for path, source in GOLDEN["sources"].items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with open(path, "wb") as file:
            file.truncate(source["size"])
    Path("_tmp").mkdir()
    for path, data in RUINED.items():
        Path(path).write_bytes(data)
    return tmp_path


def place(case: dict[str, Any]) -> Any:
    """Writes the sidecars that a case asks for; the function that finds them."""
    overrides = case.get("index_path_overrides", {})
    kinds = {path: item["kind"] for item in case["collections"] for path in item.get("paths", ())}
    kinds |= case.get("sidecar_kinds", {})
    missing = "Missing .idx" in case.get("error", "")

    def sidecar(path: str) -> str:
        if path in overrides and path not in GOLDEN["sources"]:
            return str(overrides[path])
        found = overrides.get(path, path + ".idx" if "://" in path else f"idx/{path}.idx")
        if path in GOLDEN["sources"] and not found.startswith("_tmp/") and not missing:
            source = GOLDEN["sources"][path]
            offsets = source.get(kinds[path]) or next(v for k, v in source.items() if k != "size")
            Path(found).parent.mkdir(parents=True, exist_ok=True)
            Path(found).write_bytes(struct.pack(f"<{len(offsets)}Q", *offsets))
        return str(found)

    return sidecar


@pytest.mark.parametrize("name", GOOD)
def test_a_pack_is_upstreams_byte_for_byte(name: str, corpus: Path) -> None:
    case = GOLDEN["cases"][name]
    written = pack_files(
        "made.idxpack",
        collections_of(case),
        place(case),
        sizes=case.get("source_size_overrides"),
        arrays=arrays_of(case),
    )
    expected = (DATA / "packs" / f"{name}.idxpack").read_bytes()
    assert Path("made.idxpack").read_bytes() == expected
    assert (written.layout_hash, written.version, written.size) == (case["layout_hash"], case["version"], len(expected))
    assert not [entry for entry in os.listdir() if entry.startswith("made.idxpack.")]


@pytest.mark.parametrize("name", GOOD)
def test_a_pack_of_upstreams_is_read(name: str) -> None:
    case = GOLDEN["cases"][name]
    with PackReader(str(DATA / "packs" / f"{name}.idxpack"), layout_hash=case["layout_hash"]) as pack:
        verify(pack)
        for item, expected in zip(case["collections"], case["readback"], strict=True):
            collection = pack.collection(bytes.fromhex(item["key"]))
            assert len(collection) == expected["len"]
            assert collection.kind == item["kind"]
            if "arrays" in item:
                values = [value for shard in item["arrays"] for value in shard]
                assert [collection.value(number) for number in range(len(collection))] == values
                continue
            assert [collection.path(shard) for shard in range(collection.shards)] == expected["paths"]
            assert [collection.source_size(shard) for shard in range(collection.shards)] == expected["sizes"]
            kinds = case.get("sidecar_kinds", {})
            offsets = [GOLDEN["sources"][path].get(item["kind"]) for path in item["paths"] if path not in kinds]
            wanted = [
                (shard, local, *span)
                for shard, one in enumerate(offsets if item["offsets"] else ())
                if one
                for local, span in enumerate(pairwise(one))
            ]
            if all(offsets) and not kinds:
                got = [collection.locate(number) for number in range(len(collection))]
                assert [(place.shard, place.local, place.start, place.end) for place in got] == wanted


@pytest.mark.parametrize("name", BAD)
def test_what_upstream_refuses_is_refused(name: str, corpus: Path) -> None:
    case = GOLDEN["cases"][name]
    arrays = iter([b"\0" * 5]) if name == "err_array_size" else arrays_of(case)
    with pytest.raises(BlendexError) as caught:
        pack_files(
            "made.idxpack",
            collections_of(case),
            place(case),
            sizes=case.get("source_size_overrides"),
            arrays=arrays,
        )
    assert caught.value.code is BAD[name]
    assert caught.value.next_step
    assert [entry for entry in os.listdir() if "made" in entry] == []


def test_a_source_that_is_newer_than_its_sidecar_is_refused(corpus: Path) -> None:
    collection = Collection("m", "jsonl", "s", ("jsonl/basic.jsonl",))
    sidecar = place({"collections": [{"kind": "jsonl", "paths": ["jsonl/basic.jsonl"]}]})("jsonl/basic.jsonl")
    moment = os.stat(sidecar).st_mtime_ns
    os.utime("jsonl/basic.jsonl", ns=(moment + 1, moment + 1))
    with pytest.raises(BlendexError) as caught:
        pack_files("made.idxpack", [collection], lambda _: sidecar)
    assert caught.value.code is Code.SOURCE_CHANGED
    os.utime("jsonl/basic.jsonl", ns=(moment, moment))
    assert pack_files("made.idxpack", [collection], lambda _: sidecar).records == 5


def test_an_existing_pack_is_never_replaced(corpus: Path) -> None:
    case = GOLDEN["cases"]["v2_empty_shard"]
    Path("made.idxpack").write_bytes(b"old")
    with pytest.raises(BlendexError) as caught:
        pack_files("made.idxpack", collections_of(case), place(case))
    assert caught.value.code is Code.PACK_REFUSED
    assert Path("made.idxpack").read_bytes() == b"old"


def _spec(row: dict[str, Any]) -> Any:
    shown = row["spec_python"]
    made: dict[str, Any] = {
        "Path('/d/x.json')": Path("/d/x.json"),
        "tuple": ("/d/a.json", "b"),
        "ListConfig with interpolation": ["/d/a.json", "b"],
        "DictConfig": {"z": 1, "a": [1, 2]},
        "nested ListConfig": [["p", 0.5]],
        "mixed-type keys": {"b": 1, 2: "two", "a": None},
        "bytes": b"a",
        "set": {1, 2},
    }
    if shown == "PurePosixPath (not Path)":
        from pathlib import PurePosixPath

        return PurePosixPath("/a")
    return made.get(shown, row["spec"])


@pytest.mark.parametrize(
    "row", json.loads((DATA / "collection_keys.json").read_text()), ids=lambda row: row["spec_python"]
)
def test_a_key_is_upstreams(row: dict[str, Any]) -> None:
    if "error" in row:
        with pytest.raises(BlendexError) as caught:
            collection_key(row["role"], row["kind"], _spec(row))
        assert caught.value.code is Code.PACK_REFUSED
    else:
        assert collection_key(row["role"], row["kind"], _spec(row)).hex() == row["ok"]
