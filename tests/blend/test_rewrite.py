"""The ready blend: stands alone, finds the same sources, keeps what its author wrote."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from blendex.blend import rewrite
from blendex.blend.discover import Pointer, Source, discover
from blendex.blend.load import parse
from blendex.blend.patch import UnsupportedError
from blendex.blend.rewrite import ready_blend
from blendex.blend.world import World
from blendex.errors import BlendexError, Code

from .fakes import Tree, paths, sources, table

ROOT = "/mirrors/k/idx"


class _Unable:
    """In place of the one that edits in place: everything goes through nodes."""

    def __init__(self, *_: object) -> None:
        raise UnsupportedError


def _ready(text: str, tree: Tree | None = None, exclude: Any = (), **world: Any) -> str:
    return ready_blend(
        text.encode(), "/cfg/blend.yaml", World(**world), tree or Tree(), indexes_root=ROOT, exclude=exclude
    )


def _loaded(text: str) -> Any:
    tree = parse(text.encode(), "ready")
    assert OmegaConf.to_container(OmegaConf.create(text)) == tree
    return tree


SPEECH = """\
# Real speech. Paths are relative to ${data_blend_dir}.
- type: nemo_tarred   # two shards
  manifest_filepath: ${data_blend_dir}/nemo/manifest__OP_0..1_CL_.json
  tarred_audio_filepaths: ${data_blend_dir}/nemo/audio__OP_0..1_CL_.tar
  weight: 1e-1
  tags: {corpus: tarred, lang: no}
# Everything else.
- type: group
  weight: 0.9
  input_cfg:
  # first
  - type: nemo
    manifest_filepath: ${data_blend_dir}/m.jsonl
    weight: 0777
    tags: {root: "${data_blend_dir}", own: "${..weight}"}
"""


def test_a_blend_keeps_its_look() -> None:
    assert (
        _ready(SPEECH, variables={"data_blend_dir": "/d"})
        == """\
# Real speech. Paths are relative to ${data_blend_dir}.
- type: nemo_tarred   # two shards
  indexed: true
  indexes_root: "/mirrors/k/idx"
  manifest_filepath: "/d/nemo/manifest__OP_0..1_CL_.json"
  tarred_audio_filepaths: "/d/nemo/audio__OP_0..1_CL_.tar"
  weight: 1e-1
  tags: {corpus: tarred, lang: no}
# Everything else.
- type: group
  indexed: true
  indexes_root: "/mirrors/k/idx"
  weight: 0.9
  input_cfg:
  # first
  - type: nemo
    manifest_filepath: "/d/m.jsonl"
    weight: 0777
    tags: {root: "/d", own: "${..weight}"}
"""
    )


def test_own_settings_are_replaced_and_inner_ones_go() -> None:
    text = """\
data:
  train_ds:
    indexed: false
    indexes_root: /old
    index_pack_root: /packs   # where packs were
    # the list
    input_cfg:
    - type: group
      index_pack: p.idxpack
      indexes_root: null
      input_cfg:
      - {type: nemo, manifest_filepath: /a.json, indexes_root: /x, indexed: no, index_pack: q}
  validation_ds:
    indexes_root: /old
    datasets:
      dev: {cuts_path: /v.jsonl, indexed: false}
"""
    ready = _ready(text)
    assert _loaded(ready) == {
        "data": {
            "train_ds": {
                "indexed": True,
                "indexes_root": ROOT,
                "input_cfg": [
                    {
                        "type": "group",
                        "indexed": True,
                        "indexes_root": ROOT,
                        "input_cfg": [{"type": "nemo", "manifest_filepath": "/a.json"}],
                    }
                ],
            },
            "validation_ds": {
                "indexes_root": ROOT,
                "datasets": {"dev": {"cuts_path": "/v.jsonl", "indexed": True, "indexes_root": ROOT}},
            },
        }
    }
    assert "# the list" in ready


def test_nested_files_are_written_out() -> None:
    tree = Tree({
        "/cfg/sub/a.yaml": "# head of a\n- type: nemo  # eol\n  manifest_filepath: ${dir}/a.json\n"
        "  note: ${dir}\n"
        "  w: ${number}\n  l: ${names}\n- {type: group, input_cfg: b.yaml}\n",
        "/cfg/sub/b.yaml": "dir: /b\nnumber: 0.5\n"
        "input_cfg:\n- {type: nemo, manifest_filepath: '${dir}/b.json'}\n",
    })  # fmt: skip
    text = "dir: /posted\nnumber: 3\nnames: [x, '${dir}']\ninput_cfg: [{type: group, input_cfg: sub/a.yaml}]\n"
    ready = _loaded(_ready(text, tree))
    (group,) = ready["input_cfg"]
    first, second = group["input_cfg"]
    assert first == {
        "type": "nemo",
        "manifest_filepath": "/posted/a.json",
        "note": "/posted",
        "w": 3,
        "l": ["x", "/posted"],
    }
    assert second["input_cfg"]["input_cfg"] == [{"type": "nemo", "manifest_filepath": "/b/b.json"}]


def test_aliases_and_merges_are_written_out() -> None:
    text = """\
base: &base {type: nemo, weight: 1, manifest_filepath: /base.json}
shared: &list
- {<<: *base, manifest_filepath: /a.json}
- {<<: *base, indexes_root: /x}
input_cfg:
- {type: group, input_cfg: *list}
- {type: group, input_cfg: *list}
- *base
"""
    ready = _ready(text, exclude=[("input_cfg", 0, "input_cfg", 1)])
    tree = _loaded(ready)
    assert [len(entry.get("input_cfg", "x")) for entry in tree["input_cfg"]] == [1, 2, 1]
    assert "*" not in ready
    assert tree["input_cfg"][2]["manifest_filepath"] == "/base.json"
    again = discover(ready.encode(), "f", World(), Tree())
    assert sorted(paths(again)) == ["/a.json", "/base.json"]


def test_what_becomes_empty_goes() -> None:
    text = """\
train_ds:
  input_cfg:
  - {type: group, input_cfg: [{type: group, input_cfg: [{type: nemo, manifest_filepath: /a.json}]}]}
  - {type: nemo, manifest_filepath: /b.json}
validation_ds:
  datasets:
    x: {cuts_path: /x.jsonl}
    y: {input_cfg: [{type: nemo, manifest_filepath: /y.json}]}
    z: {cuts_path: /z.jsonl}
"""
    inner = ("input_cfg", 0, "input_cfg", 0)
    exclude = [
        ("train_ds", "input_cfg", 0, *inner[:2], *inner[2:]),
        ("validation_ds", "datasets", "x"),
        ("validation_ds", "datasets", "y", "input_cfg", 0),
    ]
    tree = _loaded(_ready(text, exclude=exclude))
    assert [entry["manifest_filepath"] for entry in tree["train_ds"]["input_cfg"]] == ["/b.json"]
    assert list(tree["validation_ds"]["datasets"]) == ["z"]


def test_comments_about_the_next_entry_outlive_an_excluded_one() -> None:
    text = """\
# head
- type: nemo
  manifest_filepath: /a.json   # eol a
# about b
- type: nemo
  manifest_filepath: /b.json  # eol b
# about c
- type: nemo
  manifest_filepath: /c.json
# end
"""
    ready = _ready(text, exclude=[(1,)])
    assert [line.strip() for line in ready.splitlines() if "#" in line] == [
        "# head", "manifest_filepath: /a.json  # eol a", "# about c", "# end",
    ]  # fmt: skip
    assert "# end" in _ready(text, exclude=[(2,)])


def test_a_definition_brings_no_excluded_data_back() -> None:
    text = """\
shared: &list
- {type: nemo, manifest_filepath: /a.json}
- {type: nemo, manifest_filepath: /b.json}
again: [{type: nemo, manifest_filepath: /c.json}]
input_cfg: [{type: group, input_cfg: *list}, {type: group, input_cfg: "${again}"}]
"""
    assert len(discover(text.encode(), "f", World(), Tree()).datasets) == 2
    assert "shared" in _ready(text)
    ready = _ready(text, exclude=[("input_cfg", 0, "input_cfg", 1)])
    assert list(_loaded(ready)) == ["input_cfg"]
    assert paths(discover(ready.encode(), "f", World(), Tree())) == ["/a.json", "/c.json"]


def test_nothing_left_is_an_error() -> None:
    with pytest.raises(BlendexError) as caught:
        _ready("- {type: nemo, manifest_filepath: /a.json}", exclude=[(0,)])
    assert caught.value.code is Code.BLEND_EMPTY


def test_a_problem_must_be_excluded_first() -> None:
    text = "- {type: nemo, manifest_filepath: '${nope}'}\n- {type: bogus}\n"
    text += "- {type: nemo, manifest_filepath: /a.json}\n"
    with pytest.raises(BlendexError) as caught:
        _ready(text, exclude=[(0,)])
    assert caught.value.code is Code.UNKNOWN_TYPE
    with pytest.raises(BlendexError) as caught:
        _ready(text, exclude=[(1,)])
    assert caught.value.code is Code.UNKNOWN_VARIABLE
    assert [entry["type"] for entry in _loaded(_ready(text, exclude=[(0,), (1,)]))] == ["nemo"]


def test_resolved_values_are_escaped() -> None:
    ready = _ready("- {type: nemo, manifest_filepath: '${v}/a.json'}", variables={"v": "/x\\${y}: no"})
    assert OmegaConf.create(ready)[0].manifest_filepath == "/x\\${y}: no/a.json"


def test_groups_and_datasets_can_be_excluded() -> None:
    text = """
- type: group
  input_cfg: [{type: bogus}, {type: nemo, manifest_filepath: /a.json}]
- {type: nemo, manifest_filepath: /b.json}
"""
    assert [entry["type"] for entry in _loaded(_ready(text, exclude=[[0]]))] == ["nemo"]


@pytest.mark.parametrize("pointer", [(1,), (0, "x"), ("0",)])
def test_excluding_nothing_is_an_error(pointer: Any) -> None:
    with pytest.raises(BlendexError) as caught:
        _ready("- {type: nemo, manifest_filepath: /a.json}", exclude=[pointer])
    assert caught.value.code is Code.BAD_REQUEST


def test_a_submitted_variable_wins_over_the_file_in_the_ready_blend_too() -> None:
    entry = "{type: nemo, manifest_filepath: '${root}/a.json', note: '${root}', own: '${n}'}"
    text = f"root: /file\ninput_cfg: [{entry}]\nn: 1"
    (ready,) = _loaded(_ready(text, variables={"root": "/job"}))["input_cfg"]
    assert (ready["manifest_filepath"], ready["note"], ready["own"]) == ("/job/a.json", "/job", "${n}")


def test_interpolated_mappings_are_written_out() -> None:
    tree = Tree({"/cfg/a.yaml": "t: {'a ${b}': '${n}', 2: [x]}\nn: 0.5\ninput_cfg:\n- {type: txt, tags: '${t}'}"})
    ready = _loaded(_ready("- {type: group, input_cfg: a.yaml}", tree))
    assert ready[0]["input_cfg"]["input_cfg"][0]["tags"] == {"a ${b}": 0.5, 2: ["x"]}


def test_folders_are_not_asked_for() -> None:
    tree = Tree()
    assert "shar_path: /none" in _ready("- {type: lhotse_shar, shar_path: /none}", tree)
    assert not tree.lists


@pytest.mark.parametrize(
    "text",
    [
        "manifest_filepath: /a.json\n",
        "{type: nemo, manifest_filepath: /a.json}\n",
        "type: nemo\nmanifest_filepath: /a.json\n",
        "cuts_path: ${x}\nx: /a.jsonl",
        "# only comments above\ninput_cfg: [{manifest_filepath: /a.json, type: nemo}] # after\n",
        "- input_cfg:\n  - type: nemo\n    manifest_filepath: /a.json\n    # the end\n",
        "- type: nemo\n  manifest_filepath:\n  - /a.json\n  - - /b.json\n    - 0.5\n",
        "no: &x 1\nyes: *x\ninput_cfg: [{type: nemo, manifest_filepath: /a.json, n: , o: ~, t: 2001-01-01, s: 'on'}]",
        "- type: nemo\n  manifest_filepath: >-\n    /a.json\n  text: |\n    a\n     b\n",
        "%YAML 1.1\n---\n- {type: nemo, manifest_filepath: /a.json, x: no}\n",
        "\ufeff- {type: nemo, manifest_filepath: /é.json}\n",
    ],
)
def test_shapes(text: str) -> None:
    before = discover(text.encode(), "f", World(), Tree())
    ready = _ready(text)
    _loaded(ready)
    after = discover(ready.encode(), "f", World(), Tree())
    assert sources(after) == sources(before) != []
    assert ROOT in ready


GOLDEN = [case for case in table("discovery.json") if "data_blend_dir" not in case]


@pytest.mark.parametrize("case", GOLDEN, ids=[case["name"] for case in GOLDEN])
def test_upstreams_configs_survive(case: dict[str, Any]) -> None:
    files = {f"/cfg/{name}": text for name, text in case["files"].items()}
    _round_trip(files["/cfg/blend.yaml"], Tree(files), World(base="/corpora"), exclude_problems=True)


def _round_trip(text: str, tree: Tree, world: World, *, exclude_problems: bool, more: Any = ()) -> None:
    before = discover(text.encode(), "/cfg/blend.yaml", world, tree)
    exclude: set[Pointer] = set(more)
    if exclude_problems:
        exclude |= {problem.pointer for problem in before.problems}
    kept = [leaf for d in before.datasets for leaf in d.leaves if leaf.pointer not in exclude]
    wanted: list[Source] = [
        replace(source, path=f"{ROOT}/{source.path}") if source.kind == "sharegpt_route" else source
        for leaf in kept
        for source in leaf.sources
    ]
    call = {"indexes_root": ROOT, "exclude": exclude}
    if not kept:
        with pytest.raises(BlendexError):
            ready_blend(text.encode(), "/cfg/blend.yaml", world, tree, **call)  # type: ignore[arg-type]
        return
    ready = ready_blend(text.encode(), "/cfg/blend.yaml", world, tree, **call)  # type: ignore[arg-type]
    loaded = _loaded(ready)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rewrite, "Patcher", _Unable)
        slow = ready_blend(text.encode(), "/cfg/blend.yaml", world, tree, **call)  # type: ignore[arg-type]
    assert parse(slow.encode(), "slow") == loaded  # edits in place and edits of nodes mean the same
    again = discover(ready.encode(), "f", World(base=world.base), Tree())
    assert [s for d in again.datasets for leaf in d.leaves for s in leaf.sources] == wanted
    assert not again.problems
    for dataset in again.datasets:
        entry: Any = parse(ready.encode(), "f")
        for key in dataset.pointer:
            entry = entry[key]
        assert (entry["indexed"], entry["indexes_root"]) == (True, ROOT)


_VALUES = st.sampled_from(
    ["/pN.json", "'/pN_{0..1}.json'", "'${root}/pN.json'", "'${data_blend_dir}/pN.json'",
     "[/pN.json, [/qN.json, 0.5]]",
     "[['${root}/pN.json'], ['${oc.env:E,/e}/pN.json']]", "/p__OP_0..1_CL_N.json", "'${some}'", "rel/pN.json",
     r"'/p\${x}N.json'", "\"/é N.json\""]
)  # fmt: skip
_EXTRAS = st.sampled_from(
    ["", ", weight: 1e-3", ", indexes_root: /old", ", tags: {a: no, b: '${root}', c: '${data_blend_dir}'}",
     ", indexed: false, index_pack: x", ", <<: *base", ", n: ~"]
)  # fmt: skip
_ENTRIES = st.builds(
    lambda value, extra, key: f"{{type: {key[0]}, {key[1]}: {value}{extra}}}",
    _VALUES,
    _EXTRAS,
    st.sampled_from(
        [
            ("nemo", "manifest_filepath"),
            ("lhotse", "cuts_path"),
            ("txt_jsonl", "paths"),
            ("txt", "paths"),
            ("'${kind}'", "manifest_filepath"),
        ]
    ),
)
_SHAPES = st.recursive(_ENTRIES, lambda inner: st.lists(inner, min_size=1, max_size=3), max_leaves=8)


class _Maker:
    def __init__(self) -> None:
        self.leaves = 0
        self.files: dict[str, str | bytes] = {}

    def block(self, shapes: list[Any], indent: str) -> str:
        rows = ""
        for shape in shapes:
            rows += f"{indent}# before\n{indent}- {self.entry(shape, indent + '  ')}\n"
        return rows

    def entry(self, shape: Any, indent: str) -> str:
        if isinstance(shape, str):
            self.leaves += 1
            return shape.replace("N", str(self.leaves))
        if len(shape) == 2:
            name = f"/cfg/f{len(self.files)}.yaml"
            self.files[name] = ""
            self.files[name] = HEAD.replace("/root", "/nested") + "input_cfg:\n" + self.block(shape, "  ")
            return f"{{type: group, input_cfg: {name}}}  # nested"
        return f"type: group\n{indent}input_cfg:\n{self.block(shape, indent)}{indent}weight: 1  # tail"


HEAD = "root: /root\nkind: nemo\nbase: &base {note: no, x: 1}\nsome: ['/s0.json', ['/s1.json', 2]]\n"


@settings(max_examples=120, deadline=None)
@given(st.lists(_SHAPES, min_size=1, max_size=3), st.data())
def test_the_ready_blend_finds_the_same(shapes: list[Any], data: st.DataObject) -> None:
    maker = _Maker()
    text = HEAD + "train_ds:\n  input_cfg:\n" + maker.block(shapes, "  ") + "# end\n"
    world = World(base="/base", variables={"data_blend_dir": "/blends"}, env={})
    tree = Tree(maker.files)
    found = discover(text.encode(), "/cfg/blend.yaml", world, tree)
    assert not found.problems
    pointers = [leaf.pointer for dataset in found.datasets for leaf in dataset.leaves]
    more = data.draw(st.sets(st.sampled_from(pointers), max_size=2))
    _round_trip(text, tree, world, exclude_problems=False, more=more)


def test_a_route_always_lies_in_the_mirror() -> None:
    text = """\
- type: share_gpt
  manifest_filepath: /c.jsonl
  tarred_audio_filepaths: /a.tar
  tar_lookup_mode: collection
  tar_routing_filepath: {}
"""
    for path in ("all.sgroute", "/elsewhere/all.sgroute", "'${oc.env:ROUTES}/all.sgroute'"):
        loaded = _loaded(_ready(text.format(path), env={"ROUTES": "/elsewhere"}))
        folder = "" if path == "all.sgroute" else "/elsewhere"
        assert loaded[0]["tar_routing_filepath"] == f"{ROOT}{folder}/all.sgroute"
    paired = _loaded(_ready(text.format("all.sgroute").replace("collection", "paired")))
    assert paired[0]["tar_routing_filepath"] == "all.sgroute"


def test_values_that_named_sets_take_over_are_settled_where_they_stand() -> None:
    text = """\
validation_ds:
  manifest_filepath: ${oc.env:DATA}/m.json
  tarred_audio_filepaths: null
  datasets:
    a: {batch_size: 1}
"""
    loaded = _loaded(_ready(text, env={"DATA": "/d"}))["validation_ds"]
    assert loaded["manifest_filepath"] == "/d/m.json"
    assert loaded["datasets"]["a"] == {"indexed": True, "indexes_root": ROOT, "batch_size": 1}


IN_PLACE = """\
# head
data_blend_dir: /d   # kept
train_ds:
  indexes_root: /old # replaced
  index_pack_root: /packs
  input_cfg:
    - {input_cfg: [{type: nemo, manifest_filepath: '${data_blend_dir}/"x"', index_pack: p}]}
    # before
    - weight: 2   # no type
      type: group
      input_cfg: inner.yaml   # its own file
      # after
    - index_pack: q
      manifest_filepath: "${oc.env:HERE}/m.json"
      tags: {"é": 'a b', lines: |
          one
            two
        }
      type: nemo
# tail
"""
INNER = """\
---
# of the file
-   type: nemo
    manifest_filepath:   >-
      /b
      /c.json

    weight: 1 # w

-   type: group
    input_cfg:
      deeper.yaml
# at its end
"""


def test_edits_in_place_leave_everything_else_as_it_was() -> None:
    text = IN_PLACE.replace("lines: |\n          one\n            two\n        }", "lines: [1,\n  2]}")
    inner = INNER.replace("input_cfg:\n      deeper.yaml", "input_cfg: [{type: txt}]")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rewrite, "_Writer", None)
        ready = _ready(text, Tree({"/cfg/inner.yaml": inner}), env={"HERE": "/é"})
    assert (
        ready
        == """\
# head
data_blend_dir: /d   # kept
train_ds:
  indexes_root: "/mirrors/k/idx" # replaced
  input_cfg:
    - {input_cfg: [{type: nemo, indexed: true, indexes_root: "/mirrors/k/idx", manifest_filepath: "/d/\\"x\\""}]}
    # before
    - weight: 2   # no type
      type: group
      indexed: true
      indexes_root: "/mirrors/k/idx"
      input_cfg:   # its own file
        # of the file
        -   type: nemo
            manifest_filepath:   >-
              /b
              /c.json

            weight: 1 # w

        -   type: group
            input_cfg: [{type: txt}]
        # at its end
      # after
    - manifest_filepath: "/é/m.json"
      tags: {"é": 'a b', lines: [1,
  2]}
      indexed: true
      indexes_root: "/mirrors/k/idx"
      type: nemo
# tail
"""
    )
    _loaded(ready)


@pytest.mark.parametrize(
    "text",
    [
        "a: &x [{type: nemo, manifest_filepath: /a.json}]\ninput_cfg: *x\n",
        "b: &b {weight: 1}\ninput_cfg:\n- {<<: *b, type: nemo, manifest_filepath: /a.json}\n",
        "- {type: group, input_cfg: inner.yaml}\n",
        "shared: [{type: nemo, manifest_filepath: /a.json}]\ntrain_ds: {input_cfg: '${shared}'}\n",
        "- type: group\n  input_cfg:\n    inner.yaml\n",
        "- type: group\n  input_cfg: tabs.yaml\n",
        "- type: nemo\n  index_pack: p # why\n  manifest_filepath: /a.json\n",
        "- type: nemo\r\n  manifest_filepath: /a.json\r\n",
        "%YAML 1.1\n---\n- type: nemo\n  manifest_filepath: /a.json\n",
        "- ? type\n  : nemo\n  manifest_filepath: /a.json\n",
    ],
)
def test_what_cannot_be_edited_in_place_is_written_anew(text: str) -> None:
    files = {
        "/cfg/inner.yaml": "- {type: nemo, manifest_filepath: /a.json}",
        "/cfg/tabs.yaml": "- {type: nemo,\tmanifest_filepath: /a.json}",
    }
    loaded = _loaded(_ready(text, Tree(files)))
    assert paths(discover(str(loaded).replace("True", "true").encode(), "f", World(), Tree())) == ["/a.json"]


def test_ten_thousand_entries_are_written_in_time() -> None:
    row = "  - type: nemo_tarred\n    manifest_filepath: ${data_blend_dir}/m__OP_0..3_CL_.json\n"
    row += "    tarred_audio_filepaths: /d/a__OP_0..3_CL_.tar\n    weight: 0.5\n    tags: {lang: en}\n"
    files = {f"/cfg/{n}.yaml": f"- type: group\n  input_cfg: {n + 1}.yaml\n" for n in range(9)}
    tree = Tree({**files, "/cfg/9.yaml": "input_cfg:\n" + row * 10_000})
    started = time.process_time()
    ready = _ready(files["/cfg/0.yaml"], tree, variables={"data_blend_dir": "/x"})
    assert time.process_time() - started < 10
    assert ready.count('manifest_filepath: "/x/m__OP_0..3_CL_.json"') == 10_000
    assert ready.count("indexed: true") == 1
