"""Packs held against the config that declares them, and real packs of a real build."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import blendex
from blendex.blend.load import Limits
from blendex.blend.world import World
from blendex.formats.pack import PATHS, Collection
from blendex.formats.routes import route_collections
from blendex.lint.engine import lint
from blendex.lint.ground import Disk
from blendex.lint.model import Finding, Report
from blendex.lint.rule import Packed
from blendex.storage.local import LocalStorage
from blendex.units.plan import FolderReader
from tests.lint.ground import pack_of, run

SPEECH = Path(__file__).parent.parent / "data" / "speech"
MANIFEST, TAR = "/d/manifest_{0..1}.json", "/d/audio_{0..1}.tar"
PAIR = f'{{type: nemo_tarred, manifest_filepath: "{MANIFEST}", tarred_audio_filepaths: "{TAR}"}}'
MANIFESTS, TARS = ("/d/manifest_0.json", "/d/manifest_1.json"), ("/d/audio_0.tar", "/d/audio_1.tar")
BOTH = [Packed("manifest", "jsonl", MANIFEST, MANIFESTS), Packed("tar", "nemo_tar", TAR, TARS)]


def config(entry: str, rest: str = "") -> str:
    return f"train_ds:\n  indexed: true\n  index_pack: /p/a.idxpack\n{rest}  input_cfg: [{entry}]\n"


def found(pack: bytes, entry: str = PAIR, rule: str = "IDX032", **options: Any) -> list[Finding]:
    _, report = run(config(entry), files={"/p/a.idxpack": pack, **options.pop("files", {})}, **options)
    return [item for item in report.findings if item.rule == rule]


def routes(manifests: int = 2, tars: int = 2, manifest: str = MANIFEST) -> tuple[Collection, ...]:
    return route_collections(manifest, TAR, manifests, tars)


@pytest.mark.parametrize("extra", [(), routes()], ids=["version 2", "version 3"])
def test_a_pack_of_this_blend_fits(extra: Iterable[Collection]) -> None:
    assert found(pack_of([*BOTH, *extra])) == []


@pytest.mark.parametrize(
    ("collections", "why"),
    [
        (BOTH[:1], "it has no tar spelt as here"),
        ([Packed("manifest", "jsonl", "/d/manifest__OP_0..1_CL_.json", MANIFESTS), BOTH[1]], "it has no manifest"),
        ([BOTH[0], Packed("tar", "nemo_tar", TAR, TARS[::-1])], "source 1 is /d/audio_1.tar, and here /d/audio_0.tar"),
        ([BOTH[0], Packed("tar", "nemo_tar", TAR, TARS[:1])], "it holds 1 sources, and the entry names 2"),
        ([BOTH[0], Collection("tar", "nemo_tar", TAR, TARS, PATHS)], "USE_AIS_GET_BATCH"),
        ([*BOTH, *routes(manifest="/d/other.json")], "it has no native_tar_route"),
        ([*BOTH, *(Collection(r.role, r.kind, r.spec, ("",) * 3, r.holds) for r in routes())], "has 3 rows"),
    ],
)  # fmt: skip
def test_a_pack_of_another_blend_does_not(collections: list[Any], why: str) -> None:
    (finding,) = found(pack_of(collections))
    assert why in finding.message
    assert finding.severity == "fatal"
    assert finding.field == "train_ds.input_cfg[0]"


def test_one_manifest_for_many_tars_takes_a_route_to_shards() -> None:
    entry = PAIR.replace("manifest_{0..1}", "manifest")
    held = [Packed("manifest", "jsonl", "/d/manifest.json", ("/d/manifest.json",)), BOTH[1]]
    (finding,) = found(pack_of(held), entry)
    assert "native_tar_shard_route" in finding.message
    assert found(pack_of([*held, *routes(1, 2, "/d/manifest.json")]), entry) == []


def test_by_batch_less_is_needed() -> None:
    paths_only = pack_of([BOTH[0], Collection("tar", "nemo_tar", TAR, TARS, PATHS)])
    assert found(paths_only, facts={"environment": {"USE_AIS_GET_BATCH": "true"}}) == []


@pytest.mark.parametrize(
    ("pack", "why"),
    [
        (b"", "damaged"), (b"x" * 500, "damaged"), (pack_of(BOTH)[:-1], "damaged"),
        (pack_of(BOTH, layout=bytes(32)), "layout hash"), (pack_of(BOTH)[:8] + b"\4" + pack_of(BOTH)[9:], "version 4"),
    ],
)  # fmt: skip
def test_damaged_packs(pack: bytes, why: str) -> None:
    (finding,) = found(pack)
    assert why in finding.message
    assert finding.fix


def test_a_source_that_has_grown_makes_the_pack_stale() -> None:
    files = dict.fromkeys((*MANIFESTS, *TARS), b"123456789")
    assert found(pack_of(BOTH), rule="IDX055", files=files) == []
    (finding,) = found(pack_of(BOTH), rule="IDX055", files=files | {TARS[1]: b"1234567890"})
    assert "/d/audio_1.tar had 9 bytes when it was packed; now it has 10" in finding.message


def test_what_no_pack_can_serve() -> None:
    (finding,) = found(pack_of(BOTH), "{type: lhotse, cuts_path: /d/cuts.jsonl}")
    assert "training reads no" in finding.message


def linted(folder: Path, text: str) -> Report:
    storage = LocalStorage(("/",))
    ground = Disk(storage, FolderReader(storage, {}, Limits().bytes))
    return lint(text.encode(), str(folder / "train.yaml"), World(base=str(folder)), ground)


def test_a_ready_blend_of_a_real_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    speech = Path(shutil.copytree(SPEECH, tmp_path / "speech", ignore=shutil.ignore_patterns("expected")))
    monkeypatch.chdir(speech)
    built = blendex.build(
        speech / "blend.yaml", variables={"data_blend_dir": "."}, root=tmp_path / "root", packs="tarred"
    )
    ready = Path(built.blend).read_text()
    assert "index_pack:" in ready
    blend = speech / "ready.yaml"
    text = f"train_ds:\n  indexed: true\n  seed: 1\n  input_cfg: {blend}\n"
    blend.write_text(ready)
    report = linted(speech, text)
    assert not {"IDX031", "IDX032", "IDX055", "IDX107"} & {item.rule for item in report.findings + report.unchecked}

    blend.write_text(ready.replace("manifest__OP_0..3_CL_.json", "manifest_{0..3}.json"))
    assert "IDX032" in {item.rule for item in linted(speech, text).findings}, "the same paths, spelt otherwise"
    blend.write_text(ready)
    tar = speech / "nemo_tarred/audio_3.tar"
    tar.write_bytes(tar.read_bytes() + bytes(10240))
    assert "IDX055" in {item.rule for item in linted(speech, text).findings}
