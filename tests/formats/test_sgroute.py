"""Routing indexes against upstream's bytes, and the rules by which rows find their audio."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from formats_help import END, Memory, gen, member

from blendex.errors import BlendexError, Code
from blendex.formats.kinds import build
from blendex.formats.sgroute import Digests, Input, Members, Rows, identity_digest, pack, prefix_digest, spec_digest
from blendex.formats.summary import Origin

GOLDEN = json.loads((Path(__file__).parent / "data" / "derived.json").read_text())


@pytest.mark.parametrize("case", GOLDEN["sgroute"], ids=[case["case"] for case in GOLDEN["sgroute"]])
def test_upstreams_bytes(case: dict[str, Any]) -> None:
    digests = Digests(*map(bytes.fromhex, case["digests"]))
    assert hashlib.sha256(pack(case["rows"], case["tars"], digests)).hexdigest() == case["sha256"]


def test_upstreams_digests() -> None:
    digests = GOLDEN["digests"]
    for prefixes, wanted in digests["prefix_map"]:
        assert prefix_digest(prefixes).hex() == wanted
    ((paths, specs, wanted),) = digests["manifest_spec_path"]
    assert spec_digest(paths, specs).hex() == wanted


def test_the_content_digest_is_over_whole_manifests() -> None:
    rows = Rows(Members(), ["<sound>"])
    hasher = hashlib.sha256()
    for text in (b'{"conversations": []}\n\n{"conversations": []}', b'{"conversations": []}\n'):
        offsets = [0, len(text)] if text.count(b"\n") == 1 else [0, 23, len(text)]
        assert list(rows.read(Memory(text), offsets, "m")) == [[]] * (len(offsets) - 1)
        hasher.update(len(text).to_bytes(8, "little") + text)
    assert rows.content_digest() == hasher.digest()


def test_identities_hold_device_and_inode_of_local_files_only() -> None:
    local = Input(Origin("/a", 3, 5), 7, 9, "")
    remote = Input(Origin("s3://b/a", 3, 0, "etag:x"), None, None, "")
    assert local.identity() == (
        b'{"device":7,"inode":9,"mtime_ns":5,"object_identity":null,"path":"/a","size_bytes":3}'
    )
    assert remote.identity() == b'{"mtime_ns":0,"object_identity":"etag:x","path":"s3://b/a","size_bytes":3}'
    both = b"".join(len(item.identity()).to_bytes(8, "little") + item.identity() for item in (local, remote))
    assert identity_digest([local, remote]) == hashlib.sha256(both).digest()


def _members(*tars: list[str]) -> Members:
    members = Members()
    for number, names in enumerate(tars):
        data = b"".join(member(name, b"x") for name in names) + END
        summary = build("nemo_tar", Memory(data), lambda _: None)
        members.add(Memory(data), Input(Origin(f"t{number}.tar", len(data), 0), 0, 0, summary.content_hash))
    return members


def _routes(members: Members, *rows: object, marks: tuple[str, ...] = ("<sound>", "<speech>")) -> list[Any]:
    lines = [json.dumps(row).encode() + b"\n" for row in rows]
    offsets = [sum(map(len, lines[:count])) for count in range(len(lines) + 1)]
    return list(Rows(members, marks).read(Memory(b"".join(lines)), offsets, "m.jsonl"))


def _row(text: str = "<sound>", **more: object) -> dict[str, object]:
    return {"conversations": [{"from": "Human", "value": text}, {"from": "gpt", "value": "<sound>"}], **more}


def test_rows_find_their_audio() -> None:
    members = _members(["a/1.wav", "2.wav"], ["b/1.wav", "c/3.wav"])
    assert _routes(
        members,
        _row(sound="b/1.wav"),
        _row(sound="/old/disk/3.wav"),  # by its base name, which only one member has
        _row("no mark", sound="nowhere.wav"),
        _row("<sound> then <speech>", sound=["2.wav", "a/1.wav"]),
        _row("<sound>", sound="", speech=None, ori_sound="2.wav"),
        _row("<sound><speech>", sound="2.wav"),  # one file for several marks
        {"conversations": [{"from": "system", "value": "<sound>"}]},
    ) == [[(1, 0)], [(1, 1)], [], [(0, 1), (0, 0)], [(0, 1)], [(0, 1)], []]


def test_the_leftmost_placeholder_wins() -> None:
    members = _members(["1.wav", "2.wav"])
    assert _routes(members, _row("<a><ab>", sound=["1.wav", "2.wav"]), marks=("<a", "<a>", "<ab>")) == [
        [(0, 0), (0, 1)]
    ]


@pytest.mark.parametrize(
    ("row", "named"),
    [
        (_row(sound="4.wav"), "no tar of the collection has"),
        (_row(sound="x/1.wav"), "several members have"),
        (_row(), "has placeholders but none of sound"),
        (_row(sound=[["1.wav"]]), "neither a path nor a flat list"),
        (_row(sound=["1.wav", ""]), "neither a path nor a flat list"),
        (_row("<sound> <sound> <sound>", sound=["a/1.wav", "2.wav"]), "2 audio paths for 3 placeholders"),
        ({"conversations": 5}, "no list of conversations"),
        ({"conversations": [{"value": "x"}]}, "without a speaker"),
        ({"conversations": [{"from": "user", "value": 5}]}, "without text"),
        ([], "not a JSON object"),
    ],
)
def test_rows_that_lead_nowhere(row: object, named: str) -> None:
    members = _members(["a/1.wav", "2.wav"], ["b/1.wav"])
    with pytest.raises(BlendexError) as caught:
        _routes(members, _row(sound="2.wav"), row)
    assert caught.value.code is Code.ROUTE_BROKEN
    assert caught.value.message.startswith("row 1 ")
    assert named in caught.value.message
    assert caught.value.byte
    assert not any(text in caught.value.message for text in ("4.wav", "x/1.wav"))  # a row's text is nobody's business


@pytest.mark.parametrize(
    ("tars", "named"),
    [
        ([["a.wav", "a.txt"]], "shares a record"),
        ([["a.wav"], ["b.wav", "a.wav"]], "two members of the collection are called a.wav"),
    ],
)
def test_collections_that_cannot_be_routed(tars: list[list[str]], named: str) -> None:
    with pytest.raises(BlendexError, match=named):
        _members(*tars)


def test_a_tar_that_is_not_the_indexed_one() -> None:
    with pytest.raises(BlendexError) as caught:
        Members().add(Memory(gen.tar([("a.wav", b"x")])), Input(Origin("t", 1, 0), 0, 0, "0" * 64))
    assert caught.value.code is Code.SOURCE_CHANGED
