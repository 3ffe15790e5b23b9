"""Does upstream read, through the packs of a build, exactly what lies in the sources?

    python read_packs.py READY_BLEND [EXPECTED_PACKS]

Runs in the environment that scripts/oracle-env.sh makes, with nothing of Blendex. Every entry of the ready blend that
names a pack is taken as training takes it: OmegaConf resolves it, lhotse's ``index_pack_collection_key`` makes the
keys, ``IndexPack`` opens the file with the layout hash of the receipt, and every record is read: manifests by
``LazyPackedManifestIterator``, tars by the ordinal route, so that the member is the one that the row names. Where loose
sidecars lie under ``indexes_root`` too (a build with sidecars=all), each record is compared with them. Exits with 1
after naming what is wrong.
"""

from __future__ import annotations

import json
import os
import re
import struct
import sys
import tarfile
from pathlib import Path
from typing import Any

from lhotse.index_pack import IndexPack, index_pack_collection_key
from lhotse.indexing import index_file_path, read_index
from lhotse.packed_lazy import LazyPackedManifestIterator
from omegaconf import OmegaConf

SKIPPED = 0xFFFFFFFF


def rows_of(pack: IndexPack, key: bytes) -> list[dict[str, Any]]:
    return list(LazyPackedManifestIterator(pack, key, decode=lambda row: row))


def compare(pack: IndexPack, key: bytes, root: str) -> int:
    """Every record lies where its loose sidecar says, if it has one; how many were compared."""
    collection = pack.collection(key)
    count = 0
    known: dict[str, Any] = {}
    for number in range(len(collection)):
        place = collection.locate(number)
        if place.path not in known:
            sidecar = index_file_path(place.path, root)
            known[place.path] = read_index(sidecar) if Path(sidecar).exists() else None
        offsets = known[place.path]
        if offsets is not None:
            expected = (int(offsets[place.local_index]), int(offsets[place.local_index + 1]))
            assert (place.start, place.end) == expected, (place.path, number)
            count += 1
    return count


def follow(pack: IndexPack, entry: dict[str, Any], rows: list[dict[str, Any]], tars: bytes) -> int:
    """The ordinal route leads each row to the member it names."""
    spec = {
        "manifest": entry["manifest_filepath"],
        "tar": entry["tarred_audio_filepaths"],
        "normalization": "nemo-audio-member-v1",
    }
    route = pack.collection(index_pack_collection_key("native_tar_route", "nemo_manifest_row_to_tar_ordinal_v1", spec))
    manifests = pack.collection(index_pack_collection_key("manifest", "jsonl", entry["manifest_filepath"]))
    collection = pack.collection(tars)
    assert len(route) == len(rows)
    for number, row in enumerate(rows):
        ordinal = route.value(number)
        if ordinal == SKIPPED:
            assert row.get("_skipme")
            continue
        shard = manifests.locate(number).shard_index
        place = collection.locate_in_shard(shard, ordinal)
        with open(place.path, "rb") as file:
            file.seek(place.start)
            with tarfile.open(fileobj=file, mode="r:") as archive:
                member = archive.next()
        name = re.sub(r"^(.+)-sub\d+(\.\w+)?$", r"\1\2", row["audio_filepath"])
        assert member is not None
        assert member.name == name, (place.path, number)
    return len(rows)


def main() -> int:
    blend = OmegaConf.to_container(OmegaConf.load(sys.argv[1]), resolve=True)
    mirror = Path(Path(sys.argv[1]).with_name("path").read_text().strip())
    receipt = json.loads((mirror / "receipt.json").read_bytes())
    layouts = {pack["file"]: pack["layout_hash"] for pack in receipt["packs"]}
    assert isinstance(blend, list)
    packs = records = compared = routed = 0
    for entry in blend:
        if "index_pack" not in entry:
            continue
        packs += 1
        path = os.path.join(entry["index_pack_root"], entry["index_pack"])
        with IndexPack(path, expected_layout_hash=layouts[entry["index_pack"]]) as pack:
            manifest = index_pack_collection_key("manifest", "jsonl", entry["manifest_filepath"])
            rows = rows_of(pack, manifest)
            plain = []
            collection = pack.collection(manifest)
            for shard in range(collection.sequence_count):
                plain += [json.loads(line) for line in Path(collection.path_for_shard(shard)).read_bytes().splitlines()]
            assert rows == plain, "rows through the pack are not the rows of the manifests"
            records += len(rows)
            compared += compare(pack, manifest, entry["indexes_root"])
            if "tarred_audio_filepaths" in entry:
                tars = index_pack_collection_key("tar", "nemo_tar", entry["tarred_audio_filepaths"])
                compared += compare(pack, tars, entry["indexes_root"])
                routed += follow(pack, entry, rows, tars)
            for number in range(struct.unpack_from("<Q", Path(path).read_bytes(), 56)[0]):
                pack.verify_segment(number)
    print(f"packs: {packs} opened, {records} rows read, {compared} records compared with sidecars, {routed} routed")
    expected = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    return 0 if packs == expected and records else 1


if __name__ == "__main__":
    sys.exit(main())
