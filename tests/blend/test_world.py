"""Addresses: base, view, and what nobody can read."""

from __future__ import annotations

import pytest

from blendex.blend.world import World
from blendex.errors import BlendexError, Code

VIEW = (("/data", "/lustre/x/data"), ("/data/fast", "/nvme"), ("/data/fast/", "/other"))


@pytest.mark.parametrize(
    ("path", "address"),
    [
        ("/data/a.jsonl", "/lustre/x/data/a.jsonl"),
        ("/data", "/lustre/x/data"),
        ("/database/a.jsonl", "/database/a.jsonl"),
        ("/data/fast/a.tar", "/nvme/a.tar"),
        ("/data/faster/a.tar", "/lustre/x/data/faster/a.tar"),
        ("/data/../etc/passwd", "/etc/passwd"),
        ("/x/../data/a", "/lustre/x/data/a"),
        ("a/b.jsonl", "/lustre/x/data/blend/a/b.jsonl"),
        ("../b.jsonl", "/lustre/x/data/b.jsonl"),
        ("./~/b.jsonl", "/lustre/x/data/blend/~/b.jsonl"),
        ("//srv//x.tar", "/srv/x.tar"),
        ("/../../x", "/x"),
    ],
)
def test_addresses(path: str, address: str) -> None:
    assert World(base="/data/blend", view=VIEW).address(path) == address


def test_a_view_of_the_root() -> None:
    assert World(view=(("/", "/mnt/all"),)).address("/a") == "/mnt/all/a"
    assert World(view=(("/mnt", "/"),)).address("/mnt/a") == "/a"
    assert World(view=(("/mnt", "/"),)).address("/mnt") == "/"


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("a.jsonl", Code.RELATIVE_WITHOUT_BASE),
        ("pipe:cat /a", Code.PATH_UNSUPPORTED),
        ("s3://b/k", Code.STORE_UNKNOWN),
        ("ais://b/k", Code.STORE_UNKNOWN),
        ("s3:///k", Code.PATH_UNSUPPORTED),
        ("file:///a", Code.PATH_UNSUPPORTED),
        ("HTTP://h/a", Code.STORE_UNKNOWN),
        ("http:///a", Code.PATH_UNSUPPORTED),
        ("ftp://h/a", Code.PATH_UNSUPPORTED),
        ("/a\0b", Code.BAD_VALUE),
        ("", Code.BAD_VALUE),
    ],
)
def test_what_has_no_address(path: str, code: Code) -> None:
    with pytest.raises(BlendexError) as caught:
        World().address(path)
    assert caught.value.code is code
    assert caught.value.next_step


STORES = (("ais", "speech*", "lab"), ("s3", "cold", "lab"), ("s3", "*", "amazon"))


@pytest.mark.parametrize(
    ("path", "address"),
    [
        ("ais://speech/a/m.jsonl", "lab:ais://speech/a/m.jsonl"),
        ("s3://cold/k", "lab:s3://cold/k"),
        ("s3://warm/k", "amazon:s3://warm/k"),
        ("aws://warm/k", "amazon:s3://warm/k"),
        ("s3://warm/a b#1?x=%20//c/./d", "amazon:s3://warm/a b#1?x=%20//c/./d"),
        ("s3://warm/Übung/日.tar", "amazon:s3://warm/Übung/日.tar"),
        ("/data/x/m.jsonl", "amazon:s3://warm/set/x/m.jsonl"),
        ("/cold/m.jsonl", "amazon:s3://cold/m.jsonl"),
        ("s3://copied/a/m.jsonl", "/lustre/copied/a/m.jsonl"),
        ("s3://copied2/m.jsonl", "amazon:s3://copied2/m.jsonl"),
    ],
)
def test_urls_go_to_the_first_profile_that_serves_their_bucket(path: str, address: str) -> None:
    view = (("/data", "s3://warm/set/"), ("/cold", "amazon:s3://cold"), ("s3://copied", "/lustre/copied"))
    assert World(view=view, stores=STORES).address(path) == address


@pytest.mark.parametrize("real", ["ais://other/x", "amazon:ais://speech/x", "nobody:s3://warm", "s3://"])
def test_a_view_reaches_no_bucket_that_no_profile_serves(real: str) -> None:
    with pytest.raises(BlendexError) as caught:
        World(view=(("/data", real),), stores=STORES).address("/data/m")
    assert caught.value.code is Code.STORE_UNKNOWN
    assert "BLENDEX_STORES" in caught.value.next_step


def test_there_and_back() -> None:
    world = World("/b", {"data_blend_dir": "/d"}, {"HOME": "/h"}, VIEW, STORES)
    assert World.from_dict(world.as_dict()) == world
    assert World.from_dict({}) == World()
