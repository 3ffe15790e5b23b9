"""Does upstream read every pack that the tests of packs made?

    python read_tests.py FOLDER [EXPECTED_PACKS]

FOLDER is what ``pytest --basetemp`` kept. Runs in the environment that scripts/oracle-env.sh makes, with nothing of
Blendex. Every ``mirrors/*/packs/*.idxpack`` below it is opened by lhotse's ``IndexPack`` with the layout hash of the
receipt, its checksums are verified, and every record that it leads to is compared with that of a sidecar which
upstream's builder makes of the same source now (Python's ``tarfile`` for the second index of WebDataset, whose builder
is in no release); rows come through ``LazyPackedManifestIterator``. Sources that a test changed afterwards are known by
their size and time in the receipt, and left out. Routes are followed through the ready blends. Exits with 1 after
naming what is wrong.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import struct
import sys
import tarfile
import tempfile
from pathlib import Path, PurePosixPath
from typing import Any

from lhotse.index_pack import IndexPack, index_pack_collection_key
from lhotse.indexing import create_jsonl_index, read_index
from lhotse.packed_lazy import LazyPackedManifestIterator
from omegaconf import OmegaConf

HEADER, COLLECTION = struct.Struct("<8sIIQQ"), struct.Struct("<32sQQQQII")
OFFSETS, PATHS, ARRAY = 0, 1, 2
SKIPPED = 0xFFFFFFFF
ROUTES = {
    "native_tar_route": ("nemo_manifest_row_to_tar_ordinal_v1", "normalization", "nemo-audio-member-v1"),
    "native_tar_shard_route": ("nemo_manifest_row_to_tar_shard_v1", "routing", "manifest-shard-id-v1"),
}


def nemo_builder() -> Any:
    base = importlib.util.find_spec("nemo")
    assert base is not None
    assert base.submodule_search_locations is not None
    file = Path(next(iter(base.submodule_search_locations)), "collections/common/data/lhotse/indexed_adapters.py")
    spec = importlib.util.spec_from_file_location("nemo_indexed_adapters", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.create_tar_index


class Sidecars:
    """Offsets of sources as upstream's builders find them, each made once."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._tar_index = nemo_builder()
        self._known: dict[tuple[str, str, str], list[int]] = {}

    def of(self, kind: str, address: str, token: str) -> list[int] | None:
        """None when the source is another one by now."""
        size, mtime_ns, *_ = map(int, token.split(":"))
        try:
            now = os.stat(address)
        except FileNotFoundError:
            return None
        if (now.st_size, now.st_mtime_ns) != (size, mtime_ns):
            return None
        key = (kind, address, token)
        if key not in self._known:
            self._known[key] = self._make(kind, address, size)
        return self._known[key]

    def _make(self, kind: str, address: str, size: int) -> list[int]:
        if kind == "wds_tar_v2":
            found: list[int] = []
            last = None
            with tarfile.open(address) as archive:
                for member in archive:
                    name = PurePosixPath(member.name)
                    sample = (name.parent, name.name.partition(".")[0])
                    if sample != last:
                        found.append(member.offset)
                    last = sample
            return [*found, size]
        target = os.path.join(self._folder, f"{len(self._known)}.idx")
        if kind == "jsonl":
            create_jsonl_index(address, target)
        else:
            self._tar_index(address, target)
        return [int(value) for value in read_index(target)]


def collections(path: Path) -> list[tuple[bytes, str, int]]:
    """Key, kind and content of every collection, from the bytes of the file."""
    data = path.read_bytes()
    _, _, _, start, count = HEADER.unpack_from(data)
    found = []
    for number in range(count):
        key, _, _, _, place, length, holds = COLLECTION.unpack_from(data, start + number * COLLECTION.size)
        found.append((key, data[place : place + length].decode(), holds))
    return found


def read_pack(path: Path, layout: str, lines: dict[tuple[str, str], dict[str, Any]], sidecars: Sidecars) -> int:
    """Hold one pack against sources and fresh sidecars; how many records were compared."""
    compared = 0
    with IndexPack(path, expected_layout_hash=layout) as pack:
        for key, kind, holds in collections(path):
            collection = pack.collection(key)
            if holds == ARRAY:
                continue  # followed through the blend
            paths = [collection.path_for_shard(shard) for shard in range(collection.sequence_count)]
            if holds == PATHS:
                for shard, name in enumerate(paths):
                    assert collection.source_size_for_shard(shard) == lines["tar_path", name]["size"], (path, name)
                continue
            wanted: list[tuple[str, int, int]] | None = []
            records: list[Any] = []
            for name in paths:
                line = lines[kind, name]
                offsets = sidecars.of(kind, line["address"], line["token"])
                if offsets is None:
                    wanted = None
                    break
                wanted += [(name, *span) for span in zip(offsets, offsets[1:])]  # noqa: B905, RUF007
                if kind == "jsonl":
                    data = Path(line["address"]).read_bytes()
                    records += [json.loads(data[a:b]) for a, b in zip(offsets, offsets[1:])]  # noqa: B905, RUF007
            if wanted is None:
                continue
            places = [collection.locate(number) for number in range(len(collection))]
            assert [(place.path, place.start, place.end) for place in places] == wanted, (path, kind)
            if kind == "jsonl":
                assert list(LazyPackedManifestIterator(pack, key, decode=lambda row: row)) == records, path
            compared += len(places)
        for number in range(struct.unpack_from("<Q", path.read_bytes(), 56)[0]):
            pack.verify_segment(number)
    return compared


def lines_of(mirror: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """The sources of a mirror; relative paths mean from here on what they meant to its build."""
    text = (mirror / "sources.jsonl").read_text().split("\n")
    lines = {(line["kind"], line["path"]): line for line in map(json.loads, filter(None, text))}
    for (_, path), line in lines.items():
        if line["address"].endswith("/" + path):
            os.chdir(line["address"].removesuffix("/" + path))
    return lines


def entries(value: Any, above: dict[str, Any]) -> Any:
    """The leaves of a blend, with the pack that is named on them or above."""
    for entry in value:
        merged = {key: above[key] for key in ("index_pack", "index_pack_root") if key in above} | entry
        if isinstance(entry.get("input_cfg"), list):
            yield from entries(entry["input_cfg"], merged)
        else:
            yield merged


def follow(entry: dict[str, Any], layouts: dict[str, str]) -> int:
    """Every row of a packed leaf with tars leads to the member that it names; how many."""
    manifest, tars = entry["manifest_filepath"], entry["tarred_audio_filepaths"]
    path = os.path.join(entry["index_pack_root"], entry["index_pack"])
    with IndexPack(path, expected_layout_hash=layouts[entry["index_pack"]]) as pack:

        def route(role: str) -> Any:
            kind, name, value = ROUTES[role]
            try:
                return pack.collection(
                    index_pack_collection_key(role, kind, {"manifest": manifest, "tar": tars, name: value})
                )
            except KeyError:
                return None

        rows = pack.collection(index_pack_collection_key("manifest", "jsonl", manifest))
        archives = pack.collection(index_pack_collection_key("tar", "nemo_tar", tars))
        ordinals, shards = route("native_tar_route"), route("native_tar_shard_route")
        single = rows.sequence_count == 1 and archives.sequence_count > 1
        assert (shards is not None) == single, path
        if ordinals is None:  # by paths alone
            return 0
        for number in range(len(rows)):
            place = rows.locate(number)
            try:
                with open(place.path, "rb") as file:
                    file.seek(place.start)
                    row = json.loads(file.read(place.end - place.start))
            except (FileNotFoundError, ValueError):
                return 0  # the test changed it afterwards
            if row.get("_skipme") or (row.get("custom") or {}).get("_skipme"):
                assert ordinals.value(number) == SKIPPED, (path, number)
                continue
            shard = shards.value(number) if shards is not None else place.shard_index
            there = archives.locate_in_shard(shard, ordinals.value(number))
            with open(there.path, "rb") as file:
                file.seek(there.start)
                with tarfile.open(fileobj=file, mode="r:") as archive:
                    member = archive.next()
            assert member is not None
            assert member.name == re.sub(r"^(.+)-sub\d+(\.\w+)?$", r"\1\2", row["audio_filepath"]), (path, number)
        return len(rows)


def main() -> int:
    packs = compared = routed = 0
    kinds: set[str] = set()
    top = Path(sys.argv[1]).absolute()
    with tempfile.TemporaryDirectory() as folder:
        sidecars = Sidecars(folder)
        for receipt_file in sorted(top.rglob("mirrors/*/receipt.json")):
            mirror = receipt_file.parent
            receipt = json.loads(receipt_file.read_bytes())
            lines = lines_of(mirror)
            for item in receipt.get("packs", ()):
                path = mirror / "packs" / item["file"]
                if oct(path.stat().st_mode & 0o777) != "0o444":
                    continue  # a test damaged it
                packs += 1
                kinds |= {kind for _, kind, _ in collections(path)}
                compared += read_pack(path, item["layout_hash"], lines, sidecars)
        for blend_file in sorted(top.rglob("builds/*/blend.yaml")):
            mirror = Path(blend_file.with_name("path").read_text().strip())
            layouts = {
                item["file"]: item["layout_hash"]
                for item in json.loads((mirror / "receipt.json").read_bytes()).get("packs", ())
                if oct((mirror / "packs" / item["file"]).stat().st_mode & 0o777) == "0o444"
            }
            lines_of(mirror)
            blend = OmegaConf.to_container(OmegaConf.load(blend_file), resolve=True)
            for entry in entries(blend, {}):
                if entry.get("index_pack") in layouts and entry["type"] == "nemo_tarred":
                    routed += follow(entry, layouts)
    print(f"packs of the tests: {packs} opened, {compared} records compared, {routed} routed; kinds {sorted(kinds)}")
    return 0 if packs >= int(sys.argv[2]) and compared and routed and len(kinds) >= 5 else 1


if __name__ == "__main__":
    sys.exit(main())
