"""Keys: what two mirrors must have in common."""

from __future__ import annotations

import pytest

from blendex.mirrors.keys import KeyMaker

ONE = ("jsonl", "/a", "jsonl/1", "full", "11")
TWO = ("nemo_tar", "/b", "nemo_tar/1", "structure", "22")


def key(*rows: tuple[str, str, str, str, str]) -> KeyMaker:
    maker = KeyMaker()
    for row in rows:
        maker.add(*row)
    return maker


def test_a_key_never_changes_between_versions() -> None:
    # Written down once: a different value here orphans every published mirror.
    assert key(ONE, TWO).key() == "0b18f429f678f639dc3d978badffe7557cdeabf701752dff37515b56dbaedc89"


@pytest.mark.parametrize("field", range(5))
def test_every_field_enters(field: int) -> None:
    other = list(ONE)
    other[field] += "x"
    assert key(tuple(other), TWO).key() != key(ONE, TWO).key()  # type: ignore[arg-type]


def test_the_source_set_knows_no_content() -> None:
    assert key(("jsonl", "/a", "r", "s", "33")).source_set == key(ONE).source_set


def test_fields_do_not_run_into_each_other() -> None:
    assert key(("jsonl", "/ab", "c", "d", "e")).key() != key(("jsonl", "/a", "bc", "d", "e")).key()


def test_packs_and_packed_datasets_enter_in_any_order() -> None:
    maker = key(ONE)
    assert maker.key(["a", "b"]) == maker.key(["b", "a"])
    assert len({maker.key(), maker.key(["a"]), maker.key([], ["a"]), maker.key(["a"], ["a"])}) == 4


@pytest.mark.parametrize("rows", [(TWO, ONE), (ONE, ONE)])
def test_sources_come_sorted_and_once(rows: tuple[tuple[str, str, str, str, str], ...]) -> None:
    with pytest.raises(ValueError, match="sorted"):
        key(*rows)
