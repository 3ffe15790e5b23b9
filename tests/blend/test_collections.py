"""Collections of packs against upstream's table: role, kind, key, paths, routes; and who is refused."""

from __future__ import annotations

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
# Where we differ from convert_indexes_to_idxpack.py (NeMo Speech main): why, and what ours comes to.
# None: refused; else the leaves that are packed.
DEVIATIONS = {
    "wrapper input_cfg string at top level is not followed": "a blend given as a path is followed",
    "full training yaml with path blend is silently empty": "a blend given as a path is followed",
    "transform with inline keys": "a transform over cuts is refused by name, where upstream leaves it out in silence",
    "gz manifest": "a compressed manifest is a problem of the entry; version 4 is not written",
    "full training yaml inline": "refused per leaf: the others are packed",
    "lhotse + shar forms": "refused per leaf",
    "text kinds": "refused per leaf: the others are packed",
    "nested groups, external yaml, relative": "refused per leaf: the others are packed",
    "unknown and no-index types": "refused per leaf",
    "share_gpt_webdataset v1": "refused per leaf",
    "same path two kinds collide on one idx": "refused per leaf: the others are packed",
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


def test_the_golden_table_is_whole() -> None:
    assert len(GOLDEN) == 40
    assert set(DEVIATIONS) <= {case["name"] for case in GOLDEN}


@pytest.mark.parametrize("case", GOLDEN, ids=[case["name"] for case in GOLDEN])
def test_upstream_table(case: dict[str, Any]) -> None:
    discovery = _discover(case["name"])
    leaves = _leaves(discovery)
    if case["name"] == "transform with inline keys":
        assert [leaf.packing.refusal is None for leaf in leaves] == [True, False]
        leaves = leaves[:1]
    elif case["name"] in DEVIATIONS:
        return
    if "error" in case:
        # A problem of the entry itself comes first; nothing is packed then either.
        refusals = [leaf.packing.refusal for leaf in leaves if leaf.packing.refusal]
        assert refusals or discovery.problems
        assert all(refusal.code in (Code.PACK_REFUSED, Code.BAD_VALUE) for refusal in refusals)
        assert all(refusal.next_step for refusal in refusals)
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
