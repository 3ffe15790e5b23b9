"""Packs of random corpora, written by Blendex, for upstream to read.

    python random_packs.py write FOLDER [--corpora 60] [--seed N]     in the environment of Blendex
    python random_packs.py read FOLDER GOLDEN                         in the one that scripts/oracle-env.sh makes

``write`` makes corpora of manifests and tars with all that may stand in them, their sidecars, and packs of both: one
from the loose sidecars, one from bundles; the two are the same file. ``read`` opens every one by lhotse's
``IndexPack`` with the layout hash that it must have, as well as the packs in GOLDEN, and compares each record that the
pack leads to with the record that lhotse reads through the loose sidecar.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import struct
import sys
import tarfile
from pathlib import Path
from typing import Any

WORDS = ["a", "ä", "漢字", "🎧", "\\", '"', "\t", "\u2028", "\x85", " ", "x" * 300, "{", "}]", "\0"]


def row(chance: random.Random) -> bytes:
    """A row of a manifest, spelled in one of the ways that JSON allows."""
    value = {"audio_filepath": f"{chance.randrange(10**6)}.wav", "text": "".join(chance.choices(WORDS, k=5))}
    if chance.random() < 0.2:
        value["custom"] = {"nested": [1.5, None, True, {"deep": "".join(chance.choices(WORDS, k=3))}]}
    text = json.dumps(value, ensure_ascii=chance.random() < 0.5, indent=None)
    return (" " * chance.randrange(3) + text + chance.choice(["", " ", "\r"])).encode()


def manifest(chance: random.Random) -> bytes:
    """Rows, of which the last may want its newline; none at all now and then."""
    data = b"".join(row(chance) + b"\n" for _ in range(chance.choice([0, 1, 2, 30])))
    return data[:-1] if data and chance.random() < 0.3 else data


def tar(chance: random.Random) -> bytes:
    """Members with long names, names that are not ASCII, and several that make one record."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=chance.choice([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])) as made:
        for number in range(chance.choice([0, 1, 9])):
            stem = chance.choice(["clip", "ä", "deep/" * 30 + "x"]) + str(number)
            for ending in ("wav", "json") if chance.random() < 0.3 else ("wav",):
                member = tarfile.TarInfo(f"{stem}.{ending}")
                member.size = chance.choice([0, 1, 512, 1500])
                made.addfile(member, io.BytesIO(bytes(member.size)))
    return buffer.getvalue()


def write_corpus(folder: Path, chance: random.Random) -> dict[str, Any]:
    """Sources, sidecars, and the pack of one corpus; what the reader must know."""
    from blake3 import blake3

    from blendex.formats.bundle import BundleWriter
    from blendex.formats.kinds import build
    from blendex.formats.pack import ARRAY, OFFSETS, PATHS, Collection
    from blendex.formats.packfiles import pack_files
    from blendex.formats.packwriter import PackWriter
    from blendex.storage.local import LocalStorage
    from blendex.units.pack import Bundles, Packed, Sources, give_sidecars

    folder.mkdir(parents=True)
    storage = LocalStorage(["/"])
    writer = BundleWriter(str(folder / "bundle"))
    packed: dict[str, Packed] = {}
    for number in range(chance.randrange(1, 8)):
        kind, ending, data = chance.choice([("jsonl", "jsonl", manifest), ("nemo_tar", "tar", tar)])
        path = folder / f"{chance.choice(['s', 'ä ö', 'x' * 90])}_{number}.{ending}"
        path.write_bytes(data(chance))
        writer.begin()
        with storage.open(str(path)) as source:
            try:
                summary = build(kind, source, writer.write, learn=True)
            except Exception:
                writer.abort()
                raise
        entry: dict[str, Any] = {"facts": {}}
        writer.commit(entry, summary.learned)
        crc = entry["crc"] if chance.random() < 0.7 else None
        packed[str(path)] = Packed(
            kind, str(path), "bundle", entry["offset"], entry["length"], entry["digest"], summary.size, crc, 1
        )
    writer.finish()
    bundle = (folder / "bundle").read_bytes()
    for path, item in packed.items():
        sidecar = bundle[item.offset : item.offset + item.length]
        assert blake3(sidecar).hexdigest() == item.digest
        Path(path + ".idx").write_bytes(sidecar)
    collections = []
    for kind, role in (("jsonl", "manifest"), ("nemo_tar", "tar")):
        mine = [path for path, item in packed.items() if item.kind == kind]
        for spec in ("one", {"a": ["two"]}) if mine else ():
            paths = chance.choices(mine, k=chance.randrange(1, 6)) if spec != "one" else mine
            collections.append(Collection(role, kind, spec, tuple(paths), OFFSETS))
    arrays = [chance.choices(range(2**32), k=chance.choice([0, 1, 7])) for _ in range(chance.randrange(3))]
    collections.insert(0, Collection("route", "numbers", 1.5, ("",) * len(arrays), ARRAY))
    tars = tuple(path for path, item in packed.items() if item.kind == "nemo_tar")
    collections.append(Collection("tar", "nemo_tar", "paths alone", tars, PATHS))
    sizes = {path: packed[path].size for path in tars if chance.random() < 0.5}
    shards = [struct.pack(f"<{len(shard)}I", *shard) for shard in arrays]
    written = pack_files(
        str(folder / "x.idxpack"), collections, lambda path: path + ".idx", sizes=sizes, arrays=iter(shards)
    )
    with (folder / "y.idxpack").open("x+b") as file:
        again = PackWriter(file.fileno(), collections, buffer_bytes=chance.choice([64, 4096]))
        bundles, left = Bundles(lambda name: str(folder / name)), iter(shards)
        waiting: list[str] = []
        for place, (path, holds) in enumerate(zip(again.paths, again.holds.tolist(), strict=True)):
            if holds == OFFSETS:
                waiting.append(path)
            if waiting and (holds != OFFSETS or place + 1 == len(again.paths)):
                give_sidecars(again, Sources(packed[one] for one in waiting), bundles)
                waiting = []
            if holds == ARRAY:
                again.array(next(left))
            elif holds == PATHS:
                again.path(sizes.get(path))
        again.finish()
        bundles.close()
    assert (folder / "x.idxpack").read_bytes() == (folder / "y.idxpack").read_bytes()
    return {
        "pack": str(folder / "x.idxpack"), "layout_hash": written.layout_hash, "arrays": arrays, "sizes": sizes,
        "collections": [[item.key.hex(), item.kind, item.holds, item.paths] for item in collections],
    }  # fmt: skip


def read_corpus(about: dict[str, Any]) -> int:
    """Hold one pack against sources and sidecars by lhotse; how many records were compared."""
    from lhotse.index_pack import IndexPack
    from lhotse.indexing import IndexedJsonlReader, read_index
    from lhotse.packed_lazy import LazyPackedManifestIterator

    count = 0
    with IndexPack(about["pack"], expected_layout_hash=about["layout_hash"]) as pack:
        for key, kind, holds, paths in about["collections"]:
            collection = pack.collection(bytes.fromhex(key))
            if holds == 2:
                values = [value for shard in about["arrays"] for value in shard]
                assert [collection.value(at) for at in range(len(collection))] == values
                count += len(values)
                continue
            assert [collection.path_for_shard(at) for at in range(collection.sequence_count)] == paths
            if holds == 1:
                wanted = [about["sizes"].get(path) for path in paths]
                assert [collection.source_size_for_shard(at) for at in range(len(paths))] == wanted
                continue
            places = [collection.locate(at) for at in range(len(collection))]
            spans = []
            for path in paths:
                offsets = [int(value) for value in read_index(path + ".idx")]
                spans += [(path, start, end) for start, end in zip(offsets, offsets[1:])]  # noqa: B905, RUF007
            assert [(place.path, place.start, place.end) for place in places] == spans, about["pack"]
            for at in range(-len(collection), 0):
                assert collection.locate(at) == places[at]
            if kind == "jsonl":
                loose = [
                    item
                    for path in paths
                    for reader in (IndexedJsonlReader(path, auto_create_index=False, index_path=path + ".idx"),)
                    for item in (reader[at] for at in range(len(reader)))
                ]
                rows = list(LazyPackedManifestIterator(pack, bytes.fromhex(key), decode=lambda value: value))
                assert rows == loose, about["pack"]
            count += len(places)
        segments = struct.unpack_from("<Q", Path(about["pack"]).read_bytes(), 56)[0]
        for number in range(segments):
            pack.verify_segment(number)
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["write", "read"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("golden", type=Path, nargs="?")
    parser.add_argument("--corpora", type=int, default=60)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    asked = parser.parse_args()
    told = asked.folder / "corpora.json"
    if asked.what == "write":
        print(f"random packs: seed {asked.seed}", flush=True)
        chance = random.Random(asked.seed)
        corpora = [write_corpus(asked.folder.absolute() / f"{number}", chance) for number in range(asked.corpora)]
        told.write_text(json.dumps(corpora))
        return 0
    from lhotse.index_pack import IndexPack

    corpora = json.loads(told.read_text())
    records = sum(map(read_corpus, corpora))
    golden = 0
    cases = json.loads((asked.golden / "packs.json").read_text())["cases"]
    for name, case in cases.items():
        if "error" not in case:
            with IndexPack(
                asked.golden / "packs" / f"{name}.idxpack", expected_layout_hash=case["layout_hash"]
            ) as pack:
                for item in case["collections"]:
                    pack.collection(bytes.fromhex(item["key"]))
            golden += 1
    print(f"random packs: {len(corpora)} opened, {records} records compared; {golden} golden packs opened")
    return 0 if records and golden else 1


if __name__ == "__main__":
    sys.exit(main())
