"""Rows held against members, and sidecars that lie beside their sources."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from blendex.formats.crosscheck import CROSS_FINDINGS, compare, judge_sidecar, tar_numbers
from blendex.formats.learned import ABSENT, BOOLEAN, NEGATIVE, TEXT, Members, Rows


def _rows(*names: str | bytes, shards: list[int] | None = None, skipped: tuple[int, ...] = ()) -> Rows:
    raw = [name if isinstance(name, bytes) else name.encode() for name in names]
    return Rows(raw, shards or [ABSENT] * len(raw), set(skipped))


def _tar(*names: str | bytes, hidden: tuple[int, ...] = ()) -> Members:
    raw = [name if isinstance(name, bytes) else name.encode() for name in names]
    return Members(raw, [number not in hidden for number in range(len(raw))])


def _found(rows: Rows, *tars: Members, numbers: list[int] | None = None) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    about, each = compare(rows, tars, numbers)

    def plain(notes: Any) -> dict[str, Any]:
        return {noted.name: (noted.count, noted.places) for noted in notes.all()}

    assert all(noted.name in CROSS_FINDINGS for notes in (about, *each) for noted in notes.all())
    return plain(about), [plain(notes) for notes in each]


BOTH = (2, [0, 1])


@pytest.mark.parametrize(
    ("rows", "tar", "manifest", "members"),
    [
        (_rows("a", "b"), _tar("a", "b"), {}, {}),
        # M17: another order is no fault
        (_rows("c", "a", "b"), _tar("a", "b", "c"), {"order_differs": (1, [])}, {}),
        # T07: only ./ is different
        (_rows("a.w", "b.w"), _tar("./a.w", "./b.w"), {"member_name_differs": BOTH}, {"member_without_row": BOTH}),
        # M18: two members of one name
        (_rows("s_0", "s_1"), _tar("s_0", "s_1", "s_1"), {"member_ambiguous": (1, [1])}, {}),
        # M22: a neighbour of the same stem hides the second
        (_rows("1/a", "2/a", "x"), _tar("1/a", "2/a", "x", hidden=(1,)), {"member_unreachable": (1, [1])}, {}),
        # T31: the tar holds Latin-1, the row composed or decomposed UTF-8
        (
            _rows("café", "cafe\u0301 2"), _tar("café".encode("latin-1"), "café 2"),
            {"member_name_differs": BOTH}, {"member_without_row": BOTH},
        ),
        (_rows("a", "zz"), _tar("a", "README"), {"member_missing": (1, [1])}, {"member_without_row": (1, [1])}),
        (_rows("a-sub1.wav", "a-sub2.wav"), _tar("a.wav"), {"sub_row": (2, [0, 1])}, {}),
        (_rows("a", "", "zz", skipped=(2,)), _tar("a"), {"row_without_audio": (1, [1])}, {}),
    ],
)  # fmt: skip
def test_a_pair(rows: Rows, tar: Members, manifest: dict[str, Any], members: dict[str, Any]) -> None:
    about, (each,) = _found(rows, tar)
    assert about == manifest
    assert each == members


def test_rows_of_an_aggregate_manifest_lead_to_their_tar() -> None:
    """M19: text, boolean, out of range, negative and absent are no numbers of a tar."""
    rows = _rows(*"abcdefg", shards=[0, 1, TEXT, BOOLEAN, 9, NEGATIVE, ABSENT])
    about, _ = _found(rows, _tar("a"), _tar("b"), numbers=[0, 1])
    assert about == {"bad_shard_id": (5, [2, 3, 4, 5, 6])}
    about, each = _found(_rows("a", "b", shards=[1, 0]), _tar("a"), _tar("b"), numbers=[0, 1])
    assert about == {"member_missing": (2, [0, 1])}
    assert each == [{"member_without_row": (1, [0])}] * 2


def test_without_numbers_rows_are_looked_for_everywhere() -> None:
    about, _ = _found(_rows("a", "b", "c"), _tar("a"), _tar("b"))
    assert about == {"tars_without_numbers": (1, []), "member_missing": (1, [2])}


@pytest.mark.parametrize(
    ("paths", "numbers"),
    [
        (["/d/audio_0.tar", "/d/audio_1.tar"], [0, 1]),
        (["audio_12_x.tar"], [12]),
        (["/a/audio_0.tar", "/b/audio_0.tar"], None),
        (["shard-0.tar", "shard-1.tar"], None),
        (["audio_" + "9" * 5000 + ".tar"], [999999999999999999]),
    ],
)
def test_the_numbers_of_tars(paths: list[str], numbers: list[int] | None) -> None:
    assert tar_numbers(paths) == numbers


def test_many_places_are_counted_and_a_few_told() -> None:
    about, _ = _found(_rows(*(f"x{n}" for n in range(1000))), _tar("a"))
    count, places = about["member_missing"]
    assert (count, len(places)) == (1000, 20)


def _idx(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}Q", *values)


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (_idx(0, 9, 18, 27), None),
        (struct.pack(">4Q", 0, 9, 18, 27), "big-endian"),
        (_idx(0, 18, 9, 27), "record 1 begins at 18 and ends at 9"),
        (_idx(0, 9, 18), "ends at 18, not at 27"),
        (b"\x93NUMPY\x01\x00" + bytes(56), "NumPy"),
        (_idx(0, 9), "made for a source of 9 bytes"),
        (_idx(0, 9, 40, 27), "record 2 begins at 40"),
        (_idx(0, 9, 18, 27)[:12], "no whole numbers"),
        (b"", "0 bytes"),
        (b"NEMOTAR\0" + bytes(16), "abandoned"),
        (_idx(0, 5, 18, 27), "record 1 begins at byte 9, not at 5"),
        (_idx(0, 9, 27), "record 2 begins at byte 18, not at 27"),
        (_idx(0, 9, 18, 27, 27), "4 records instead of 3"),
    ],
)
def test_sidecars_that_lie_beside(data: bytes, named: str | None) -> None:
    reason = judge_sidecar(data, _idx(0, 9, 18, 27))
    assert reason is None if named is None else named in (reason or "")
