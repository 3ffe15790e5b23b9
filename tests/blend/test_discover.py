"""Discovery against upstream's table, the cases people meet, and its own promises."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blendex.blend.discover import Discovery, Problem, Source, discover, nested_files
from blendex.blend.load import Limits
from blendex.blend.types import TYPES
from blendex.blend.world import World
from blendex.errors import BlendexError, Code

from .fakes import Tree, codes, found, paths, sources, table

CORPORA = {
    **dict.fromkeys((
        "shar/cuts.000000.jsonl", "shar/cuts.000001.jsonl", "shar/recording.000000.tar", "shar/recording.000001.tar",
        "text/part_0.jsonl", "text/part_1.jsonl", "text/tars/t0.tar", "text/tars/x/t1.tar",
        "wds/shards/s-0.tar", "wds/shards/s-1.tar",
    ), ""),
    "wds/wids-meta.json": '{"shardlist": [{"url": "shards/s-{0..1}.tar"}]}',
    "wds_split/.nv-meta/split.yaml": "split_parts:\n  train:\n  - a/{00..02}.tar\n  val: []\nexclude:\n- a/01.tar\n",
}  # fmt: skip
GOLDEN = table("discovery.json")
_MANIFESTS = [["jsonl", f"nemo/manifest_{n}.json"] for n in range(3)]
_TARS = [["nemo_tar", f"nemo/audio_{n}.tar"] for n in range(3)]

# Where we differ from build_indexes.py (NeMo Speech main, c03be830): why, the problems, other sources.
DEVIATIONS: dict[str, tuple[str, list[str], list[list[str]] | None]] = {
    "inner list of several paths loses all but the first": (
        "losing a path is a problem", ["bad_value"], None,
    ),
    "wrapper input_cfg string at top level is not followed": (
        "a blend given as a path is followed", [], [["jsonl", "nemo/manifest_0.json"]],
    ),
    "full training yaml with path blend is silently empty": (
        "a blend given as a path is followed", [], _MANIFESTS + _TARS,
    ),
    "data_blend_dir in group ref": (
        "a problem of the entry, not the end of everything", ["nested_missing"], [],
    ),
    "data_blend_dir missing": ("a problem of the entry, not the end of everything", ["unknown_variable"], []),
    "lhotse + shar forms": (
        "a missing folder is a problem; training opens items of a field's list as written, and no cuts beside Shar",
        ["folder_missing"],
        [
            ["jsonl", "jsonl/basic.jsonl"], ["jsonl", "shar/cuts.000000.jsonl"], ["jsonl", "shar/cuts.000001.jsonl"],
            ["wds_tar", "shar/recording.000000.tar"], ["wds_tar", "shar/recording.000001.tar"],
            ["wds_tar", "shar/recording.{000000..000001}.tar"],
        ],
    ),
    "text kinds": (
        "training opens items of a list of paths as written", [],
        [
            ["jsonl", "text/part_{0..1}.jsonl"], ["nemo_tar", "text/tars/t0.tar"],
            ["nemo_tar", "text/tars/x/t1.tar"], ["jsonl", "text/part_0.jsonl"], ["jsonl", "text/part_1.jsonl"],
        ],
    ),
    "correctly spelled nemotron is unknown": ("an unknown type is a problem", ["unknown_type"], None),
    "unknown and no-index types": (
        "an unknown type is a problem; training reads nemo_sft_jsonl by an index", ["unknown_type"],
        [["jsonl", "text/part_0.jsonl"]],
    ),
    "share_gpt collection bad route": (
        "a problem of the entry, not the end of everything", ["missing_key"],
        [["jsonl", "sharegpt/conv.jsonl"], ["nemo_tar", "nemo/audio_0.tar"]],
    ),
    "share_gpt_webdataset v2 without catalog": (
        "a problem of the entry, not the end of everything", ["nested_missing"], [],
    ),
    "gz manifest": ("a compressed file has no offsets", ["path_compressed"], []),
}  # fmt: skip


def test_the_golden_table_is_whole() -> None:
    assert len(GOLDEN) == 40
    assert set(DEVIATIONS) <= {case["name"] for case in GOLDEN}


@pytest.mark.parametrize("case", GOLDEN, ids=[case["name"] for case in GOLDEN])
def test_upstream_table(case: dict[str, Any]) -> None:
    files = {f"/cfg/{name}": text for name, text in case["files"].items()}
    tree = Tree({**files, **{f"/corpora/{name}": text for name, text in CORPORA.items()}})
    variables = {"data_blend_dir": case["data_blend_dir"]} if "data_blend_dir" in case else {}
    world = World(base="/corpora", variables=variables)
    discovery = discover(files["/cfg/blend.yaml"].encode(), "/cfg/blend.yaml", world, tree)
    _, wanted_codes, instead = DEVIATIONS.get(case["name"], ("", [], None))
    wanted = case["sources"] if instead is None else instead
    assert [[source.kind, source.path] for source in sources(discovery)] == wanted
    assert codes(discovery) == wanted_codes


CASES = table("cases.json")
REFUSED = {
    "custom_tag.yaml": "blend_tag", "empty.yaml": "blend_empty",
    "merge_key_bomb.yaml": "blend_too_many_nodes",
    "python_object.yaml": "blend_tag", "scalar.yaml": "blend_shape", "tabs.yaml": "blend_syntax",
    "two_documents.yaml": "blend_syntax",
}  # fmt: skip
# file: number of entries, sources, problems, number of warnings
ACCOUNTED: dict[str, tuple[int, int, list[str], int]] = {
    "brace_explosion.yaml": (1, 0, ["pattern_too_many", "pattern_too_many"], 0),
    "brace_ranges.yaml": (12, 29, ["pattern_unbalanced"], 3),
    "brackets_in_path.yaml": (2, 5, [], 3),
    "count_mismatch.yaml": (3, 23, [], 2),
    "env_interpolation.yaml": (6, 2, ["unknown_variable"] * 4, 0),
    "globs.yaml": (3, 4, [], 4),
    "hydra_defaults.yaml": (1, 0, ["unknown_variable"], 1),
    "include/escape.yaml": (3, 0, ["path_outside_roots", "path_unsupported", "store_unknown"], 0),
    "include/sub/deeper.yaml": (1, 1, [], 0),
    "include/sub/en.yaml": (2, 2, [], 0),
    "include/top.yaml": (5, 2, ["nested_missing"], 3),
    "lint_before_migration.yaml": (1, 192, [], 0),
    "lint_half_migrated.yaml": (3, 3, [], 0),
    "lint_no_epoch_length.yaml": (1, 0, ["folder_missing"], 0),
    "list_forms.yaml": (4, 26, [], 1),
    "no_input_cfg.yaml": (0, 0, ["blend_empty"], 0),
    "scalar_surprises.yaml": (4, 3, ["bad_value"], 2),
    "singular_tar_key.yaml": (2, 4, ["unknown_key"] * 3, 0),
    "unknown_types.yaml": (6, 2, ["unknown_type", "unknown_type", "missing_key"], 0),
    "weights.yaml": (5, 5, [], 4),
}


def _case(name: str, **world: Any) -> Discovery:
    # Four folders up from include is the root, so that ../../../../etc means /etc.
    tree = Tree({f"/a/b/c/{other}": text for other, text in CASES.items()})
    return discover(CASES[name].encode(), f"/a/b/c/{name}", World(**world), tree)


def test_every_case_is_expected() -> None:
    assert set(REFUSED) | set(ACCOUNTED) == set(CASES)


@pytest.mark.parametrize(("name", "code"), REFUSED.items())
def test_refused_cases(name: str, code: str) -> None:
    with pytest.raises(BlendexError) as caught:
        _case(name)
    assert str(caught.value.code) == code
    assert caught.value.next_step


@pytest.mark.parametrize("name", ACCOUNTED)
def test_accounted_cases(name: str) -> None:
    started = time.perf_counter()
    discovery = _case(name)
    assert time.perf_counter() - started < 0.5
    entries, many, wanted, warnings = ACCOUNTED[name]
    assert (discovery.entries, len(sources(discovery))) == (entries, many)
    assert codes(discovery) == wanted
    assert len(discovery.warnings) == warnings
    assert all(problem.next_step for problem in (*discovery.problems, *discovery.warnings))
    assert all(problem.line or problem.pointer for problem in discovery.problems)


def test_a_failed_nested_file_names_the_path_tried() -> None:
    problem = _case("include/top.yaml").problems[0]
    assert "/a/b/c/include/missing/de.yaml" in problem.message
    assert (problem.line, problem.pointer) == (3, ("input_cfg", 1))


def test_the_environment_case_with_its_variables() -> None:
    discovery = _case("env_interpolation.yaml", env={"MANIFEST_ROOT": "/m"}, variables={"data_blend_dir": "x"})
    assert paths(discovery) == ["/data/blend/a.json", "/m/b.json", "/m/c.json", "/data/x/e.json"]


def test_unknown_types_name_the_nearest() -> None:
    problems = _case("unknown_types.yaml").problems
    assert "nemo_tarred" in problems[0].next_step
    assert "nemotron_text_converation" in problems[1].next_step
    assert [problem.line for problem in problems] == [1, 2, 4]


def test_every_type_is_accounted_for() -> None:
    for name, spec in TYPES.items():
        keys = (
            "input_cfg: [{type: txt}]"
            if spec.children and not spec.keys
            else "paths: /x.jsonl, cuts_path: /x.jsonl, shar_path: {cuts: /x.jsonl}, data_dir: /wds, "
            "manifest_filepath: /x.jsonl, tarred_audio_filepaths: /x.tar"
        )
        discovery = found(f"- {{type: {name}, {keys}}}", Tree({"/wds/a.tar": ""}))
        assert not discovery.problems, name
        assert discovery.entries == 1
        (leaf,) = discovery.datasets[0].leaves
        assert bool(leaf.sources) == leaf.needs_index


PROBLEMS = [
    ("- {type: nemo}", "missing_key", "manifest_filepath"),
    ("- {type: nemo, manifest_filepath: null}", "missing_key", "manifest_filepath"),
    ("- {type: nemo, manifest_filepath: '???'}", "missing_key", "???"),
    ("- {type: nemo, manifest_filepath: [/a.json, '???']}", "missing_key", "???"),
    ("- {type: nemo_tarred, manifest_filepath: /a.json}", "missing_key", "tarred_audio_filepaths"),
    ("- {type: nemo_tarred, input_path: /d/, manifest_filepath: /a.json}", "missing_key", "input_path"),
    ("- {type: lhotse}", "missing_key", "cuts_path or shar_path"),
    ("- {type: group}", "missing_key", "input_cfg"),
    ("- {type: group, input_cfg: '???'}", "missing_key", "input_cfg"),
    ("- {type: group, input_config: []}", "unknown_key", "input_cfg"),
    ("- {type: group, input_cfg: {type: nemo, manifest_filepath: /a.json}}", "bad_value", "input_cfg"),
    ("- {type: group, input_cfg: 5}", "bad_value", "input_cfg"),
    ("- {type: nemo, manifest_path: /a.json}", "unknown_key", "manifest_filepath"),
    ("- {type: lhotse, cut_path: /a.jsonl}", "unknown_key", "cuts_path"),
    ("- {type: nemo, manifest_filepath: 5}", "bad_value", "5"),
    ("- {type: nemo, manifest_filepath: true}", "bad_value", "True"),
    ("- {type: nemo, manifest_filepath: {a: b}}", "bad_value", "mapping"),
    ("- {type: nemo, manifest_filepath: [/a.json, 0.5]}", "bad_value", "0.5"),
    ("- {type: nemo, manifest_filepath: [[]]}", "bad_value", "empty list"),
    ("- {type: nemo, manifest_filepath: [[/a.json, /b.json]]}", "bad_value", "/b.json"),
    ("- {type: nemo, manifest_filepath: [[/a.json, 0.5, 0.6]]}", "bad_value", "0.6"),
    ("- {type: nemo, manifest_filepath: [[0.5, /a.json]]}", "bad_value", "0.5"),
    ("- {type: nemo, manifest_filepath: ''}", "bad_value", "empty"),
    (
        "- {type: nemo, manifest_filepath: 'pipe:ais get ais://b/m_{0..1}.json -'}",
        "path_unsupported",
        "command",
    ),
    ("- {type: nemo, manifest_filepath: /a.json.gz}", "path_compressed", "/a.json.gz"),
    ("- {type: nemo, manifest_filepath: /a.gz.json}", "path_compressed", "/a.gz.json"),
    ("- {type: nemo, manifest_filepath: '/a.{json,zst}'}", "path_compressed", "/a.zst"),
    ("- {type: lhotse_shar, shar_path: /none}", "folder_missing", "/none"),
    ("- {type: lhotse_shar, shar_path: /empty}", "folder_empty", "/empty"),
    ("- {type: lhotse_shar, shar_path: rel}", "relative_without_base", "rel"),
    ("- {type: lhotse_shar, shar_path: s3://b/shar}", "store_unknown", "s3://"),
    ("- {type: lhotse_shar, shar_path: {cuts: /a.txt}}", "bad_value", "/a.txt"),
    ("- {type: lhotse_shar, shar_path: {cuts: /a.jsonl.gz}}", "path_compressed", "/a.jsonl.gz"),
    ("- {type: txt_jsonl, paths: /empty}", "folder_empty", "/empty"),
    ("- {type: [a], manifest_filepath: /a.json}", "unknown_type", "no text"),
    ("- {type: '${nope}', manifest_filepath: /a.json}", "unknown_variable", "nope"),
    ("- /a.yaml", "bad_value", "plain string"),
    ("- null", "bad_value", "no mapping"),
    ("- [{type: nemo}]", "bad_value", "no mapping"),
    ("- '${nope}'", "unknown_variable", "nope"),
    ("[]", "blend_empty", "no data sources"),
    ("{}", "blend_empty", "no data sources"),
]


@pytest.mark.parametrize(("text", "code", "named"), PROBLEMS)
def test_problems(text: str, code: str, named: str) -> None:
    tree = Tree({"/empty/readme.txt": ""})
    discovery = found(text, tree)
    assert codes(discovery) == [code]
    problem = discovery.problems[0]
    assert named in problem.message + problem.next_step
    assert problem.file == "/cfg/blend.yaml"
    assert problem.next_step
    if problem.code is not Code.BLEND_EMPTY:
        (leaf,) = discovery.datasets[0].leaves
        assert problem.pointer == leaf.pointer == (0,)
        assert problem.line == 1


@pytest.mark.parametrize(("text", "code", "named"), PROBLEMS)
def test_one_bad_entry_never_hides_another(text: str, code: str, named: str) -> None:
    if not text.startswith("- "):
        return
    good = "- {type: nemo, manifest_filepath: /good.json}\n"
    discovery = found(good + text + "\n" + good.replace("good", "well"), Tree({"/empty/readme.txt": ""}))
    assert {"/good.json", "/well.json"} <= set(paths(discovery))
    assert codes(discovery) == [code]
    assert discovery.problems[0].pointer == (1,)
    assert discovery.entries == 3


def test_a_pipe_names_what_to_use_instead() -> None:
    (problem,) = found("- {type: nemo, manifest_filepath: 'pipe:ais get ais://b/m_{0..1}.json -'}").problems
    assert "ais://b/m_{0..1}.json" in problem.next_step


def test_many_alike_problems_are_counted() -> None:
    items = ", ".join(str(n) for n in range(500))
    problems = found(f"- {{type: nemo, manifest_filepath: [{items}]}}").problems
    assert len(problems) == 4
    assert "497 more" in problems[-1].message


def test_shar_forms() -> None:
    tree = Tree({f"/s/{name}": "" for name in ("b.000001.tar", "cuts.000000.jsonl", "a.jsonl.gz", "x/y.tar")})
    discovery = found("- {type: lhotse_shar, shar_path: [/s/, [/s, 0.5]]}", tree)
    assert sources(discovery) == [
        Source("wds_tar", "/s/b.000001.tar"),
        Source("jsonl", "/s/cuts.000000.jsonl"),
    ]
    assert tree.lists == ["/s"]
    assert len(discovery.warnings) == 2


def test_folders_of_tars_are_read_in_the_order_of_components() -> None:
    tree = Tree({f"/t/{name}": "" for name in ("b.tar", "a-b/x.tar", "a/z.tar", "a/b/c.tar", "a/n.txt")})
    discovery = found("- {type: txt_jsonl, paths: [/t, /u.tar, /v.jsonl, /w]}", tree)
    assert [(source.kind, source.path) for source in sources(discovery)] == [
        ("nemo_tar", "/t/a/b/c.tar"), ("nemo_tar", "/t/a/z.tar"), ("nemo_tar", "/t/a-b/x.tar"),
        ("nemo_tar", "/t/b.tar"), ("nemo_tar", "/u.tar"), ("jsonl", "/v.jsonl"), ("jsonl", "/w"),
    ]  # fmt: skip
    assert "/w has neither" in discovery.warnings[0].message


def test_the_view_leads_the_reader_and_not_the_paths() -> None:
    tree = Tree({"/lustre/b/a.yaml": "- {type: lhotse_shar, shar_path: /job/s}", "/lustre/s/c.jsonl": ""})
    discovery = found("- {type: group, input_cfg: /job/b/a.yaml}", tree, view=(("/job", "/lustre"),))
    assert paths(discovery) == ["/job/s/c.jsonl"]
    assert (tree.reads, tree.lists) == (["/lustre/b/a.yaml"], ["/lustre/s"])


def test_relative_input_cfg() -> None:
    tree = Tree({"/cfg/a.yaml": "- {type: nemo, manifest_filepath: a.json}", "/base/a.yaml": "- {type: txt}"})
    text = b"- {type: group, input_cfg: ./a.yaml}"
    assert paths(discover(text, "/cfg/blend.yaml", World(base="/base"), tree)) == ["a.json"]
    assert not paths(discover(text, "blend.yaml", World(base="/base"), tree))
    assert codes(discover(text, "blend.yaml", World(), tree)) == ["relative_without_base"]


TRAINING = """
model: {optim: {name: adamw, type: x}, tokenizer: {manifest_filepath: /not/data.json}}
data:
  train_ds:
    prompt: ${model.optim.name}
    noise_path: /noise.jsonl
    input_cfg: ${shared}
  validation_ds:
    manifest_filepath: null
    datasets:
      dev_a: {cuts_path: /a.jsonl}
      dev_b: {input_cfg: /b.yaml}
      dev_c: ${dev}
  test_ds: {shar_path: '???'}
  multi_ds:
    audio: {input_cfg: [{type: txt, paths: /t.txt}]}
dev: {manifest_filepath: /c.json, tarred_audio_filepaths: /c.tar}
shared:
- {type: nemo, manifest_filepath: /s.json}
"""


def test_a_training_config() -> None:
    tree = Tree({"/b.yaml": "- {type: nemo, manifest_filepath: /b.json}"})
    discovery = found(TRAINING, tree)
    assert paths(discovery) == ["/s.json", "/a.jsonl", "/b.json", "/c.json", "/c.tar"]
    data = "data"
    assert [dataset.pointer for dataset in discovery.datasets] == [
        (data, "train_ds", "input_cfg", 0), (data, "validation_ds", "datasets", "dev_a"),
        (data, "validation_ds", "datasets", "dev_b", "input_cfg", 0),
        (data, "validation_ds", "datasets", "dev_c"),
        (data, "test_ds"), (data, "multi_ds", "audio", "input_cfg", 0),
    ]  # fmt: skip
    assert [dataset.type for dataset in discovery.datasets] == [
        "nemo",
        "lhotse",
        "nemo",
        "nemo_tarred",
        "lhotse_shar",
        "txt",
    ]
    assert codes(discovery) == ["missing_key"]


def test_classic_keys_follow_trainings_order() -> None:
    text = "train_ds: {input_cfg: [{type: txt}], cuts_path: /c.jsonl}\n"
    text += "validation_ds: {cuts_path: /v.jsonl, manifest_filepath: /m.json}"
    discovery = found(text)
    assert paths(discovery) == ["/v.jsonl"]
    assert [
        "cuts_path is ignored" in w.message or "manifest_filepath is ignored" in w.message for w in discovery.warnings
    ] == [True, True]


def test_names_are_unique_and_safe() -> None:
    text = """
- {type: txt, name: "a b/../c"}
- {type: txt, corpus: a-b-..-c}
- {type: txt, tags: {corpus: "é"}}
- {type: txt, name: 5}
- {type: txt}
"""
    assert [dataset.name for dataset in found(text).datasets] == [
        "a-b-..-c",
        "a-b-..-c-2",
        "txt-2",
        "txt-3",
        "txt-4",
    ]


def test_weights_and_lines() -> None:
    discovery = found(
        "w: 2\ninput_cfg:\n- type: nemo\n  manifest_filepath: /a.json\n  weight: ${w}\n- type: txt\n  weight: x\n"
    )
    leaves = [leaf for dataset in discovery.datasets for leaf in dataset.leaves]
    assert [(leaf.weight, leaf.line) for leaf in leaves] == [(2.0, 3), (None, 6)]
    assert discovery.warnings[0].line == 7


@pytest.mark.parametrize("key", ["indexed: true", "indexes_root: /x", "index_pack: p", "index_pack_root: /p"])
def test_own_index_settings_are_told(key: str) -> None:
    discovery = found(f"- {{type: group, {key}, input_cfg: [{{type: nemo, manifest_filepath: /a.json, {key}}}]}}")
    assert [warning.pointer for warning in discovery.warnings] == [(0,), (0, "input_cfg", 0)]
    assert all(key.split(":", maxsplit=1)[0] in warning.message for warning in discovery.warnings)


CYCLES = [
    {"/cfg/a.yaml": "- {type: group, input_cfg: a.yaml}"},
    {
        "/cfg/a.yaml": "- {type: group, input_cfg: b.yaml}",
        "/cfg/b.yaml": "- {type: group, input_cfg: ../cfg/a.yaml}",
    },
    {"/cfg/a.yaml": "input_cfg: a.yaml"},
]


@pytest.mark.parametrize("files", CYCLES)
def test_cycles_of_files(files: dict[str, str]) -> None:
    text = "- {type: group, input_cfg: a.yaml}\n- {type: nemo, manifest_filepath: /good.json}"
    discovery = found(text, Tree(files))
    assert codes(discovery) == ["nested_cycle"]
    assert discovery.problems[0].pointer[0] == 0
    assert paths(discovery) == ["/good.json"]
    with pytest.raises(BlendexError) as caught:
        nested_files(text.encode(), "/cfg/blend.yaml", World(), Tree(files))
    assert caught.value.code is Code.NESTED_CYCLE


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("input_cfg: ${input_cfg}", "blend_recursive"),
        ("input_cfg: [{type: group, input_cfg: '${input_cfg}'}]", "nested_cycle"),
        ("a: [['${a}']]\ninput_cfg: [{type: nemo, manifest_filepath: '${a}'}]", "bad_value"),
        ("train_ds: {a: '${train_ds}', cuts_path: /a.jsonl}", None),
    ],
)
def test_cycles_of_interpolations(text: str, code: str | None) -> None:
    discovery = found(text)
    assert codes(discovery) == ([code] if code else [])


def test_nested_files_are_keyed_by_address_and_read_once() -> None:
    tree = Tree({
        "/x/cfg/a.yaml": "- {type: group, input_cfg: s/b.yaml}",
        "/x/cfg/s/b.yaml": "input_cfg: [{type: group, input_cfg: ../s/./c.yaml}]",
        "/x/cfg/s/c.yaml": "- {type: txt}",
    })  # fmt: skip
    text = b"- {type: group, input_cfg: a.yaml}\n- {type: group, input_cfg: ./a.yaml}\n"
    text += b"- {type: group, input_cfg: no.yaml}"
    world = World(view=(("/cfg", "/x/cfg"),))
    assert nested_files(text, "/cfg/blend.yaml", world, tree) == {
        path: tree.files[path].encode()
        for path in sorted(tree.files)  # type: ignore[union-attr]
    }
    assert len(tree.reads) == 4


def test_a_bad_nested_file_is_named_with_its_own_line() -> None:
    tree = Tree({"/cfg/a.yaml": "\n- !!python/name:x y"})
    (problem,) = found("- {type: group, input_cfg: a.yaml}", tree).problems
    assert (problem.code, problem.file, problem.line, problem.pointer) == (
        Code.BLEND_TAG,
        "/cfg/a.yaml",
        2,
        (0,),
    )


def test_exponential_nesting_is_refused() -> None:
    files = {f"/cfg/{n}.yaml": f"- {{type: group, input_cfg: {n + 1}.yaml}}\n" * 2 for n in range(40)}
    tree = Tree({**files, "/cfg/40.yaml": "- {type: txt}"})
    with pytest.raises(BlendexError) as caught:
        discover(files["/cfg/0.yaml"].encode(), "/cfg/x.yaml", World(), tree, Limits(nodes=10_000))
    assert caught.value.code is Code.BLEND_TOO_MANY_NODES


def test_exponential_interpolation_is_refused() -> None:
    rows = [f"a{n}: [" + ", ".join([f"{{type: group, input_cfg: '${{a{n + 1}}}'}}"] * 8) + "]" for n in range(20)]
    text = "\n".join([*rows, "a20: [{type: txt}]", "input_cfg: ${a0}"])
    started = time.perf_counter()
    with pytest.raises(BlendexError) as caught:
        discover(text.encode(), "f", World(), Tree(), Limits(nodes=100_000))
    assert time.perf_counter() - started < 5
    assert caught.value.code is Code.BLEND_TOO_MANY_NODES


def test_exponential_lists_of_paths_are_refused() -> None:
    rows = [f"a{n}: ['${{a{n + 1}}}', '${{a{n + 1}}}']" for n in range(40)]
    text = "\n".join([*rows, "a40: [[/x.json]]", "input_cfg: [{type: nemo, manifest_filepath: '${a0}'}]"])
    discovery = discover(text.encode(), "f", World(), Tree(), Limits(paths=10_000))
    assert codes(discovery) == ["pattern_too_many"]


def test_deep_nesting_of_files_is_refused() -> None:
    tree = Tree({f"/cfg/{n}.yaml": f"- {{type: group, input_cfg: {n + 1}.yaml}}" for n in range(500)})
    discovery = found("- {type: group, input_cfg: 0.yaml}", tree)
    assert codes(discovery) == ["blend_too_deep"]


def test_the_paths_of_a_blend_are_limited_together() -> None:
    text = "- {type: nemo, manifest_filepath: '/a{0..9}.json'}\n" * 3
    discovery = discover(text.encode(), "f", World(), Tree(), Limits(paths=25))
    assert codes(discovery) == ["pattern_too_many"]
    assert discovery.problems[0].pointer == (2,)


def test_a_problem_as_json() -> None:
    problem = Problem(Code.BAD_VALUE, "m", "f", 3, ("a", 0), "n")
    assert problem.as_dict() == {
        "code": "bad_value", "message": "m", "file": "f", "line": 3, "pointer": ["a", 0], "next_step": "n",
    }  # fmt: skip


_LEAVES = st.sampled_from([
    "{type: nemo, manifest_filepath: /N.json}",
    "{type: nemo_tarred, manifest_filepath: '/N_{0..1}.json', tarred_audio_filepaths: '/N_{0..1}.tar'}",
    "{type: lhotse, cuts_path: /N.jsonl}",
    "{type: txt, paths: /N.txt}",
    "{type: bogus, manifest_filepath: /N.json}",
    "{type: nemo}",
    "plain text",
    "{type: nemo, manifest_filepath: '${nope}'}",
    "{type: nemo, manifest_filepath: '/N{0..1'}",
    "{type: group, input_cfg: missing.yaml}",
    "{type: share_gpt, manifest_filepath: /N.jsonl}",
    "{type: share_gpt, tar_lookup_mode: collection, manifest_filepath: /N.jsonl, tarred_audio_filepaths: /N.tar,"
    " tar_routing_filepath: N.sgroute}",
    "{type: share_gpt, tar_lookup_mode: collection, manifest_filepath: /N.jsonl}",
    "{type: share_gpt_webdataset, data_dir: /w}",
    "{type: share_gpt_webdataset, data_dir: /none, wds_sample_index_version: 2}",
    "{type: s2s_as_conversation, cuts_path: /N.jsonl}",
    "{type: s2s_as_conversation}",
    "{type: materialized_sft_messages, paths: /N.jsonl}",
])  # fmt: skip
_BLENDS = st.recursive(_LEAVES, lambda inner: st.lists(inner, min_size=1, max_size=3), max_leaves=12)


class _Maker:
    """Writes a nested list of leaves as groups, wrappers or files, and counts its leaves."""

    def __init__(self) -> None:
        self.leaves = 0
        self.files: dict[str, str | bytes] = {}

    def entry(self, shape: Any) -> str:
        if isinstance(shape, str):
            self.leaves += 1
            return shape.replace("N", f"d{self.leaves}")
        inner = "[" + ", ".join(self.entry(part) for part in shape) + "]"
        if len(shape) == 1:
            return f"{{type: group, input_cfg: {inner}}}"
        if len(shape) == 2:
            return f"{{input_cfg: {inner}}}"
        name = f"f{len(self.files)}.yaml"
        self.files[f"/cfg/{name}"] = inner
        return f"{{type: group, input_cfg: {name}}}"


@settings(max_examples=150, deadline=None)
@given(st.lists(_BLENDS, min_size=1, max_size=4))
def test_no_entry_is_ever_lost(shapes: list[Any]) -> None:
    maker = _Maker()
    text = "[" + ", ".join(maker.entry(shape) for shape in shapes) + "]"
    discovery = found(text, Tree({**maker.files, "/w/a.tar": ""}))
    leaves = [leaf for dataset in discovery.datasets for leaf in dataset.leaves]
    assert discovery.entries == len(leaves) == maker.leaves
    assert len({leaf.pointer for leaf in leaves}) == len(leaves)
    troubled = {problem.pointer for problem in discovery.problems}
    assert troubled <= {leaf.pointer for leaf in leaves}
    for leaf in leaves:
        accounted = bool(leaf.sources) or not leaf.needs_index
        assert accounted != (leaf.pointer in troubled) or (leaf.type == "share_gpt" and not leaf.derived)


def test_ten_thousand_entries_in_time() -> None:
    row = "- type: nemo_tarred\n  manifest_filepath: /d/m__OP_0..3_CL_.json\n"
    row += "  tarred_audio_filepaths: /d/a__OP_0..3_CL_.tar\n  weight: 0.5\n"
    started = time.process_time()
    discovery = found(row * 10_000)
    assert time.process_time() - started < 8
    assert discovery.entries == 10_000
