"""Collections of packs against upstream's table: role, kind, key, paths, routes; and who is refused."""

from __future__ import annotations

import re
from typing import Any

import pytest

from blendex.blend.discover import Discovery, discover
from blendex.blend.model import Leaf
from blendex.blend.world import World
from blendex.errors import Code
from blendex.formats.pack import Collection
from blendex.formats.routes import route_collections

from .fakes import Tree, table
from .test_discover import CORPORA

CASES = {case["name"]: case for case in table("discovery.json")}
GOLDEN = table("packs.json")
# What becomes of each leaf where it is not simply what upstream makes: the reason against a pack, or role, kind and
# number of paths of each collection. Upstream stops at the first leaf that it cannot pack; we tell all of them, and
# only the datasets that they belong to stay loose.
_M0 = [("manifest", "jsonl", 1)]
_PAIRS = [("manifest", "jsonl", 3), ("tar", "nemo_tar", 3)]
_LISTS = "neither text nor a flat list"
_NO_LHOTSE = "training reads no lhotse from a pack"
_NO_SHAR = "training reads no lhotse_shar from a pack"
_SECOND_INDEX = "only by their second index"
REFUSED: dict[str, list[Any]] = {
    "nemo buckets nested lists": [_LISTS],
    "nemo weighted lists": [_LISTS],
    "inner list of several paths loses all but the first": [_LISTS],
    "scalar/list mix": ["not both plain text or both lists"],
    "misaligned shard numbers": ["nemo/manifest_0.json stands beside nemo/audio_2.tar"],
    "count mismatch": ["2 manifests stand beside 3 tars"],
    "nested groups, external yaml, relative": [_M0, "training reads no txt_jsonl from a pack", _M0],
    "full training yaml inline": [_PAIRS, _NO_LHOTSE, _NO_LHOTSE],
    "lhotse + shar forms": [_NO_LHOTSE, *[_NO_SHAR] * 4, _NO_LHOTSE],
    "text kinds": [
        "training reads no txt_jsonl from a pack", [("paths", "nemo_tar", 2)], [("paths", "nemo_tar", 1)],
        [("paths", "jsonl", 2)],
    ],
    "nemotron mixed refused": ["mixes JSON lines with tars"],
    "unknown and no-index types": [[], [], [], [], "training reads no nemo_sft_jsonl from a pack", []],
    "multimodal_conversation tarred": ["with tars of its own"],
    "share_gpt list refused in packs": ["of a packed share_gpt is a list"],
    "share_gpt_webdataset v1": [_SECOND_INDEX],
    "share_gpt_webdataset v2 without catalog": [_SECOND_INDEX],
    "same path two kinds collide on one idx": [
        [("manifest", "jsonl", 1), ("tar", "nemo_tar", 1)], _SECOND_INDEX,
    ],
    # Here the entry itself is wrong: a problem of the blend, which no build passes over.
    "data_blend_dir in group ref": [[]],
    "data_blend_dir missing": [[]],
    "correctly spelled nemotron is unknown": [[]],
    "share_gpt collection bad route": [[("manifest", "jsonl", 1), ("tar_collection", "nemo_tar", 1)]],
}  # fmt: skip
PROBLEMS = {
    "lhotse + shar forms": ["folder_missing"],
    "unknown and no-index types": ["unknown_type"],
    "inner list of several paths loses all but the first": ["bad_value"],
    "share_gpt_webdataset v2 without catalog": ["nested_missing"],
    "data_blend_dir in group ref": ["nested_missing"],
    "data_blend_dir missing": ["unknown_variable"],
    "correctly spelled nemotron is unknown": ["unknown_type"],
    "share_gpt collection bad route": ["missing_key"],
    "gz manifest": ["path_compressed"],
}
# Where convert_indexes_to_idxpack.py (NeMo Speech main) packs, and what it packs is not what we pack.
DEVIATIONS: dict[str, tuple[str, list[Any]]] = {
    "wrapper input_cfg string at top level is not followed": ("a blend given as a path is followed", [_M0]),
    "full training yaml with path blend is silently empty": ("a blend given as a path is followed", [_PAIRS]),
    "transform with inline keys": (
        "a transform over cuts is refused by name, where upstream leaves it out in silence",
        [_PAIRS, "training reads no cuts of s2s_as_conversation from a pack"],
    ),
    "gz manifest": (
        "a compressed manifest is a problem of the entry; version 4 is not written",
        [[("manifest", "jsonl", 0)]],
    ),
}


def _discover(name: str) -> Discovery:
    case = CASES[name]
    files = {f"/cfg/{file}": text for file, text in case["files"].items()}
    tree = Tree({**files, **{f"/corpora/{file}": text for file, text in CORPORA.items()}})
    variables = {"data_blend_dir": case["data_blend_dir"]} if "data_blend_dir" in case else {}
    return discover(
        files["/cfg/blend.yaml"].encode(), "/cfg/blend.yaml", World(base="/corpora", variables=variables), tree
    )


def _leaves(discovery: Discovery) -> list[Leaf]:
    return [leaf for dataset in discovery.datasets for leaf in dataset.leaves]


def _collections(leaves: list[Leaf]) -> list[list[Any]]:
    found: dict[str, list[Any]] = {}
    for leaf in leaves:
        for item in leaf.packing.collections:
            paths = [source.path for source in item.sources]
            key = Collection(item.role, item.kind, item.spec, tuple(paths)).key.hex()
            if paths:
                found.setdefault(key, [item.role, item.kind, key, paths])
    return list(found.values())


def _routes(leaves: list[Leaf]) -> list[list[Any]]:
    found: dict[str, list[Any]] = {}
    for leaf in leaves:
        if leaf.packing.native:
            manifests, tars = leaf.packing.collections
            routes = route_collections(manifests.spec, tars.spec, len(manifests.sources), len(tars.sources))
            paths = [[source.path for source in item.sources] for item in (manifests, tars)]
            found.setdefault(routes[-1].key.hex(), [routes[-1].key.hex(), len(routes) == 2, *paths])
    return list(found.values())


def _hold(leaves: list[Leaf], expected: list[Any]) -> None:
    """Each leaf is packed as it should be, or refused for the reason that it should be."""
    assert len(leaves) == len(expected)
    for leaf, wanted in zip(leaves, expected, strict=True):
        refusal = leaf.packing.refusal
        if isinstance(wanted, str):
            assert refusal is not None, leaf.pointer
            assert wanted in refusal.message
            assert refusal.code in (Code.PACK_REFUSED, Code.BAD_VALUE)
            assert refusal.next_step
            assert leaf.packing.collections == ()
        else:
            assert refusal is None, refusal
            assert [(item.role, item.kind, len(item.sources)) for item in leaf.packing.collections] == wanted


def test_the_golden_table_is_whole() -> None:
    assert len(GOLDEN) == 40
    assert set(DEVIATIONS) == {case["name"] for case in GOLDEN if "ok" in case and case["name"] in DEVIATIONS}
    assert set(REFUSED) == {case["name"] for case in GOLDEN if "error" in case}


@pytest.mark.parametrize("case", GOLDEN, ids=[case["name"] for case in GOLDEN])
def test_upstream_table(case: dict[str, Any]) -> None:
    name = case["name"]
    discovery = _discover(name)
    leaves = _leaves(discovery)
    assert [str(problem.code) for problem in discovery.problems] == PROBLEMS.get(name, [])
    if name in DEVIATIONS:
        _hold(leaves, DEVIATIONS[name][1])
        if name == "transform with inline keys":  # what is packed is what upstream packs
            assert _collections(leaves) == case["ok"]["collections"]
            assert _routes(leaves) == case["ok"]["native_maps"]
        return
    if "error" in case:
        _hold(leaves, REFUSED[name])
        # Whatever type upstream stops at is one that we refuse, or do not know, by the same name.
        if (found := re.search(r"dataset type '(\w+)'", case["error"])) is not None:
            bad = [leaf.type for leaf in leaves if leaf.packing.refusal is not None]
            assert found.group(1) in bad or PROBLEMS[name] == ["unknown_type"]
        return
    assert [leaf.packing.refusal for leaf in leaves if leaf.packing.refusal] == []
    assert _collections(leaves) == case["ok"]["collections"]
    assert _routes(leaves) == case["ok"]["native_maps"]


def test_each_refusal_is_of_one_leaf() -> None:
    leaves = _leaves(_discover("text kinds"))
    assert [leaf.packing.refusal is None for leaf in leaves] == [False, True, True, True]
    leaves = _leaves(_discover("lhotse + shar forms"))
    assert all(leaf.packing.refusal for leaf in leaves)


def test_what_needs_no_index_needs_no_pack() -> None:
    leaves = _leaves(_discover("unknown and no-index types"))
    by_type = {leaf.type: leaf.packing for leaf in leaves}
    assert by_type["txt"].refusal is None
    assert by_type["parquet"].collections == ()
    assert by_type["nemo_sft_jsonl"].refusal is not None


def test_a_store_of_manifests_is_seen() -> None:
    assert [leaf.packing.remote is not None for leaf in _leaves(_discover("remote paths"))] == [True]
    assert [leaf.packing.remote for leaf in _leaves(_discover("nemo_tarred scalar"))] == [None]


def test_the_spec_is_resolved_and_not_expanded() -> None:
    (leaf,) = _leaves(_discover("data_blend_dir in leaf"))
    assert leaf.packing.collections[0].spec == "/blends/m.json"
    (leaf,) = _leaves(_discover("nemo_tarred scalar"))
    assert leaf.packing.collections[0].spec == "nemo/manifest__OP_0..2_CL_.json"
