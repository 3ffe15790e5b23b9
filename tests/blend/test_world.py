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
        ("s3://b/k", Code.PATH_UNSUPPORTED),
        ("ais://b/k", Code.PATH_UNSUPPORTED),
        ("file:///a", Code.PATH_UNSUPPORTED),
        ("HTTP://h/a", Code.PATH_UNSUPPORTED),
        ("/a\0b", Code.BAD_VALUE),
        ("", Code.BAD_VALUE),
    ],
)
def test_what_has_no_address(path: str, code: Code) -> None:
    with pytest.raises(BlendexError) as caught:
        World().address(path)
    assert caught.value.code is code
    assert caught.value.next_step


def test_object_stores_are_named() -> None:
    with pytest.raises(BlendexError, match=r"s3://.*object stores are not served yet"):
        World().address("s3://b/k")


def test_there_and_back() -> None:
    world = World("/b", {"data_blend_dir": "/d"}, {"HOME": "/h"}, VIEW)
    assert World.from_dict(world.as_dict()) == world
    assert World.from_dict({}) == World()
