"""Shares: how much of what training draws comes from each entry."""

from __future__ import annotations

import math

import pytest

from blendex.blend.discover import discover
from blendex.blend.shares import normalised
from blendex.blend.world import World

from .fakes import Tree


def shares(text: str) -> list[tuple[str, float | None, list[float | None]]]:
    found = discover(text.encode(), "/b.yaml", World(), Tree({}))
    return [(item.type, item.share, [leaf.share for leaf in item.leaves]) for item in found.datasets]


NESTED = """\
- {type: nemo, manifest_filepath: /a.json, weight: 3}
- type: group
  weight: 1
  input_cfg:
  - {type: nemo, manifest_filepath: /b.json, weight: 10}
  - type: group
    weight: 30
    input_cfg:
    - {type: nemo, manifest_filepath: /c.json}
    - {type: nemo, manifest_filepath: /d.json}
"""


def test_weights_are_normalised_list_by_list_and_multiplied_on_the_way_down() -> None:
    (plain, group) = shares(NESTED)
    assert plain == ("nemo", 0.75, [0.75])
    assert group[:2] == ("group", 0.25)
    # Without weights a list is drawn from evenly.
    assert group[2] == pytest.approx([0.25 * 0.25, 0.25 * 0.75 / 2, 0.25 * 0.75 / 2])
    assert math.fsum([*plain[2], *group[2]]) == pytest.approx(1.0)  # type: ignore[list-item]


def in_section(temperature: str) -> list[tuple[str, float | None, list[float | None]]]:
    lines = "\n".join(f"    {line}" for line in NESTED.splitlines())
    return shares(f"train_ds:\n  reweight_temperature: {temperature}\n  input_cfg:\n{lines}\n")


def test_each_level_has_its_temperature() -> None:
    plain, group = in_section("[0.0, 0.5, 1.0]")
    assert plain[1] == group[1] == 0.5
    inner = 10**0.5 / (10**0.5 + 30**0.5)
    assert group[2] == pytest.approx([0.5 * inner, 0.5 * (1 - inner) / 2, 0.5 * (1 - inner) / 2])
    assert in_section("2.0")[0][1] == pytest.approx(0.9)
    # Too short a list, or no number: training ends at its start, so there is nothing to tell.
    assert in_section("[1.0]")[1][2] == [None, None, None]
    assert in_section("warm")[0][1] is None


def test_what_training_refuses_has_no_share() -> None:
    assert normalised([1.0, None]) == [None, None]
    assert normalised([0.0, 0.0]) == [None, None]
    assert normalised([0.0, 1.0]) == [0.0, 1.0]
    assert normalised([0.0, 1.0], 0.0) == [None, None]
    assert normalised([1e200, 1.0], 1e6) == [None, None]


def test_sections_and_lists_stand_for_themselves() -> None:
    both = "train_ds:\n  input_cfg: [{type: nemo, manifest_filepath: /a.json, weight: 2}]\n"
    both += "validation_ds:\n  manifest_filepath: /v.json\n"
    assert [item[1] for item in shares(both)] == [1.0, 1.0]
