"""Routes: a row finds its member by name, and whoever cannot be found is named."""

from __future__ import annotations

import struct

import pytest

from blendex.errors import BlendexError, Code
from blendex.formats.learned import ABSENT, BOOLEAN, Members, Rows
from blendex.formats.pack import SKIPPED
from blendex.formats.routes import Tar, member_name, ordinals, positions, shard_positions


def _tar(*names: str, path: str = "audio_0.tar") -> Tar:
    return Tar(path, Members([name.encode() for name in names], [True] * len(names)))


def _rows(*names: str, shards: list[int] | None = None, skipped: set[int] | None = None) -> Rows:
    return Rows([name.encode() for name in names], shards or [ABSENT] * len(names), skipped or set())


@pytest.mark.parametrize(
    ("row", "member"),
    [
        ("a.wav", "a.wav"), ("a-sub1.wav", "a.wav"), ("a-sub12", "a"), ("d/a-sub3.flac", "d/a.flac"),
        ("a-sub.wav", "a-sub.wav"), ("-sub1.wav", "-sub1.wav"), ("a-sub1-sub2.wav", "a-sub1.wav"),
        ("a-sub1.b.wav", "a-sub1.b.wav"),
    ],
)  # fmt: skip
def test_a_part_is_found_under_the_name_of_the_whole(row: str, member: str) -> None:
    assert member_name(row.encode()) == member.encode()


def test_rows_find_their_members_in_any_order() -> None:
    made = ordinals(
        "m", _rows("c.wav", "a-sub1.wav", "x", "a-sub2.wav", skipped={2}), [_tar("a.wav", "b.wav", "c.wav")], None
    )
    assert struct.unpack("<4I", made) == (2, 0, SKIPPED, 0)


def test_companions_of_a_record_have_no_place() -> None:
    tar = Tar("audio_0.tar", Members([b"a.wav", b"a.json", b"b.wav"], [True, False, True]))
    assert (tar.find(b"b.wav"), tar.find(b"a.json")) == (1, None)


def test_one_manifest_for_several_tars() -> None:
    rows = _rows("a.wav", "b.wav", "x", shards=[7, 3, ABSENT], skipped={2})
    places = shard_positions("m", rows, ["d/audio_3.tar", "d/audio_7.tar"])
    assert struct.unpack("<3I", positions(places)) == (1, 0, SKIPPED)
    tars = [_tar("b.wav"), _tar("z.wav", "a.wav")]
    assert struct.unpack("<3I", ordinals("m", rows, tars, places)) == (1, 0, SKIPPED)


@pytest.mark.parametrize(
    ("shards", "tars", "what"),
    [
        ([ABSENT], ["audio_0.tar"], "row 0 .* has no shard_id"),
        ([BOOLEAN], ["audio_0.tar"], "true or false"),
        ([5], ["audio_0.tar"], "shard_id 5"),
        ([0], ["audio.tar"], "no shard number"),
        ([0], ["audio_0.tar", "x/audio_00.tar"], "another tar has the number 0"),
    ],
)
def test_shards_that_lead_nowhere_are_refused(shards: list[int], tars: list[str], what: str) -> None:
    with pytest.raises(BlendexError, match=what) as caught:
        shard_positions("m", _rows("a.wav", shards=shards), tars)
    assert caught.value.code is Code.PACK_REFUSED
    assert caught.value.file in ("m", *tars)


@pytest.mark.parametrize(("name", "what"), [("z.wav", "begins no record of audio_0.tar"), ("", "names no audio")])
def test_rows_that_lead_nowhere_are_refused(name: str, what: str) -> None:
    with pytest.raises(BlendexError, match=f"row 1 .*{what}") as caught:
        ordinals("m", _rows("a.wav", name), [_tar("a.wav")], None)
    assert caught.value.file == "m"
    assert "z.wav" not in str(caught.value)


def test_two_records_of_one_name_are_refused() -> None:
    with pytest.raises(BlendexError, match="two records"):
        _tar("a.wav", "b.wav", "a.wav")
