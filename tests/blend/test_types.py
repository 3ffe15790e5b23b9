"""Types beyond the plain ones: transforms, ShareGPT in its modes, WebDataset with catalogs, inherited sets."""

from __future__ import annotations

import hashlib
import json

import pytest

from blendex.blend.discover import Derivation, Source, discover
from blendex.blend.load import Limits
from blendex.blend.types import TYPES
from blendex.blend.world import World
from blendex.errors import Code

from .fakes import Tree, codes, found, paths, sources

TRANSFORMS = sorted(name for name, spec in TYPES.items() if spec.keys and spec.children)
MANIFESTS = "manifest_filepath: '/m_{0..1}.json', tarred_audio_filepaths: '/a_{0..1}.tar'"
SHAR = {"/s/cuts.0.jsonl": "", "/s/recording.0.tar": ""}


def test_there_are_seven_transforms() -> None:
    assert len(TRANSFORMS) == 7


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize(
    ("keys", "wanted", "ignored"),
    [
        ("cuts_path: /c.jsonl", ["/c.jsonl"], []),
        ("shar_path: /s, cuts_path: /c.jsonl", ["/s/cuts.0.jsonl", "/s/recording.0.tar"], ["cuts_path"]),
        (MANIFESTS, ["/m_0.json", "/m_1.json", "/a_0.tar", "/a_1.tar"], []),
        (f"cuts_path: /c.jsonl, {MANIFESTS}", ["/c.jsonl"], ["manifest_filepath", "tarred_audio_filepaths"]),
        (f"input_cfg: [{{type: nemo, manifest_filepath: /i.json}}], {MANIFESTS}", ["/i.json"], ["manifest_filepath"]),
        ("input_cfg: /b.yaml", ["/b.json"], []),
    ],
)
def test_a_transform_opens_what_training_prefers(name: str, keys: str, wanted: list[str], ignored: list[str]) -> None:
    tree = Tree({**SHAR, "/b.yaml": "- {type: nemo, manifest_filepath: /b.json}"})
    discovery = found(f"- {{type: {name}, {keys}}}", tree)
    assert paths(discovery) == wanted
    assert not discovery.problems
    told = " ".join(warning.message for warning in discovery.warnings)
    assert all(f"{key} is ignored by training" in told for key in ignored)


def test_a_transform_without_data_says_what_it_needs() -> None:
    (problem,) = found("- {type: s2s_as_conversation, paths: /x.jsonl}").problems
    assert problem.code is Code.MISSING_KEY
    assert "input_cfg or shar_path or cuts_path or manifest_filepath" in problem.message


def test_cuts_are_opened_as_written() -> None:
    discovery = found("- {type: lhotse, cuts_path: '/My Set (old)/cuts.jsonl'}")
    assert paths(discovery) == ["/My Set (old)/cuts.jsonl"]
    assert "as it is written" in discovery.warnings[0].message


@pytest.mark.parametrize(
    ("entry", "wanted"),
    [
        ("type: nemo, manifest_filepath: ['/m_{0..1}.json']", ["/m_0.json", "/m_1.json"]),
        ("type: nemo, manifest_filepath: [['/m_{0..1}.json']]", ["/m_0.json", "/m_1.json"]),
        ("type: share_gpt, manifest_filepath: ['/m_{0..1}.json']", ["/m_{0..1}.json"]),
        ("type: multimodal_conversation, manifest_filepath: '/m_{0..1}.json'", ["/m_0.json", "/m_1.json"]),
        ("type: multimodal_conversation, manifest_filepath: ['/m_{0..1}.json']", ["/m_{0..1}.json"]),
        ("type: txt_jsonl, paths: ['/m_{0..1}.jsonl']", ["/m_{0..1}.jsonl"]),
        ("type: nemo_sft_jsonl, paths: '/m_{0..1}.jsonl'", ["/m_0.jsonl", "/m_1.jsonl"]),
        ("type: lhotse_shar, shar_path: {cuts: ['/c_{0..1}.jsonl']}", ["/c_{0..1}.jsonl"]),
        ("type: lhotse_shar, shar_path: {cuts: '/c_{0..1}.jsonl'}", ["/c_0.jsonl", "/c_1.jsonl"]),
    ],
)
def test_items_of_lists_are_expanded_where_training_does(entry: str, wanted: list[str]) -> None:
    discovery = found(f"- {{{entry}}}")
    assert paths(discovery) == wanted
    assert any("as it is written" in warning.message for warning in discovery.warnings) == ("{" in wanted[0])


def test_what_the_builder_forgets_is_told() -> None:
    discovery = found("- {type: nemo_sft_jsonl, paths: /a.jsonl}")
    assert sources(discovery) == [Source("jsonl", "/a.jsonl")]
    assert "passes over nemo_sft_jsonl" in discovery.warnings[0].message


# ShareGPT

COLLECTION = """
- type: share_gpt
  tar_lookup_mode: {mode}
  manifest_filepath: /c/part-{{0..1}}.jsonl
  tarred_audio_filepaths: /c/audio_{{00..02}}.tar
  {more}
"""


def _collection(more: str, mode: str = "collection") -> str:
    return COLLECTION.format(mode=mode, more=more)


def test_a_collection_has_a_derived_route() -> None:
    text = _collection("tar_routing_filepath: all.sgroute\n  audio_path_prefix_map: {/old/: s3://b/x/, /a: /b//c}")
    discovery = found(text)
    assert not discovery.problems
    (leaf,) = discovery.datasets[0].leaves
    named = [Source("jsonl", f"/c/part-{n}.jsonl") for n in range(2)]
    tars = [Source("nemo_tar", f"/c/audio_0{n}.tar") for n in range(3)]
    route = Source("sharegpt_route", "all.sgroute")
    assert leaf.sources == (*named, *tars, route)
    assert leaf.derived == (
        Derivation(
            route,
            (*named, *tars),
            {
                "manifests": 2,
                "specs": ["/c/part-{0..1}.jsonl"] * 2,
                "prefix_map": {"/a": "/b/c", "/old": "s3://b/x"},
                "placeholders": ["<sound>", "<speech>"],
            },
        ),
    )
    assert not any("do not match" in warning.message for warning in discovery.warnings)


@pytest.mark.parametrize(
    ("more", "code", "named"),
    [
        ("weight: 1", "missing_key", "tar_routing_filepath"),
        ("tar_routing_filepath: all.route", "bad_value", ".sgroute"),
        ("tar_routing_filepath: 5", "bad_value", ".sgroute"),
        ("tar_routing_filepath: a.sgroute\n  tar_routing_index: b.sgroute", "bad_value", "differ"),
        ("tar_routing_filepath: a.sgroute\n  audio_path_prefix_map: {rel: /x}", "bad_value", "rel"),
        ("tar_routing_filepath: a.sgroute\n  audio_path_prefix_map: {/a/../b: /x}", "bad_value", "/a/../b"),
        ("tar_routing_filepath: a.sgroute\n  audio_path_prefix_map: {/a: /x, /a/: /y}", "bad_value", "twice"),
        ("tar_routing_filepath: a.sgroute\n  audio_path_prefix_map: {/a: 's3://[b/x'}", "bad_value", "URL"),
        ("tar_routing_filepath: a.sgroute\n  audio_path_prefix_map: [5]", "bad_value", "text"),
        ("tar_routing_filepath: a.sgroute\n  audio_placeholders: [5]", "bad_value", "text"),
        ("tar_routing_filepath: ${nope}", "unknown_variable", "nope"),
    ],
)
def test_a_collection_that_training_would_refuse(more: str, code: str, named: str) -> None:
    discovery = found(_collection(more))
    (problem,) = discovery.problems
    assert problem.code == code
    assert named in problem.message
    assert len(paths(discovery)) == 5  # the manifests and tars are found all the same


def test_the_older_spelling_of_the_route() -> None:
    assert paths(found(_collection("tar_routing_index: x/a.sgroute")))[-1] == "x/a.sgroute"
    assert paths(found(_collection("tar_routing_index: ''\n  tar_routing_filepath: a.sgroute")))[-1] == "a.sgroute"


def test_a_collection_needs_both_sides() -> None:
    text = (
        "- {type: share_gpt, tar_lookup_mode: collection, manifest_filepath: /m.jsonl, tar_routing_filepath: a.sgroute}"
    )
    (problem,) = found(text).problems
    assert "tarred_audio_filepaths" in problem.message


def test_the_other_modes_have_no_route() -> None:
    discovery = found(_collection("tar_routing_filepath: a.sgroute", mode="paired"))
    assert len(paths(discovery)) == 5
    assert any("2 manifests stand beside 3 tars" in warning.message for warning in discovery.warnings)
    (problem,) = found(_collection("weight: 1", mode="scattered")).problems
    assert "neither paired nor collection" in problem.message
    (problem,) = found("- {type: share_gpt, tar_lookup_mode: paired, manifest_filepath: /m.jsonl}").problems
    assert problem.code is Code.MISSING_KEY


def test_excluded_lines_must_answer_to_their_digest() -> None:
    good = hashlib.sha256(b"[12,48]\n").hexdigest()
    head = "- {type: share_gpt, manifest_filepath: /m.jsonl, excluded_manifest_lines: [48, 12], "
    audit = "approved_exclusion_audit_sha256: '" + "a" * 64 + "'"
    assert not found(f"{head} excluded_manifest_lines_sha256: '{good}', {audit}}}").warnings
    (warning,) = found(f"{head} excluded_manifest_lines_sha256: '{'0' * 64}', {audit}}}").warnings
    assert good in warning.next_step
    (warning,) = found(f"{head} excluded_manifest_lines_sha256: '{good}'}}").warnings
    assert "approved_exclusion_audit_sha256" in warning.message


# WebDataset

WIDS = json.dumps(
    {"shardlist": [{"url": "b-{1..0}.tar", "nsamples": 3}, {"url": "/abs/x.tar"}, {"url": "s3://b/y.tar"}]}
)
CATALOG = {"format": "nemo-wds-shard-catalog", "version": 1, "shards": [{"url": "z.tar"}]}


def _wds(files: dict[str, str], root: str = "/w", version: int | None = 2) -> tuple[list[str], list[str]]:
    more = f", wds_sample_index_version: {version}" if version is not None else ""
    discovery = found(f"- {{type: share_gpt_webdataset, data_dir: {root}{more}}}", Tree(files))
    kind = "wds_tar_v2" if version == 2 else "wds_tar"
    assert all(source.kind in (kind, "jsonl") for source in sources(discovery))
    return paths(discovery), codes(discovery)


def test_catalogs_in_their_order() -> None:
    catalog = {"/w/wds-catalog.json": json.dumps(CATALOG)}
    split = {"/w/.nv-meta/split.yaml": "split_parts: {train: ['a/{0..2}.tar', q.tar]}\nexclude: ['*/1.tar', q.tar]"}
    assert _wds(catalog) == (["/w/z.tar"], [])
    assert _wds({**catalog, **split}) == (["/w/a/0.tar", "/w/a/2.tar"], [])
    every = {**catalog, **split, "/w/wids-meta.json": WIDS, "/w/n.jsonl": "", "/w/sub/m.jsonl": ""}
    assert _wds(every) == (["/w/b-1.tar", "/w/b-0.tar", "/abs/x.tar", "s3://b/y.tar", "/w/n.jsonl"], [])
    assert _wds({"/w/x.wds-catalog.json": json.dumps(CATALOG)}, "/w/x.wds-catalog.json") == (["/w/z.tar"], [])


def test_version_one_looks_for_tars_itself() -> None:
    files = dict.fromkeys(("/w/b/x.tar", "/w/a.tar", "/w/a/y.tar", "/w/n.txt"), "")
    assert _wds(files, version=None) == (["/w/a.tar", "/w/a/y.tar", "/w/b/x.tar"], [])
    assert _wds(files, version=2) == ([], ["nested_missing"])
    assert _wds({"/w/n.txt": ""}, version=1) == ([], ["folder_empty"])
    assert _wds({}, version=1) == ([], ["folder_missing"])


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", "bad_value"),
        ("[]", "bad_value"),
        ('{"shardlist": []}', "bad_value"),
        ('{"shardlist": [{"url": 5}]}', "bad_value"),
        ('{"shardlist": [{"url": "../x.tar"}]}', "bad_value"),
        ('{"shardlist": [{"url": "a\\u0000.tar"}]}', "bad_value"),
        ('{"shardlist": [{"url": "a.tar"}, {"url": "./a.tar"}]}', "bad_value"),
        ('{"shardlist": [{"url": "{0..9999999999}.tar"}]}', "pattern_too_many"),
        ('{"shardlist": [{"url": "{0..1.tar"}]}', "pattern_unbalanced"),
        ("[" * 3_000_000, "bad_value"),
    ],
    ids=range(10),
)
def test_catalogs_that_are_refused(text: str, code: str) -> None:
    assert _wds({"/w/wids-meta.json": text}) == ([], [code])


def test_a_catalog_cannot_exclude_for_ever() -> None:
    text = "split_parts: {train: ['{0..99999}.tar']}\nexclude: ['*{0..999}x']"
    assert _wds({"/w/.nv-meta/split.yaml": text}) == ([], ["bad_value"])


def test_a_version_that_does_not_exist() -> None:
    assert _wds({"/w/wids-meta.json": WIDS}, version=3) == ([], ["bad_value"])


# Training configs

SETS = """
validation_ds:
  tarred_audio_filepaths: /p/a.tar
  manifest_filepath: /p/m.json
  batch_size: 4
  datasets:
    own: {manifest_filepath: /o/m.json}
    all: {name: x}
    ref: ${elsewhere}
    blend: {input_cfg: [{type: nemo, manifest_filepath: /b.json}]}
elsewhere: {manifest_filepath: /e/m.json, tarred_audio_filepaths: null}
"""


def test_named_sets_take_over_what_the_section_says() -> None:
    discovery = found(SETS)
    assert not discovery.problems
    leaves = [
        (leaf.pointer[2], leaf.type, [s.path for s in leaf.sources]) for d in discovery.datasets for leaf in d.leaves
    ]
    assert leaves == [
        ("own", "nemo_tarred", ["/o/m.json", "/p/a.tar"]),
        ("all", "nemo_tarred", ["/p/m.json", "/p/a.tar"]),
        ("ref", "nemo", ["/e/m.json"]),
        ("blend", "nemo", ["/b.json"]),
    ]


def test_a_blend_of_the_section_serves_the_sets_without_one() -> None:
    text = "test_ds: {input_cfg: /b.yaml, datasets: {a: {batch_size: 1}, c: {cuts_path: /c.jsonl}}}"
    discovery = found(text, Tree({"/b.yaml": "- {type: nemo, manifest_filepath: /b.json}"}))
    assert paths(discovery) == ["/b.json"]
    assert any("cuts_path is ignored" in warning.message for warning in discovery.warnings)


def test_a_config_is_resolved_as_training_does() -> None:
    tree = Tree({"/base/a.yaml": "- {type: nemo, manifest_filepath: /base.json}", "/cfg/a.yaml": "- {type: txt}"})
    for text, base, wanted, told in (
        ("train_ds: {input_cfg: a.yaml}", "/base", ["/base.json"], "is taken from the working folder"),
        ("train_ds: {input_cfg: a.yaml}", "/other", [], "is taken from beside the config"),
        ("- {type: group, input_cfg: a.yaml}", "/base", [], ""),
        ("train_ds: {input_cfg: a.yaml}", "/cfg", [], ""),
    ):
        discovery = discover(text.encode(), "/cfg/blend.yaml", World(base=base), tree, Limits())
        assert paths(discovery) == wanted
        assert [told in warning.message for warning in discovery.warnings] == ([True] if told else [])


def test_older_and_foreign_keys_are_told() -> None:
    discovery = found(
        "- {type: multimodal_conversation, manifest_filepath: /m.json, audio_locator: x, shard_key_prefix: y}"
    )
    assert [
        "audio_locator_tag" in discovery.warnings[0].message,
        "another program" in discovery.warnings[1].message,
    ] == [
        True,
        True,
    ]
