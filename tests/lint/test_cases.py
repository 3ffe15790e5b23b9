"""Shapes of blends that people write, and files that they get wrong: what is found, and no fatal that is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from blendex.errors import BlendexError
from tests.blend.fakes import table
from tests.lint.ground import fatals, rules, run

SHAPES = json.loads((Path(__file__).parent / "data" / "shapes.json").read_text())
CASES = table("cases.json")
SHAR = ("en_a", "en_b", "de_a", "a", "b")
FILES = {
    **{f"/d/shar/{name}/cuts.000000.jsonl": "" for name in SHAR},
    "/d/tts/en/cuts.000000.jsonl": "",
    "/d/z/shar/cuts.000000.jsonl": "",
    "/data/set1/shar/cuts.000000.jsonl": "",
    "/blends/english.yaml": "- {type: nemo, manifest_filepath: /d/en.json}\n",
    "/blends/asr.yaml": "- {type: nemo, manifest_filepath: /d/asr.json}\n",
}
# A text pair in iterable training; one manifest for many tars without a pack (twice); a pipe. All others have none.
FATAL = {"B04": ["IDX016"], "B09": ["IDX019"], "B17": ["IDX019"], "B25": ["IDX012"]}
# What each shape has to be told, besides what every config without the settings of resuming is told.
TOLD = {
    "B01": {"IDX109"}, "B08": {"IDX015"}, "B12": {"IDX109"}, "B14": {"IDX109"}, "B15": {"IDX109"}, "B16": {"IDX109"},
    "B21": {"IDX113"}, "B22": {"IDX109"}, "B23": {"IDX114"},
}  # fmt: skip
SAID = {
    "B01": "tarred_audio_filepaths",
    "B14": "manifest_filepath", "B15": "tarred_audio_filepaths", "B22": "MANIFEST_ROOT",
    "B25": "ais://speech/audio_{0..127}.tar",
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_have_no_false_fatal(name: str) -> None:
    _, report = run(SHAPES[name], files=FILES)
    assert fatals(report) == FATAL.get(name, []), [item.message for item in report.findings]
    assert TOLD.get(name, set()) <= set(rules(report))
    if name in SAID:
        assert any(SAID[name] in item.message + item.fix for item in report.findings)


def test_a_whole_resumable_block_lacks_one_thing() -> None:
    """The block of upstream's documents mixes tarred and plain audio, which upstream's code refuses unless told."""
    _, report = run(SHAPES["B07"], files=FILES)
    assert {item.rule for item in report.blockers} == {"IDX056", "IDX107"}


@pytest.mark.parametrize(("upstream", "severity"), [("main", "error"), ("2.0.0a7", "fatal")])
def test_gzipped_cuts_in_it_are_one_finding(upstream: str, severity: str) -> None:
    _, report = run(SHAPES["B07"].replace("/d/b/cuts.jsonl", "/d/b/cuts.jsonl.gz"), upstream=upstream)
    assert [str(item.severity) for item in report.findings if item.rule == "IDX015"] == [severity]


def test_the_right_key_makes_it_clean() -> None:
    _, report = run(SHAPES["B01"].replace("tarred_audio_filepath:", "tarred_audio_filepaths:"))
    assert report.findings == ()
    assert report.sources == 1284


CASE_RULES = {
    "brace_explosion.yaml": {"IDX109"},
    "brace_ranges.yaml": {"IDX109"},
    "brackets_in_path.yaml": {"IDX022"},
    "count_mismatch.yaml": {"IDX020"},
    "env_interpolation.yaml": {"IDX109"},
    "globs.yaml": {"IDX114"},
    "hydra_defaults.yaml": {"IDX109", "IDX111"},
    "lint_before_migration.yaml": {
        "IDX001", "IDX002", "IDX005", "IDX006", "IDX007", "IDX009", "IDX044", "IDX105",
    },
    "lint_half_migrated.yaml": {"IDX001", "IDX039", "IDX040"},
    "lint_no_epoch_length.yaml": {"IDX105", "IDX106"},
    "scalar_surprises.yaml": {"IDX109", "IDX110"},
    "singular_tar_key.yaml": {"IDX109"},
    "unknown_types.yaml": {"IDX017", "IDX109"},
    "weights.yaml": {"IDX053", "IDX110"},
    "list_forms.yaml": set(),
    "include/top.yaml": {"IDX109"},
    "include/escape.yaml": {"IDX109"},
}  # fmt: skip
REFUSED = {
    "custom_tag.yaml": "blend_tag", "empty.yaml": "blend_empty", "merge_key_bomb.yaml": "blend_too_many_nodes",
    "python_object.yaml": "blend_tag", "scalar.yaml": "blend_shape", "tabs.yaml": "blend_syntax",
    "two_documents.yaml": "blend_syntax",
}  # fmt: skip
CASE_FATAL = {"count_mismatch.yaml": ["IDX020"] * 2, "unknown_types.yaml": ["IDX017"] * 2}


@pytest.mark.parametrize("name", CASE_RULES)
def test_cases(name: str) -> None:
    folder = "/cfg/" + name.rpartition("/")[0]
    files = {
        f"{folder}/sub/en.yaml": CASES["include/sub/en.yaml"],
        f"{folder}/sub/deeper.yaml": CASES["include/sub/deeper.yaml"],
    }
    _, report = run(CASES[name], files=FILES | files | {"/d/shar/cuts.000000.jsonl": ""})
    assert CASE_RULES[name] <= set(rules(report)), rules(report)
    known = [rule for rule in fatals(report) if rule not in ("IDX016", "IDX019")]
    assert known == CASE_FATAL.get(name, [])


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_config_is_refused_with_a_reason(name: str) -> None:
    with pytest.raises(BlendexError) as caught:
        run(CASES[name])
    assert caught.value.code == REFUSED[name]


def test_every_case_is_looked_at() -> None:
    inside = {"include/sub/deeper.yaml", "include/sub/en.yaml"}
    assert set(CASES) == set(CASE_RULES) | set(REFUSED) | inside | {"no_input_cfg.yaml"}
    _, report = run(CASES["no_input_cfg.yaml"])
    assert rules(report) == ["IDX109"], "no data sources is not a success"


def test_a_line_and_a_column_through_nested_files_and_interpolation() -> None:
    text = "root: /b\ndata:\n  train_ds:\n    input_cfg: ${root}/outer.yaml\n"
    files = {
        "/b/outer.yaml": "input_cfg:\n- type: group\n  input_cfg: inner/deep.yaml\n",
        "/b/inner/deep.yaml": "# a comment\n- {type: nemo, manifest_filepath: /d/a.json}\n-   type: nemo\n"
        "    manifest_filepath: \"pipe:cat /d/b.json\"\n",
    }  # fmt: skip
    _, report = run(text, files=files)
    found = next(item for item in report.findings if item.rule == "IDX012")
    assert (found.file, found.line, found.column) == ("/b/inner/deep.yaml", 4, 5)
    assert found.field == "data.train_ds.input_cfg.input_cfg[0].input_cfg[1].manifest_filepath"
