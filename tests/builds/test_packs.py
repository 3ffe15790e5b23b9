"""Packs on the trip: what is packed, what is not and why, and what a mirror and a ready blend make of it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest
from omegaconf import OmegaConf

from blendex.blend.world import World
from blendex.builds import access, control
from blendex.builds.preview import preview
from blendex.builds.run import run_build, work_until_ended
from blendex.builds.site import Site
from blendex.builds.submission import Submission
from blendex.catalog import builds
from blendex.errors import BlendexError, Code
from blendex.formats.pack import collection_key
from blendex.formats.packreader import PackReader, verify
from blendex.units.against import against
from blendex.units.receipt import read_receipt, read_sources
from blendex.units.verify import run as verify_mirror
from tests.support.corpus import corpus, manifest, put, sidecars, site, submission, tar, wait_until_calm
from tests.support.inline import InlineRunner

OpenSite = Callable[..., Site]
DATA = Path(__file__).parent.parent / "data"
SPEECH = DATA / "speech"


def run(site: Site, what: Submission) -> dict[str, Any]:
    return run_build(site, what, runner=InlineRunner())


def ready(site: Site, what: Submission) -> dict[str, Any]:
    result = run(site, what)
    assert result["state"] == "ready", result["problems"]
    return result


def packs_of(result: dict[str, Any]) -> dict[str, Path]:
    return {path.name: path for path in sorted(Path(result["path"], "packs").glob("*"))}


def reasons(result: dict[str, Any]) -> dict[str, list[str]]:
    return {
        item["dataset"]: [reason["message"] for reason in item["reasons"]]
        for item in result["packs"]
        if "reasons" in item
    }


def text(folder: Path, name: str, rows: bytes | None = None) -> str:
    """A dataset of rows that stand alone; the entry of a blend over it."""
    put(folder / f"{name}/part_0.jsonl", manifest(3, name) if rows is None else rows)
    return f"- type: nemotron_text_converation\n  name: {name}\n  paths: {folder}/{name}/part_0.jsonl\n  weight: 1\n"


def test_real_speech_is_packed_and_its_ready_blend_finds_it(open_site: OpenSite) -> None:
    world = World(base=str(SPEECH), variables={"data_blend_dir": str(SPEECH)})
    blend = SPEECH / "blend.yaml"
    result = ready(open_site(), Submission(blend.read_bytes(), str(blend), world, packs="all"))
    entries = OmegaConf.to_container(OmegaConf.load(result["blend"]), resolve=True)
    assert isinstance(entries, list)
    packed = [entry for entry in entries if "index_pack" in entry]
    assert [entry["tags"] for entry in packed] == [{"corpus": "tarred"}]
    for entry in packed:
        assert entry["indexed"] is True
        wanted = {
            collection_key("manifest", "jsonl", entry["manifest_filepath"]),
            collection_key("tar", "nemo_tar", entry["tarred_audio_filepaths"]),
            collection_key(
                "native_tar_route",
                "nemo_manifest_row_to_tar_ordinal_v1",
                {
                    "manifest": entry["manifest_filepath"],
                    "tar": entry["tarred_audio_filepaths"],
                    "normalization": "nemo-audio-member-v1",
                },
            ),
        }
        with PackReader(os.path.join(entry["index_pack_root"], entry["index_pack"])) as pack:
            verify(pack)
            assert set(pack.collections) == wanted
    assert set(reasons(result)) == {"lhotse_shar-1", "group-2"}
    assert verify_mirror({"mirror": result["path"], "sources": True}, lambda _: None)["faults"] == []
    assert len(sidecars(result["path"])) == 9
    diff = Path(result["blend"]).with_name("blend.diff").read_text()
    assert '+  index_pack: "nemo_tarred-' in diff
    assert "-  shar_path: ${data_blend_dir}/shar\n" in diff


@pytest.mark.parametrize(
    ("manifests", "tars", "golden"),
    [
        ("nemo/manifest__OP_0..2_CL_.json", "nemo/audio__OP_0..2_CL_.tar", "v3_native_route"),
        ("nemo/agg_manifest.json", "nemo/audio__OP_0..2_CL_.tar", "v3_aggregate"),
    ],
)
def test_a_pack_of_the_trip_is_upstreams(
    manifests: str, tars: str, golden: str, open_site: OpenSite, data: Path
) -> None:
    with tarfile.open(DATA / "golden/packs/nemo.tar.gz") as archive:
        archive.extractall(data, filter="data")
    blend = f"- type: nemo_tarred\n  manifest_filepath: {manifests}\n  tarred_audio_filepaths: {tars}\n"
    result = ready(open_site(), submission(blend, data, packs="all"))
    (path,) = packs_of(result).values()
    assert path.read_bytes() == (DATA / f"golden/packs/{golden}.idxpack").read_bytes()
    assert sidecars(result["path"]) == {}


def test_records_through_the_pack_are_those_through_the_sidecars(open_site: OpenSite, data: Path) -> None:
    blend = corpus(data, shards=4, rows=7)
    site = open_site()
    result = ready(site, submission(blend, data, packs="all", sidecars="all"))
    loose = sidecars(result["path"])
    assert len(loose) == 8
    (path,) = packs_of(result).values()
    seen = 0
    with PackReader(str(path)) as pack:
        for collection in pack.collections.values():
            for number in range(len(collection) if collection.kind in ("jsonl", "nemo_tar") else 0):
                place = collection.locate(number)
                words = memoryview(loose[place.path.lstrip("/") + ".idx"]).cast("Q")
                assert (place.start, place.end) == (words[place.local], words[place.local + 1])
                source = Path(place.path).read_bytes()[place.start : place.end]
                assert source.startswith(b'{"audio_filepath"' if collection.kind == "jsonl" else b"a")
                seen += 1
    assert seen == 2 * 4 * 7


def test_two_builds_share_the_packs_of_what_they_share(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    first, second, third = (corpus(data, name=name) for name in "abc")
    wait_until_calm()
    one = ready(site, submission(first + second, data, packs="all"))
    two = ready(site, submission(first + third, data, packs="all"))
    assert one["mirror"] != two["mirror"]
    mine, yours = packs_of(one), packs_of(two)
    shared = set(mine) & set(yours)
    assert (len(mine), len(yours), len(shared)) == (2, 2, 1)
    for name in shared:
        assert mine[name].stat().st_ino == yours[name].stat().st_ino
        assert mine[name].stat().st_mode & 0o777 == 0o444


def test_a_change_in_one_dataset_leaves_the_packs_of_others(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    blend = corpus(data, name="a") + corpus(data, name="b")
    wait_until_calm()
    before = packs_of(ready(site, submission(blend, data, packs="all")))
    put(data / "b/manifest_1.json", manifest(4, "b1_"))
    after = packs_of(ready(site, submission(blend, data, packs="all")))
    kept = [name for name in before if name in after and before[name].stat().st_ino == after[name].stat().st_ino]
    assert [name.split("-")[0] for name in kept] == ["a"]


def test_the_same_request_again_makes_nothing(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    blend = corpus(data)
    wait_until_calm()
    first = ready(site, submission(blend, data, packs="all"))
    runner = InlineRunner()
    again = run_build(site, submission(blend, data, packs="all"), runner=runner)
    assert (again["path"], again["opened"]) == (first["path"], 0)
    assert [call.function for call in runner.calls] == ["blendex.units.plan:run", "blendex.units.stage:run"]
    assert "packing" in first["stages"]


def test_keys_know_packs_and_what_has_no_sidecars(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    blend = corpus(data)
    keys = [
        ready(site, submission(blend, data, **options))["mirror"]
        for options in (
            {"packs": "none"},
            {"packs": "auto"},
            {"packs": "all"},
            {"packs": "nemo_tarred-0"},
            {"packs": "all", "sidecars": "all"},
        )
    ]
    assert keys[0] == keys[1]
    assert keys[2] == keys[3]
    assert len(set(keys)) == 3


def test_auto_packs_what_is_large(open_site: OpenSite, data: Path) -> None:
    site = open_site(pack_sources=6)
    blend = corpus(data, shards=3, name="large") + corpus(data, shards=2, name="small")
    result = ready(site, submission(blend, data))
    assert [item["dataset"] for item in result["packs"]] == ["nemo_tarred-0"]
    assert {name.split("/")[-2] for name in sidecars(result["path"])} == {"small"}
    lines = list(read_sources(result["path"]))
    assert {line.get("pack", "").partition("-")[0] for line in lines if "/large/" in line["path"]} == {"large"}
    assert read_receipt(result["path"])["counts"]["packed"] == 6


def test_a_name_that_is_none_is_refused(open_site: OpenSite, data: Path) -> None:
    result = run(open_site(), submission(corpus(data), data, packs="nemo_tarred-7"))
    assert result["state"] == "failed"
    assert result["error"]["code"] == Code.BAD_REQUEST
    assert "nemo_tarred-0" in result["error"]["next_step"]
    with pytest.raises(BlendexError, match="packs"):
        run(open_site(), submission(corpus(data), data, packs="a b"))


def test_a_group_that_cannot_be_packed_says_why_leaf_by_leaf(open_site: OpenSite, data: Path) -> None:
    put(data / "cuts.jsonl", b'{"id": "a", "start": 0, "duration": 1}\n')
    inner = indent(corpus(data), "  ")
    blend = (
        f"- type: group\n  input_cfg:\n{inner}  - type: lhotse\n    cuts_path: {data}/cuts.jsonl\n    weight: 1\n"
        f"  - type: txt_jsonl\n    paths: {data}/cuts.jsonl\n    weight: 1\n"
    )
    result = ready(open_site(), submission(blend, data, packs="all"))
    assert reasons(result) == {
        "group-0": ["training reads no lhotse from a pack.", "training reads no txt_jsonl from a pack."]
    }
    assert packs_of(result) == {}
    assert len(sidecars(result["path"])) == 7
    (told,) = result["packs"]
    assert [reason["pointer"] for reason in told["reasons"]] == [[0, "input_cfg", 1], [0, "input_cfg", 2]]


def test_rows_that_are_no_objects_keep_a_dataset_loose(open_site: OpenSite, data: Path) -> None:
    bad = b'{"audio_filepath": "a.wav"}\n{"a": 1} {"b": 2}\n{"c": }\n'
    blend = text(data, "good") + text(data, "bad", bad)
    result = ready(open_site(), submission(blend, data, packs="all"))
    assert list(reasons(result)) == ["bad"]
    assert "row 1 (from 0) is no JSON object, and 1 others" in reasons(result)["bad"][0]
    assert [name.split("-")[0] for name in packs_of(result)] == ["good"]
    assert [name.split("/")[-2] for name in sidecars(result["path"])] == ["bad"]


def test_a_row_without_its_member_keeps_a_dataset_loose(open_site: OpenSite, data: Path) -> None:
    blend = corpus(data)
    put(data / "a/audio_1.tar", tar(["x.wav"]))
    result = ready(open_site(), submission(blend, data, packs="all"))
    (told,) = result["packs"]
    (reason,) = told["reasons"]
    assert reason["file"] == f"{data}/a/manifest_1.json"
    assert f"row 0 (from 0) names audio that begins no record of {data}/a/audio_1.tar" in reason["message"]
    assert len(sidecars(result["path"])) == 6


def test_what_was_read_for_somebody_else_is_read_once_more(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    blend = text(data, "a")
    wait_until_calm()
    assert ready(site, submission(blend, data, packs="none"))["opened"] == 1
    asked = submission(blend, data, packs="all")
    runner = InlineRunner()
    told = preview(site, runner, asked)
    assert (told.read_again, told.packs) == (1, [{"dataset": "a", "sources": 1}])
    assert ready(site, asked)["opened"] == 1
    told = preview(site, InlineRunner(), asked)
    assert (told.read_again, told.reused) == (0, 1)
    assert told.mirror is not None
    assert ready(site, asked)["opened"] == 0


def test_one_source_in_two_datasets_keeps_its_sidecar_for_the_unpacked_one(open_site: OpenSite, data: Path) -> None:
    blend = text(data, "a") + f"- type: txt_jsonl\n  name: b\n  paths: {data}/a/part_0.jsonl\n  weight: 1\n"
    result = ready(open_site(), submission(blend, data, packs="all"))
    assert len(packs_of(result)) == 1
    assert len(sidecars(result["path"])) == 1


def test_a_bad_leaf_that_is_left_out_is_not_in_the_pack(open_site: OpenSite, data: Path) -> None:
    inner = indent(text(data, "a") + text(data, "b"), "  ")
    (data / "b/part_0.jsonl").unlink()
    blend = f"- type: group\n  input_cfg:\n{inner}"
    result = ready(open_site(), submission(blend, data, packs="all", on_bad="exclude"))
    (path,) = packs_of(result).values()
    with PackReader(str(path)) as pack:
        (collection,) = pack.collections.values()
        assert [collection.path(0)] == [f"{data}/a/part_0.jsonl"]


def test_the_same_leaf_twice_is_packed_once(open_site: OpenSite, data: Path) -> None:
    inner = indent(text(data, "a") * 2, "  ")
    result = ready(open_site(), submission(f"- type: group\n  input_cfg:\n{inner}", data, packs="all"))
    (path,) = packs_of(result).values()
    with PackReader(str(path)) as pack:
        assert len(pack.collections) == 1


def test_names_of_packs_do_not_depend_on_the_blend(open_site: OpenSite, data: Path) -> None:
    first, second = text(data, "a"), text(data, "b")
    site = open_site()
    one = ready(site, submission(first + second, data, packs="all"))
    two = ready(site, submission(second.replace("name: b", "name: z") + first, data, packs="all"))
    assert one["mirror"] == two["mirror"]
    assert Path(one["blend"]).read_text() != Path(two["blend"]).read_text()


def test_a_damaged_bundle_is_noticed_and_read_again(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    blend = corpus(data)
    wait_until_calm()
    ready(site, submission(blend, data, packs="none"))
    (bundle,) = Path(site.root.path, "objects").rglob("*.bundle")
    broken = bytearray(bundle.read_bytes())
    broken[20] ^= 1
    os.chmod(bundle, 0o644)
    bundle.write_bytes(broken)
    result = ready(site, submission(blend, data, packs="all"))
    assert result["opened"] == 6
    for path in packs_of(result).values():
        with PackReader(str(path)) as pack:
            verify(pack)


def test_a_lost_pack_is_made_again(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    blend, more = corpus(data), text(data, "t")
    wait_until_calm()
    first = ready(site, submission(blend, data, packs="all"))
    (name,) = packs_of(first)
    (path,) = Path(site.root.path, "objects").rglob("*.idxpack")
    path.unlink()
    other = ready(site, submission(blend + more, data, packs="all"))
    assert name in packs_of(other)
    assert other["opened"] == 1


def test_verify_notices_a_damaged_pack(open_site: OpenSite, data: Path) -> None:
    result = ready(open_site(), submission(corpus(data), data, packs="all"))
    (path,) = packs_of(result).values()
    os.chmod(path, 0o644)
    broken = bytearray(path.read_bytes())
    broken[-1] ^= 1
    path.write_bytes(broken)
    (fault,) = verify_mirror({"mirror": result["path"], "sources": False}, lambda _: None)["faults"]
    assert fault["path"] == f"packs/{path.name}"


def test_a_receipt_names_its_packs(open_site: OpenSite, data: Path) -> None:
    result = ready(open_site(), submission(corpus(data), data, packs="all"))
    (told,) = read_receipt(result["path"])["packs"]
    (path,) = packs_of(result).values()
    assert told["file"] == path.name
    assert told["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert told["layout_hash"].startswith(path.stem.rpartition("-")[2])
    saved = json.loads(Path(result["blend"]).with_name("build.json").read_bytes())
    assert saved["packs"] == result["packs"]


def test_a_lost_catalog_knows_the_packs_of_builds_again(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    blend = corpus(data)
    wait_until_calm()
    first = ready(site, submission(blend, data, packs="all"))
    site.work.engine.dispose()
    for path in Path(site.root.path).glob("catalog.sqlite*"):
        path.unlink()
    site = open_site()
    with site.work.read() as session:
        row = builds.get(session, first["id"])
        assert row is not None
        assert row.packs == first["packs"]
    again = ready(site, submission(blend, data, packs="all"))
    assert (again["path"], again["opened"]) == (first["path"], 0)


def test_a_blend_that_needs_a_packed_source_loose_as_well_has_a_mirror_of_its_own(
    open_site: OpenSite, data: Path
) -> None:
    packed = text(data, "a")
    both = packed + f"- type: txt_jsonl\n  name: b\n  paths: {data}/a/part_0.jsonl\n  weight: 1\n"
    site = open_site()
    wait_until_calm()
    one = ready(site, submission(packed, data, packs="all"))
    assert sidecars(one["path"]) == {}
    two = ready(site, submission(both, data, packs="all"))
    assert len(sidecars(two["path"])) == 1
    assert preview(site, InlineRunner(), submission(both, data, packs="all")).mirror == two["mirror"]
    assert preview(site, InlineRunner(), submission(packed, data, packs="all")).mirror == one["mirror"]


def test_packs_that_only_a_later_build_wants_are_made_without_planning_twice(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    blend = corpus(data)
    wait_until_calm()
    ready(site, submission(blend, data, packs="none"))
    runner = InlineRunner()
    result = run_build(site, submission(blend, data, packs="all"), runner=runner)
    assert [call.function.partition(":")[0] for call in runner.calls] == [
        "blendex.units.plan", "blendex.units.pack", "blendex.units.stage",
    ]  # fmt: skip
    assert (result["opened"], len(packs_of(result))) == (0, 1)


def test_packs_are_added_to_what_a_build_has(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    blend = corpus(data, name="a") + corpus(data, name="b")
    wait_until_calm()
    loose = ready(site, submission(blend, data, packs="none"))
    made = control.pack(site, loose["id"], packs="nemo_tarred-1", sidecars="unpacked")
    assert made != loose["id"]
    result = work_until_ended(site, made, runner=InlineRunner())
    assert (result["state"], result["opened"]) == ("ready", 0)
    assert [name.split("-")[0] for name in packs_of(result)] == ["b"]
    # The same as if it had been posted so; the one that was asked stays as it is.
    assert result["mirror"] == ready(site, submission(blend, data, packs="nemo_tarred-1"))["mirror"]
    assert "index_pack" not in Path(loose["blend"]).read_text()
    with site.work.read() as session:
        row = builds.get(session, loose["id"])
        assert row is not None
        assert (row.state, row.mirror) == ("ready", loose["mirror"])


def test_only_a_ready_build_is_packed(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    failed = run(site, submission(f"- {{type: nemo, manifest_filepath: {data}/absent.json}}\n", data))
    for build, packs, code in (
        (failed["id"], "all", Code.WRONG_STATE),
        ("01ARZ3NDEKTSV4RRFFQ69G5FAV", "all", Code.NOT_FOUND),
        (failed["id"], "a b", Code.BAD_REQUEST),
    ):
        with pytest.raises(BlendexError) as caught:
            control.pack(site, build, packs=packs, sidecars="unpacked")
        assert caught.value.code is code


@pytest.mark.parametrize(
    ("manifests", "tars"),
    [
        ("nemo/manifest__OP_0..2_CL_.json", "nemo/audio__OP_0..2_CL_.tar"),
        ("nemo/agg_manifest.json", "nemo/audio__OP_0..2_CL_.tar"),
    ],
)
def test_a_pack_is_held_against_the_sources_of_its_blend(
    manifests: str, tars: str, open_site: OpenSite, data: Path
) -> None:
    with tarfile.open(DATA / "golden/packs/nemo.tar.gz") as archive:
        archive.extractall(data, filter="data")
    blend = f"- type: nemo_tarred\n  manifest_filepath: {manifests}\n  tarred_audio_filepaths: {tars}\n"
    result = ready(open_site(), submission(blend + text(data, "other"), data, packs="nemo_tarred-0"))
    (path,) = packs_of(result).values()
    world = World(base=str(data))
    told = against(str(path), result["blend"], world)
    assert (told["dataset"], told["faults"]) == ("nemo_tarred-0", [])
    posted = Path(result["blend"]).read_text()
    for old, new, fault in (
        (tars, tars.replace("_OP_", "{").replace("_CL_", "}"), "its tar of kind nemo_tar is not in the pack"),
        (manifests, f"../{data.name}/{manifests}", "its manifest of kind jsonl is not in the pack"),
    ):
        assert old in posted
        other = put(data / "other.yaml", posted.replace(old, new).encode())
        told = against(str(path), str(other), world)
        assert told["dataset"] is None
        assert fault in told["faults"][0]


def test_sources_that_became_more_are_not_those_of_the_pack(open_site: OpenSite, data: Path) -> None:
    for shard in range(3):
        put(data / f"t/{shard}.tar", tar([f"a{shard}.wav"]))
    blend = f"- type: nemotron_text_converation\n  paths: {data}/t\n  weight: 1\n"
    result = ready(open_site(), submission(blend, data, packs="all"))
    (path,) = packs_of(result).values()
    world = World(base=str(data))
    assert against(str(path), result["blend"], world)["faults"] == []
    put(data / "t/3.tar", tar(["b.wav"]))
    (fault,) = against(str(path), result["blend"], world)["faults"]
    assert "its paths has 4 sources, in the pack 3" in fault
    put(data / "t/00.tar", tar(["b.wav"]))
    (fault,) = against(str(path), result["blend"], world)["faults"]
    assert "source 1 of its paths is" in fault


def stored(folder: Path, shards: int = 3) -> tuple[str, World]:
    """A corpus whose tars are named by URLs, which the view leads back to the folder; a blend over it."""
    blend = corpus(folder, shards=shards).replace(f"tarred_audio_filepaths: {folder}", "tarred_audio_filepaths: ais://b")
    return blend, World(base=str(folder), view=(("ais://b", str(folder)),))


def test_tars_that_are_packed_by_paths_are_not_read(data: Path, tmp_path: Path) -> None:
    blend, world = stored(data)
    for shard in range(3):
        put(data / f"a/audio_{shard}.tar", b"no tar at all")
    house = site(tmp_path / "root")
    wait_until_calm()
    asked = Submission(blend.encode(), f"{data}/blend.yaml", world, packs="all", tars="paths")
    result = ready(house, asked)
    (path,) = packs_of(result).values()
    with PackReader(str(path)) as pack:
        verify(pack)
        tars = next(item for item in pack.collections.values() if item.kind == "nemo_tar")
        assert [(tars.path(n), tars.source_size(n)) for n in range(3)] == [
            (f"ais://b/a/audio_{n}.tar", len(b"no tar at all")) for n in range(3)
        ]
        assert (len(pack.collections), len(tars)) == (2, 0)
    assert sidecars(result["path"]) == {}
    assert against(str(path), result["blend"], world) == {"dataset": "nemo_tarred-0", "faults": []}
    needed = {"USE_AIS_GET_BATCH": "true"}
    assert result["packs"][0]["environment"] == read_receipt(result["path"])["packs"][0]["environment"] == needed
    assert access.environment(house, result["id"]) == needed
    assert verify_mirror({"mirror": result["path"], "sources": True}, lambda _: None)["faults"] == []
    assert preview(house, InlineRunner(), asked).mirror == result["mirror"]
    assert run(house, Submission(blend.encode(), f"{data}/blend.yaml", world, packs="all"))["state"] == "failed"


def test_a_manifest_for_several_tars_keeps_its_shard_route_by_paths(data: Path, tmp_path: Path) -> None:
    rows = [{"audio_filepath": f"{s}_{i}.wav", "duration": 1, "shard_id": s} for s in range(3) for i in range(2)]
    for shard in range(3):
        put(data / f"a/audio_{shard}.tar", tar([f"{shard}_{i}.wav" for i in range(2)]))
    put(data / "a/all.json", b"".join(json.dumps(row).encode() + b"\n" for row in rows))
    blend = (
        f"- type: nemo_tarred\n  manifest_filepath: {data}/a/all.json\n"
        "  tarred_audio_filepaths: ais://b/a/audio__OP_0..2_CL_.tar\n"
    )
    world = World(base=str(data), view=(("ais://b", str(data)),))
    asked = Submission(blend.encode(), f"{data}/b.yaml", world, packs="all", tars="paths")
    result = ready(site(tmp_path / "root"), asked)
    (path,) = packs_of(result).values()
    with PackReader(str(path)) as pack:
        kinds = {item.kind: item for item in pack.collections.values()}
        assert set(kinds) == {"jsonl", "nemo_tar", "nemo_manifest_row_to_tar_shard_v1"}
        assert [kinds["nemo_manifest_row_to_tar_shard_v1"].value(n) for n in range(6)] == [0, 0, 1, 1, 2, 2]
    assert against(str(path), result["blend"], world)["faults"] == []


def test_paths_alone_are_refused_where_nothing_fetches_by_them(data: Path, tmp_path: Path) -> None:
    house = site(tmp_path / "root")
    result = ready(house, submission(corpus(data), data, packs="all", tars="paths"))
    (reason,) = reasons(result)["nemo_tarred-0"]
    assert "fetches nothing from a filesystem" in reason
    assert len(sidecars(result["path"])) == 6
    with pytest.raises(BlendexError, match="reads no tars"):
        run(house, submission(corpus(data), data, packs="all", tars="paths", sidecars="all"))


def test_a_dataset_of_paths_that_cannot_be_packed_fails_by_name(data: Path, tmp_path: Path) -> None:
    blend, world = stored(data)
    put(data / "a/manifest_1.json", b'{"audio_filepath": "a.wav"}\n{"a": 1} {"b": 2}\n')
    asked = Submission(blend.encode(), f"{data}/blend.yaml", world, packs="all", tars="paths")
    result = run(site(tmp_path / "root"), asked)
    assert result["state"] == "failed"
    assert "nemo_tarred-0 has no pack" in result["error"]["message"]
    assert result["error"]["file"] == f"{data}/a/manifest_1.json"


def test_a_build_follows_a_folder_that_was_renamed_without_reading(open_site: OpenSite, data: Path) -> None:
    house = open_site()
    blend = corpus(data / "old")
    wait_until_calm()
    first = ready(house, submission(f"# {data}/older stays\n{blend}", data, packs="all"))
    (data / "old").rename(data / "new")
    made = control.rebind(house, first["id"], [(f"{data}/old/", f"{data}/new")])
    result = work_until_ended(house, made, runner=InlineRunner())
    assert (result["state"], result["opened"]) == ("ready", 0), result["problems"]
    assert result["mirror"] != first["mirror"]
    text = Path(result["blend"]).read_text()
    assert f"# {data}/older stays\n" in text
    assert f"{data}/old/" not in text
    (before,), (after,) = packs_of(first).values(), packs_of(result).values()
    with PackReader(str(before)) as old, PackReader(str(after)) as new:
        verify(new)
        for one, other in zip(old.collections.values(), new.collections.values(), strict=True):
            assert len(one) == len(other)
            for number in range(len(one) if one.kind in ("jsonl", "nemo_tar") else 0):
                here, there = one.locate(number), other.locate(number)
                assert (here.start, here.end) == (there.start, there.end)
                assert there.path == here.path.replace("/old/", "/new/")
    moved = submission(f"# {data}/older stays\n{blend}".replace("/old/", "/new/"), data, packs="all")
    assert ready(house, moved)["mirror"] == result["mirror"]


def test_a_build_follows_copies_by_their_content_alone(data: Path, tmp_path: Path) -> None:
    house = site(tmp_path / "root")
    blend = corpus(data / "old")
    wait_until_calm()
    first = ready(house, submission(blend, data, packs="all"))
    shutil.copytree(data / "old", data / "new")
    made = control.rebind(house, first["id"], [(f"{data}/old", f"{data}/new")])
    result = work_until_ended(house, made, runner=InlineRunner())
    assert (result["state"], result["opened"]) == ("ready", 6), result["problems"]
    put(data / "new/a/manifest_1.json", manifest(5, "a9_"))
    put(data / "new/a/audio_1.tar", tar([f"a9_{i}.wav" for i in range(5)]))
    made = control.rebind(house, first["id"], [(f"{data}/old", f"{data}/new")])
    result = work_until_ended(house, made, runner=InlineRunner())
    assert result["state"] == "failed"
    assert [(item["code"], Path(item["path"]).name) for item in result["problems"]] == [
        (Code.SOURCE_CHANGED, "manifest_1.json"),
        (Code.SOURCE_CHANGED, "audio_1.tar"),
    ]
    for moves in ([], [("old", "new")], [("/nowhere", "/new")]):
        with pytest.raises(BlendexError) as caught:
            control.rebind(house, first["id"], moves)
        assert caught.value.code == Code.BAD_REQUEST


def test_one_dataset_is_rolled_back_alone(data: Path, tmp_path: Path) -> None:
    house = site(tmp_path / "root")
    blend = corpus(data, name="a") + corpus(data, name="b")
    kept = {path: path.read_bytes() for path in (data / "a").iterdir()}
    wait_until_calm()
    first = packs_of(ready(house, submission(blend, data, packs="all")))
    put(data / "a/manifest_1.json", manifest(4, "a1_"))
    put(data / "b/manifest_1.json", manifest(4, "b1_"))
    second = packs_of(ready(house, submission(blend, data, packs="all")))
    for path, content in kept.items():
        put(path, content)
    runner = InlineRunner()
    result = run_build(house, submission(blend, data, packs="all"), runner=runner)
    assert "blendex.units.pack:run" not in [call.function for call in runner.calls]
    inodes = {name.partition("-")[0]: path.stat().st_ino for name, path in packs_of(result).items()}
    assert inodes["a"] == next(path.stat().st_ino for name, path in first.items() if name.startswith("a-"))
    assert inodes["b"] == next(path.stat().st_ino for name, path in second.items() if name.startswith("b-"))
