"""Blends of very many entries: what is asked once for many of them is asked rightly for each."""

from __future__ import annotations

import pytest

from blendex.blend.discover import discover
from blendex.blend.load import Limits
from blendex.blend.model import Source
from blendex.blend.world import World
from blendex.lint.ground import Sidecar
from blendex.lint.lookups import Lookups
from blendex.lint.paths import PathSpec, ordinary
from blendex.lint.scopes import PROPAGATED, once
from blendex.storage.interface import Stat
from tests.blend.fakes import Tree
from tests.lint.ground import Disk, run

GROUPS = """\
other: {type: nemo, manifest_filepath: /d/o.json, index_pack: /p/o.idxpack}
train_ds:
  indexed: true
  slice_length: 5
  input_cfg:
  - {type: nemo, manifest_filepath: /d/a.json, indexes_root: /own}
  - {type: nemo, manifest_filepath: /d/b.json}
  - {type: nemo, manifest_filepath: /d/c.json}
  - type: group
    indexes_root: /group
    input_cfg:
    - {type: nemo, manifest_filepath: /d/d.json}
    - {type: nemo, manifest_filepath: /d/e.json, index_pack: /p/e.idxpack, slice_length: null}
    - {type: nemo, manifest_filepath: /d/f.json}
validation_ds: {manifest_filepath: /d/v.json, indexes_root: /v}
"""
BLEND = "- {type: nemo, manifest_filepath: /d/a.json}\n- {type: nemo, manifest_filepath: /d/b.json, indexes_root: /i}\n"


@pytest.mark.parametrize("text", [GROUPS, BLEND])
@pytest.mark.parametrize("key", sorted(PROPAGATED))
def test_what_many_inherit_is_told_as_if_each_were_asked(text: str, key: str) -> None:
    context, _ = run(text)
    asked = list(once(entry.get(key) for entry in context.entries))
    told = list(context.settings(key))
    assert list(once(setting for setting, _ in told)) == asked
    first = {setting.pointer: entry for entry in reversed(context.entries) for setting in (entry.get(key),)}
    firsts = {setting.pointer: entry for setting, entry in reversed(told)}
    assert firsts == first


def test_what_one_list_inherits_is_asked_once() -> None:
    context, _ = run(GROUPS)
    roots = [(entry.sources[0].path, setting.value) for setting, entry in context.settings("indexes_root")]
    assert roots == [("/d/a.json", "/own"), ("/d/b.json", None), ("/d/d.json", "/group"), ("/d/v.json", "/v"),
                     ("/d/o.json", None)]  # fmt: skip


@pytest.mark.parametrize("text", ["/d/a.json", "a_1.jsonl", "/d/é b/a-1.x=2.tar", "./a@b.json"])
def test_most_paths_are_ordinary(text: str) -> None:
    context, _ = run(BLEND)
    assert ordinary(_spec(text))
    assert context.odd_paths == []


@pytest.mark.parametrize(
    "text",
    ["pipe:cat a.json", "s3://b/a.json", "/d/a_{0..3}.json", "/d/a__OP_0..3_CL_.json", "/d/(old)/a.json",
     "/d/<x>/a.json", "/d/[1]/a.json", "/d/*.json", "~/a.json", "/d/a?.json", "/d/a.json.gz", "/d/a.tar.zst",
     "/d/a.tgz", "/d/a.txt", "/d/folder", "/d/a.json\n", ""],
)  # fmt: skip
def test_what_a_rule_may_speak_of_is_odd(text: str) -> None:
    assert not ordinary(_spec(text))


def test_folders_and_lists_that_lose_something_are_odd() -> None:
    assert not ordinary(_spec("/d/a.tar", form="folder"))
    assert not ordinary(_spec("/d/a.json", lost=1))


def _spec(text: str, form: str = "jsonl", lost: int = 0) -> PathSpec:
    context, _ = run(BLEND)
    return PathSpec("paths", text, context.entries[0].spot, "paths", False, False, lost, form)


class _Watched(Disk):
    """Notes what is looked at."""

    def __init__(self) -> None:
        super().__init__({f"/i/{number}.idx": b"\0" * 16 for number in range(400) if number % 7})
        self.looks: list[str] = []

    def sidecar(self, address: str, source: Stat | None) -> Sidecar:
        self.looks.append(address)
        return super().sidecar(address, source)


def test_the_sidecars_of_a_patched_config_are_not_looked_at_again() -> None:
    disk, pairs = _Watched(), [(f"/i/{number}.idx", Source("jsonl", f"/d/{number}.json")) for number in range(400)]
    asked = Lookups(World(), disk)
    for _ in range(2):
        asked.prepare(pairs)
    states = [asked.sidecar(*pair) for pair in pairs]
    assert sum(state is not None and state.missing for state in states) == 58
    assert len(disk.looks) == 400
    asked.prepare([*pairs[:100], *((f"/j/{number}.idx", source) for number, (_, source) in enumerate(pairs[:100]))])
    assert len(disk.looks) == 500, "new ones are"


def test_a_null_is_told_after_entries_of_the_same_keys() -> None:
    text = "- {type: nemo, manifest_filepath: /a.json}\n- {type: nemo, manifest_filepath: null}\n" * 2
    found = discover(text.encode(), "/b.yaml", World(), Tree({}), Limits())
    assert [(item.code, item.pointer) for item in found.problems] == [("missing_key", (1,)), ("missing_key", (3,))]


def test_keys_that_older_releases_read_are_told_of_each_entry() -> None:
    text = "- {type: nemo, manifest_filepath: /a.json, audio_locator: x}\n" * 2
    found = discover(text.encode(), "/b.yaml", World(), Tree({}), Limits())
    assert [item.pointer for item in found.warnings] == [(0,), (1,)]


def test_datasets_that_are_named_alike_get_the_first_free_number() -> None:
    names = ["a", "a-3", "a", "a", "a-3", "a"]
    text = "".join(f"- {{type: nemo, manifest_filepath: /d/a.json, name: {name}}}\n" for name in names)
    found = discover(text.encode(), "/b.yaml", World(), Tree({}), Limits())
    assert [dataset.name for dataset in found.datasets] == ["a", "a-3", "a-2", "a-4", "a-3-2", "a-5"]
