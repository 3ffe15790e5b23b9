"""Patches touch what they name: comments, order, anchors and quotes stay, and a second patch has nothing to do."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from blendex.blend.load import parse
from blendex.blend.world import World
from blendex.errors import BlendexError
from blendex.lint.migrate import migrate
from blendex.lint.patching import SECTIONS, SHARED, Patched, patch
from blendex.lint.rule import RULES
from tests.lint.ground import Disk, run

PATCHED_FIELDS = {
    "indexed", "use_stateful_dataloader", "force_map_dataset", "force_iterable_dataset", "shard_seed", "seed",
    "concurrent_bucketing", "force_finite", "max_open_streams", "index_pack_max_open_files", "type",
}  # fmt: skip


def patched(text: str, **options: Any) -> tuple[str, Patched]:
    context, report = run(text, **options)
    result = patch(context, report.findings)
    return result.texts.get(context.walk.posted, text), result


def comments(text: str) -> list[str]:
    """What the scanner of ruamel calls comments, in order."""
    return re.findall(r"#c\d+ [a-z ]*", text)


KEPT = """\
# c1 a config
defaults_like: &seeds {seed: "7", 'quoted': 0x10}   # c2 beside
data:   # c3 data
  train_ds:
    # c4 above the seed
    shard_seed:   randomized   # c5 spaced

    force_finite: yes  # c6 a bool of another spelling
    input_cfg:
      # c7 the first
      - type: nemo   # c8 type
        manifest_filepath: '/d/a.json'
        tags: {k: "v"}   # c9

      # c10 the second
      - {type: nemo, manifest_filepath: "/d/b.json"}  # c11
    # c12 after the list
    use_bucketing: true
  validation_ds:   # c13
    datasets: {dev: {input_cfg: [{type: nemo, manifest_filepath: /d/v.json}]}}
# c14 the end
"""


def test_only_named_lines_change() -> None:
    new, result = patched(KEPT)
    assert result.refused == {}
    before, after = KEPT.splitlines(), new.splitlines()
    gone = [line for line in before if line not in after]
    assert gone == [
        "    shard_seed:   randomized   # c5 spaced",
        "    force_finite: yes  # c6 a bool of another spelling",
    ]
    assert [line for line in after if line not in before] == [
        "    shard_seed:   42   # c5 spaced",
        "    force_finite: false  # c6 a bool of another spelling",
        "    indexed: true",
        "    use_stateful_dataloader: true",
        "    seed: 42",
        "    concurrent_bucketing: false",
    ]
    assert [line for line in before if line in after] == [line for line in after if line in before], "order"


@pytest.mark.parametrize(
    ("text", "new"),
    [
        ("train_ds: {seed: 1, input_cfg: []}", "train_ds: {seed: 1, input_cfg: [], K}"),
        ("train_ds: {'input_cfg': [], seed: 1 }", "train_ds: {'input_cfg': [], seed: 1, K }"),
        ("train_ds:\n    seed: 1", "train_ds:\n    seed: 1\n    K"),
        ("train_ds:\r\n  seed: 1\r\n  input_cfg: []\r\n", "train_ds:\r\n  seed: 1\r\n  K\r\n  input_cfg: []\r\n"),
        (
            "train_ds:\n  seed: 1 # why\n  input_cfg:\n  - {}\n",
            "train_ds:\n  seed: 1 # why\n  K\n  input_cfg:\n  - {}\n",
        ),
        ("train_ds:\n  input_cfg:\n  - {}\n", "train_ds:\n  K\n  input_cfg:\n  - {}\n"),
        ("train_ds:\n  text: |\n    a\n    b\n  seed: 1\n", "train_ds:\n  text: |\n    a\n    b\n  seed: 1\n  K\n"),
        ("train_ds:\n  seed: 1\n  text: |\n    a\n", "train_ds:\n  seed: 1\n  K\n  text: |\n    a\n"),
        ('train_ds:\n  "text": "a\n    b"\n', 'train_ds:\n  K\n  "text": "a\n    b"\n'),
        ("train_ds: &t\n  seed: 1\n", "train_ds: &t\n  seed: 1\n  K\n"),
        ("train_ds:\n  seed:\n", "train_ds:\n  seed:\n  K\n"),
        ("x: &x {a: 1}\ntrain_ds:\n  <<: *x\n", "x: &x {a: 1}\ntrain_ds:\n  K\n  <<: *x\n"),
    ],
)
def test_where_a_new_field_goes(text: str, new: str) -> None:
    context, report = run(text)
    own = [item for item in report.findings if item.rule == "IDX001"]
    result = patch(context, own)
    assert result.refused == {}
    assert result.texts[context.walk.posted] == new.replace("K", "indexed: true")


@pytest.mark.parametrize(
    ("text", "new"),
    [
        ("train_ds:\n  indexed:\n", "train_ds:\n  indexed: true\n"),
        ("train_ds:\n  indexed: # c\n", "train_ds:\n  indexed: true # c\n"),
        ("train_ds: {indexed: 'no'}", "train_ds: {indexed: true}"),
        ("train_ds: {indexed: &a no}", "train_ds: {indexed: &a true}"),
        ("o: &off off\ntrain_ds: {indexed: *off, x: *off}", "o: &off off\ntrain_ds: {indexed: true, x: *off}"),
        ("o: off\ntrain_ds: {indexed: '${o}'}", "o: off\ntrain_ds: {indexed: true}"),
        ("b: &b {indexed: no}\ntrain_ds: {<<: *b}", "b: &b {indexed: no}\ntrain_ds: {indexed: true, <<: *b}"),
        (
            "b: &b {indexed: no}\ntrain_ds:\n  <<: *b\n  seed: 1",
            "b: &b {indexed: no}\ntrain_ds:\n  <<: *b\n  seed: 1\n  indexed: true",
        ),
    ],
)
def test_how_a_field_is_replaced(text: str, new: str) -> None:
    context, report = run(text)
    result = patch(context, [item for item in report.findings if item.rule == "IDX001"])
    assert result.refused == {}
    assert result.texts[context.walk.posted] == new


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("train_ds: &t {indexed: no, a: []}\nvalidation_ds: {<<: *t}\n", SHARED),
        ("b: &b {indexed: no}\ntrain_ds: *b\n", SHARED),
        ("b: {indexed: no}\ntrain_ds: ${b}\nvalidation_ds: ${b}\n", SECTIONS),
        ("o: {indexed: &a no}\np: *a\ntrain_ds: ${o}\n", SHARED),
    ],
)
def test_a_patch_that_would_reach_further_is_left_out_and_said(text: str, why: str) -> None:
    context, report = run(text)
    result = patch(context, [item for item in report.findings if item.rule == "IDX001"])
    assert result.texts == {}
    assert list(result.refused.values()) == [why]
    assert report.blockers, "it still blocks"


def test_one_shared_place_does_not_keep_the_others_from_their_patch() -> None:
    text = "train_ds: {indexed: &a no, use_stateful_dataloader: false}\nother: *a\n"
    new, result = patched(text)
    assert "indexed: &a no" in new
    assert "use_stateful_dataloader: true" in new
    assert list(result.refused.values()) == [SHARED]


def test_items_of_a_list_are_written_out_in_their_place() -> None:
    text = (
        "train_ds:\n  input_cfg:\n  - type: txt_jsonl\n    paths:\n      # before\n      - /d/a_{0..1}.jsonl  # a\n"
        "      - '/d/b.jsonl'\n"
    )
    context, report = run(text)
    result = patch(context, [item for item in report.findings if item.rule == "IDX021"])
    assert result.texts[context.walk.posted] == text.replace(
        "/d/a_{0..1}.jsonl  # a", '"/d/a_0.jsonl"\n      - "/d/a_1.jsonl"  # a'
    )
    variable = "d: /d\n" + text.replace("/d/a_{", "${d}/a_{")
    context, report = run(variable)
    assert [item.edits for item in report.findings if item.rule == "IDX021"] == [()], "a variable is not written out"


def test_a_blend_in_another_file_is_patched_there() -> None:
    text = "train_ds:\n  seed: 1\n  input_cfg: b.yaml\n"
    blend = "# a\n- {type: nemotron_text_conversation, paths: /d/a.jsonl}  # b\n"
    context, report = run(text, files={"/cfg/b.yaml": blend})
    result = patch(context, report.findings)
    by_name = {document.name: new for document, new in result.texts.items()}
    assert by_name["/cfg/b.yaml"] == blend.replace("nemotron_text_conversation", '"nemotron_text_converation"')
    assert "input_cfg: b.yaml" in by_name["/cfg/train.yaml"]


# Random configs

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.floats(allow_nan=True),
    st.sampled_from(
        ["trng", "randomized", "a b", "true", "${x}", "${data_blend_dir}/a", "é", "a: b", "#no", "???", "/tmp/i", "~/i"]
    ),
)  # fmt: skip
TYPES = ["nemo", "lhotse", "txt", "nemotron_text_conversation", "txt_jsonl", "lhotse_shar", "odd"]
MANIFESTS = ["/d/a.json", "pipe:x", "/d/m_{0..3}.json", "/d/a.json.gz", ["/d/a_{0..1}.json"]]
TEXTS = ["/d/p.jsonl", ["/d/p_{0..1}.jsonl", "/d/q.jsonl"], [["/d/p_{0..1}.jsonl", 0.5]]]
entries = st.fixed_dictionaries(
    {"type": st.sampled_from(TYPES)},
    optional={
        "manifest_filepath": st.sampled_from(MANIFESTS), "cuts_path": st.just("/d/c.jsonl"),
        "paths": st.sampled_from(TEXTS),
        "weight": scalars, "indexed": scalars, "indexes_root": scalars, "slice_length": scalars,
        "max_open_streams": scalars,
    },
)  # fmt: skip
sections = st.fixed_dictionaries(
    {"input_cfg": st.lists(entries, max_size=3)},
    optional=dict.fromkeys(sorted(PATCHED_FIELDS - {"type"}), scalars) | {"use_bucketing": st.booleans()},
)
configs = st.fixed_dictionaries(
    {"train_ds": sections},
    optional={
        "validation_ds": sections,
        "x": scalars,
        "trainer": st.dictionaries(st.sampled_from(["devices", "max_steps", "num_nodes"]), scalars, max_size=3),
        "exp_manager": st.dictionaries(st.sampled_from(["resume_if_exists", "max_time_per_run"]), scalars, max_size=2),
    },
)


def commented(text: str) -> str:
    """A numbered comment after each line that can take one, and one above it."""
    made = []
    for number, line in enumerate(text.splitlines()):
        plain = line.strip() and not re.search(r"[\"'|>]", line)
        made.append(f"{line}  #c{number} beside" if plain else line)
    return "#c999 first\n" + "\n".join(made) + "\n"


def differences(old: Any, new: Any, path: tuple[Any, ...] = ()) -> set[tuple[Any, ...]]:
    if isinstance(old, dict) and isinstance(new, dict):
        return {item for key in {**old, **new} for item in differences(old.get(key), new.get(key), (*path, key))}
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return {item for index in range(len(old)) for item in differences(old[index], new[index], (*path, index))}
    return set() if repr(old) == repr(new) else {path}


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(configs, st.booleans())
def test_patching_changes_named_fields_keeps_comments_and_is_idempotent(config: dict[str, Any], flow: bool) -> None:
    style: dict[str, Any] = {"default_flow_style": True, "width": 10_000} if flow else {"default_flow_style": False}
    text = commented(yaml.safe_dump(config, sort_keys=False, allow_unicode=True, **style))
    try:
        old = parse(text.encode(), "t")
    except BlendexError:
        assume(False)
    migration = migrate(text.encode(), "/cfg/t.yaml", World(base="/w"), Disk())
    new = migration.texts.get("/cfg/t.yaml", text)
    assert comments(new) == comments(text)
    changed = differences(old, parse(new.encode(), "t"))
    named = {item.field for item in migration.changes}
    for path in changed:
        assert any(str(path[-1]) == name.rpartition(".")[2] for name in named) or "paths" in path, (path, named)
        assert path[-1] in PATCHED_FIELDS or "paths" in path
    done = {(change.rule, change.field) for change in migration.changes}
    left = [item for item in migration.after.findings if item.edits and (item.rule, item.field) in done]
    assert not left, "what was patched is mended"
    again = migrate(new.encode(), "/cfg/t.yaml", World(base="/w"), Disk())
    assert again.texts.get("/cfg/t.yaml", new) == new, "a second patch has nothing to do"


FRAGMENTS = """\
train_ds:|validation_ds:|data:|model:|trainer:|exp_manager:|input_cfg:|datasets:|multi_config: true|- type: nemo
- {type: group, input_cfg: /etc/passwd}|- {type: group, input_cfg: ../../../../etc/shadow}|indexed: true
manifest_filepath: /d/{0..3}.json|indexes_root: /|<<: *a|&a|*a|[|]|{|}|  |: |${data.train_ds}|${oc.env:HOME}/x|${.x}
input_cfg: ${oc.env:HOME}/.aws/credentials|- |'|"|#|# blendex: allow IDX001|because x|until 2020-01-01|>
!!python/object:x|é|???|shard_seed: randomized|reweight_temperature: [1]""".replace("\n", "|").split("|")
fragments = st.lists(st.sampled_from([*FRAGMENTS, "\n", "\t", "|"]), max_size=30)


class Walls(Disk):
    """A disk that notes what is asked for, and holds nothing outside of /cfg and /d."""

    def read(self, path: str, limit: int | None = None) -> bytes:
        self.reads.append(path)
        return b"- {type: nemo, manifest_filepath: /d/a.json}\n" if path.startswith("/cfg/") else super().read(path)


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.one_of(fragments.map("".join), fragments.map("\n".join), st.text(max_size=80)))
def test_random_yaml_never_crashes(text: str) -> None:
    with contextlib.suppress(BlendexError):  # refused, with a reason; anything else is a crash
        migration = migrate(text.encode("utf-8", "surrogatepass"), "/cfg/t.yaml", World(base="/w"), Walls())
        for finding in migration.report.findings:
            assert finding.rule in RULES
            assert finding.line >= 1
