"""Sidecar paths against upstream's table, and what a mirror refuses."""

from __future__ import annotations

import pytest

from blendex.blend.index_path import index_path, mirror_relative
from blendex.errors import BlendexError, Code

from .fakes import table

ROWS = table("index_file_path.json")


def test_the_table_is_whole() -> None:
    assert len(ROWS) == 189


@pytest.mark.parametrize(("path", "root", "wanted"), ROWS)
def test_upstream_table(path: str, root: str | None, wanted: str) -> None:
    assert index_path(path, root) == wanted


@pytest.mark.parametrize("path", sorted({row[0] for row in ROWS}))
def test_a_mirror_agrees_with_the_rule_or_refuses(path: str) -> None:
    try:
        relative = mirror_relative(path)
    except BlendexError:
        return
    assert f"/root/idx/{relative}" == index_path(path, "/root/idx")
    assert not relative.startswith("/")


@pytest.mark.parametrize(
    "path",
    [
        "../up/x.jsonl", "/a/../b.jsonl", "x.jsonl/", "/", "", "/a/.", "/a/..", "http://h:80/p/x.jsonl",
        "C:/data/x.jsonl", "a:/x.jsonl", "/a/\0.jsonl", "/a/" + "é" * 126 + ".jsonl", "/" + "a/" * 2100 + "x",
        "s3://../x.jsonl", "/a/\ud800.jsonl",
    ],
)  # fmt: skip
def test_what_escapes_or_loses_its_host_is_refused(path: str) -> None:
    with pytest.raises(BlendexError) as caught:
        mirror_relative(path)
    assert caught.value.code is Code.INDEX_PATH_ESCAPE
    assert caught.value.next_step


def test_the_longest_name_that_fits() -> None:
    name = "a" * (255 - len(".idx"))
    assert mirror_relative(f"/d/{name}") == f"d/{name}.idx"
    with pytest.raises(BlendexError, match="255 bytes"):
        mirror_relative(f"/d/{name}b")


def test_a_pipe_is_refused() -> None:
    with pytest.raises(BlendexError) as caught:
        mirror_relative("pipe:cat /x.jsonl")
    assert caught.value.code is Code.PATH_UNSUPPORTED
