"""One blend with every kind of collection that a pack holds; what upstream makes of it: ``make oracle``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from blendex.blend.world import World
from blendex.builds import control
from blendex.builds.run import run_build, work_until_ended
from blendex.builds.submission import Submission
from blendex.formats.packreader import PackReader, verify
from tests.builds.test_zoo import _collection, _wds
from tests.support.corpus import corpus, manifest, put, site, tar, wait_until_calm
from tests.support.inline import InlineRunner


def rows(*items: dict[str, Any]) -> bytes:
    return b"".join(json.dumps({"duration": 1.0} | item).encode() + b"\n" for item in items)


def blend_of_all(data: Path) -> str:
    """Datasets of every kind, each written below ``data``."""
    for shard in range(3):
        names = [f"{shard}_{number}.wav" for number in range(3)]
        put(data / f"parts/audio_{shard}.tar", tar(names))
        put(
            data / f"parts/manifest_{shard}.json",
            rows(
                {"audio_filepath": f"{shard}_2-sub1.wav"},
                {"audio_filepath": f"{shard}_0.wav"},
                {"audio_filepath": "nowhere.wav", "_skipme": True},
                {"audio_filepath": f"{shard}_2-sub2.wav"},
                {"audio_filepath": "nowhere.wav", "custom": {"_skipme": 1}},
            ),
        )
    put(
        data / "parts/all.json",
        rows(*({"audio_filepath": f"{shard}_{n}.wav", "shard_id": shard} for n in (1, 0) for shard in (2, 0, 1))),
    )
    put(data / "text/one.jsonl", manifest(4))
    put(data / "text/tars/x_0.tar", tar(["a.json", "b.json"]))
    put(data / "wav/one.json", manifest(2))
    chats = _collection(data)
    put(data / "c/m_1.jsonl", (data / "c/m_1.jsonl").read_bytes().lstrip())  # upstream counts blank lines
    parts = f"{data}/parts"
    return (
        corpus(data, name="plain")
        + f"- {{type: nemo_tarred, manifest_filepath: '{parts}/manifest__OP_0..2_CL_.json',"
        f" tarred_audio_filepaths: '{parts}/audio__OP_0..2_CL_.tar'}}\n"
        f"- {{type: nemo_tarred, manifest_filepath: '{parts}/all.json',"
        f" tarred_audio_filepaths: '{parts}/audio_{{0..2}}.tar'}}\n"
        f"- {{type: nemo_tarred, manifest_filepath: ['{parts}/manifest_0.json', '{parts}/manifest_2.json'],"
        f" tarred_audio_filepaths: ['{parts}/audio_0.tar', '{parts}/audio_2.tar']}}\n"
        f"- {{type: nemo, manifest_filepath: {data}/wav/one.json}}\n"
        f"- {{type: nemotron_text_converation, paths: {data}/text/one.jsonl}}\n"
        f"- {{type: nemotron_text_converation, paths: {data}/text/tars/x_0.tar}}\n"
        f"- {{type: multimodal_conversation, manifest_filepath: {data}/text/one.jsonl}}\n"
        + chats
        + _wds(data)
        + f"- type: group\n  input_cfg:\n  - {{type: nemo, manifest_filepath: {data}/wav/one.json}}\n"
        f"  - {{type: nemo_tarred, manifest_filepath: {parts}/manifest_1.json,"
        f" tarred_audio_filepaths: {parts}/audio_1.tar}}\n"
    )


def test_every_kind_of_collection_is_packed(data: Path, tmp_path: Path) -> None:
    blend = blend_of_all(data)
    asked = Submission(blend.encode(), f"{data}/blend.yaml", World(base=str(data)), packs="all", sidecars="all")
    result = run_build(site(tmp_path / "root"), asked, runner=InlineRunner())
    assert result["state"] == "ready", result["problems"]
    assert [item for item in result["packs"] if "reasons" in item] == []
    kinds: set[str] = set()
    for path in Path(result["path"], "packs").iterdir():
        with PackReader(str(path)) as pack:
            verify(pack)
            kinds |= {item.kind for item in pack.collections.values()}
    assert kinds == {
        "jsonl", "nemo_tar", "wds_tar_v2",
        "nemo_manifest_row_to_tar_ordinal_v1", "nemo_manifest_row_to_tar_shard_v1",
    }  # fmt: skip


def test_a_build_of_every_kind_follows_its_paths(data: Path, tmp_path: Path) -> None:
    house = site(tmp_path / "root")
    old, new = data / "old", data / "new"
    blend = blend_of_all(old)
    wait_until_calm()
    asked = Submission(blend.encode(), f"{old}/blend.yaml", World(base=str(old)), packs="all")
    first = run_build(house, asked, runner=InlineRunner())
    assert first["state"] == "ready", first["problems"]
    old.rename(new)
    made = control.rebind(house, first["id"], [(str(old), str(new))])
    result = work_until_ended(house, made, runner=InlineRunner())
    assert result["state"] == "ready", result["problems"]
    assert len(list(Path(result["path"], "packs").iterdir())) == len(list(Path(first["path"], "packs").iterdir()))
    text = blend.replace(str(old), str(new)).encode()
    posted = Submission(text, f"{new}/blend.yaml", World(base=str(new)), packs="all")
    assert run_build(house, posted, runner=InlineRunner())["mirror"] == result["mirror"]
