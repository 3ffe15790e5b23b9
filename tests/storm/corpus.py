"""The corpus of a storm: sources of every kind, and poisons among them."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.corpus import corpus, manifest, put, tar_of

POISONS = {
    "poison-memory": "out_of_memory",
    "poison-stall": "stalled",
    "poison-crash": "child_died",
    "poison-change": "source_changed",
}


def _sample(name: str) -> list[tuple[str, bytes]]:
    return [(f"{name}.json", json.dumps({"id": name}).encode()), (f"{name}.flac", name.encode() * 300)]


def make(folder: Path, shards: int, heavy: int, poisons: bool) -> str:
    """A blend over about ``2 * shards`` sources: manifests with tars, plain manifests, two versions of WebDataset.

    ``heavy``: plain manifests that take much memory to read.
    """
    blend = corpus(folder, shards=shards, rows=3, name="bulk")
    for number in range(heavy):
        blend += f"- {{type: nemo, manifest_filepath: {put(folder / f'heavy-{number}.json', manifest(2))}}}\n"
    for version in (1, 2):
        data = folder / f"wds{version}"
        for shard in range(4):
            put(data / f"s-{shard}.tar", tar_of(_sample(f"{shard}a") + _sample(f"{shard}b")))
        put(data / "wids-meta.json", b'{"shardlist": [{"url": "s-{0..3}.tar"}]}')
        blend += f"- {{type: share_gpt_webdataset, data_dir: {data}, wds_sample_index_version: {version}}}\n"
    if poisons:
        for name in POISONS:
            blend += f"- {{type: nemo, manifest_filepath: {put(folder / f'{name}.json', manifest(3))}}}\n"
    return blend
