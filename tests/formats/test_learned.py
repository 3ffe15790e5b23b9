"""What is learnt beside the sidecar: names, shards, marks to skip, and oddities of rows."""

from __future__ import annotations

import json
import random

import pytest
from formats_help import END, Memory, gen, header, member, run
from hypothesis import given, settings
from hypothesis import strategies as st

from blendex.formats import learned
from blendex.formats.kinds import Summary, build
from blendex.formats.learned import ABSENT, BOOLEAN, NEGATIVE, OTHER, TEXT, MemberReader, Rows, members_of, rows_of


def _learn(kind: str, data: bytes, compat: str = "", short: random.Random | None = None) -> Summary:
    return build(kind, Memory(data, short=short), lambda _: None, compat, learn=True)


def _rows(*values: object) -> tuple[Rows, dict[str, list[int]]]:
    data = b"".join((value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n" for value in values)
    summary = _learn("jsonl", data)
    assert summary.learned is not None
    return rows_of(summary.learned), summary.facts.get("odd", {})


def test_rows() -> None:
    rows, odd = _rows(
        {"audio_filepath": "a\tb\\n.wav", "shard_id": 3},
        {"audio_filepath": "é.wav", "shard_id": "3"},
        {"text": "no audio", "shard_id": True},
        {"audio_filepath": "x", "shard_id": -1, "_skipme": "low rate"},
        {"audio_filepath": "x", "shard_id": 1.5, "custom": {"_skipme": 1}},
        {"audio_filepath": "x", "_skipme": 0, "custom": {"_skipme": ""}},
        {"audio_filepath": "x", "shard_id": None, "custom": 5},
    )
    assert rows.names == [b"a\tb\\n.wav", "é.wav".encode(), b"", b"x", b"x", b"x", b"x"]
    assert rows.shards == [3, TEXT, BOOLEAN, NEGATIVE, OTHER, ABSENT, OTHER]
    assert rows.skipped == {3, 4}
    assert odd == {"skipped_row": [2, odd["skipped_row"][1], 3]}


def test_oddities_have_their_first_place() -> None:
    good = b'{"audio_filepath": "a", "duration": 1.5}'
    rows, odd = _rows(
        good,
        b'{"duration": NaN}',
        b'{"duration": -1.0}',
        b'{"duration": "3.5"}',
        b'{"audio_filepath": "a", "duration": 1, "audio_filepath": "b"}',
        b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"x": }',
        b'{"x": "\xe9"}',
        good,
    )
    at = len(good) + 1
    assert odd["not_strict_json"] == [1, at, 1]
    assert odd["odd_duration"] == [3, at, 1]
    assert odd["repeated_key"][::2] == [1, 4]
    assert odd["too_deep"][::2] == [1, 5]
    assert odd["undecodable_row"][::2] == [2, 6]
    assert rows.names[4] == b"b"
    assert len(rows.names) == 9


@pytest.mark.parametrize("compat", ["", "upstream"])
def test_rows_are_the_records_of_the_index(compat: str) -> None:
    data = b'\n{"audio_filepath": "a"}\n \t\r\n{"audio_filepath": "b"}\n\n'
    summary = _learn("jsonl", data, compat)
    assert summary.learned is not None
    rows = rows_of(summary.learned)
    assert len(rows.names) == summary.records
    assert [name for name in rows.names if name] == [b"a", b"b"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=12), max_size=40), st.integers(0, 2**16))
def test_rows_whatever_the_pieces_in_which_they_are_read(names: list[bytes], seed: int) -> None:
    lines = [json.dumps({"audio_filepath": name.decode("latin-1")}).encode() for name in names]
    summary = _learn("jsonl", b"\n".join(lines), short=random.Random(seed))
    assert summary.learned is not None
    assert rows_of(summary.learned).names == [name.decode("latin-1").encode() for name in names]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=12), st.booleans()), max_size=40))
def test_members_come_back(members: list[tuple[bytes, bool]]) -> None:
    reader = MemberReader()
    for name, first in members:
        reader.add(name, first=first)
    packed = reader.packed()
    assert packed is not None
    back = members_of(packed)
    assert list(zip(back.names, back.first, strict=True)) == members


def test_members_of_a_tar() -> None:
    data = header(b"d/", kind=b"5") + member("d/a.wav", b"1") + member("d/a.txt", b"1") + member("b.wav", b"1") + END
    summary = _learn("nemo_tar", data)
    assert summary.learned is not None
    back = members_of(summary.learned)
    assert (back.names, back.first) == ([b"d/a.wav", b"d/a.txt", b"b.wav"], [True, False, True])
    assert sum(back.first) == summary.records


def test_learning_changes_no_byte() -> None:
    for name, data in gen.sources():
        kind = "jsonl" if name.startswith("jsonl/") else "nemo_tar"
        try:
            offsets, summary = run(kind, data)
        except Exception:
            continue
        out = bytearray()
        again = build(kind, Memory(data), out.extend, learn=True)
        assert (again.content_hash, again.findings, again.records) == (
            summary.content_hash, summary.findings, summary.records,
        )  # fmt: skip
        assert bytes(out) == b"".join(offset.to_bytes(8, "little") for offset in offsets)


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        (b'{"audio_filepath": "a"}', "nemo"),
        (b'{"id": "a", "start": 0, "duration": 1, "channel": 0, "type": "MonoCut"}', "cut"),
        (b'{"conversations": []}', "chat"),
        (b'{"text": "a"}', "other"),
        (b"[1]", "other"),
    ],
)
def test_what_a_first_row_looks_like(row: bytes, kind: str) -> None:
    for learn in (False, True):
        assert build("jsonl", Memory(b"\n" + row + b"\n{}\n"), lambda _: None, learn=learn).facts["first"] == kind


def test_too_many_records_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned, "MAX_RECORDS", 5)
    assert _learn("jsonl", b"{}\n" * 6).learned is None
    assert _learn("jsonl", b"{}\n" * 5).learned is not None


def test_a_line_that_is_too_long_costs_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned, "_MAX_LINE", 1000)
    data = (
        b'{"audio_filepath": "a"}\n{"audio_filepath": "'
        + b"b" * 2_000_000
        + b'"}\n{"audio_filepath": "c", "duration": -1}\n'
    )
    summary = _learn("jsonl", data)
    assert summary.learned is not None
    assert rows_of(summary.learned).names == [b"a", b"", b"c"]
    assert summary.facts["odd"]["odd_duration"] == [1, data.rindex(b'{"audio'), 2]


_ROWS = st.sampled_from([
    b'{"audio_filepath": "a.wav", "duration": 1.5}',
    b'{"audio_filepath": "b\\\\tc.wav", "duration": 1.5}',
    b'{"audio_filepath": "d.wav", "duration": true}',
    b'{"audio_filepath": "d.wav", "duration": -1}',
    b'{"audio_filepath": "d.wav", "duration": "1"}',
    b'{"audio_filepath": "e.wav"}',
    b'{"audio_filepath": 5, "duration": 1}',
    b'{"audio_filepath": "f.wav", "duration": 1, "shard_id": 3}',
    b'{"audio_filepath": "g.wav", "duration": 1, "_skipme": 1}',
    b'{"audio_filepath": "h.wav", "duration": 1, "custom": {"_skipme": true}}',
    b'{"audio_filepath": "i.wav", "duration": 1, "audio_filepath": "j.wav"}',
    b'{"audio_filepath": "k.wav", "duration": NaN}',
    b"", b"  ", b"[]", b"{", b'"text"', b"\xff",
])  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(_ROWS, max_size=30), st.integers(0, 2**16), st.sampled_from(["", "upstream"]))
def test_the_short_way_over_plain_rows_learns_the_same(rows: list[bytes], seed: int, compat: str) -> None:
    data = b'{"audio_filepath": "first.wav", "duration": 1}\n' + b"\n".join(rows)
    # In one piece every row goes the long way, since what a first row looks like is not known before.
    long, short = _learn("jsonl", data, compat), _learn("jsonl", data, compat, random.Random(seed))
    assert (long.learned, long.facts) == (short.learned, short.facts)
