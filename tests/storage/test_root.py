"""The root: names appear whole or not at all."""

from __future__ import annotations

import errno
import grp
import os
from pathlib import Path

import pytest

from blendex.errors import BlendexError, Code
from blendex.storage.root import Root, create, flush_filesystem, replace, write_all


@pytest.fixture
def root(tmp_path: Path) -> Root:
    made = Root(tmp_path)
    made.prepare()
    return made


def private(root: Root, data: bytes) -> str:
    path = root.private("build.1-1", ".bundle")
    create(path, data)
    return path


def test_an_object_is_published_once_and_the_private_name_goes(root: Root) -> None:
    first, second = private(root, b"data"), private(root, b"data")
    name = root.publish_object(first, "ab" * 32, ".bundle", 4)
    inode = os.stat(root.object(name)).st_ino
    assert root.publish_object(second, "ab" * 32, ".bundle", 4) == name
    assert os.stat(root.object(name)).st_ino == inode
    assert list(root.objects()) == [name]
    assert os.listdir(os.path.join(root.path, "staging")) == []


def test_an_object_of_another_size_is_damaged(root: Root) -> None:
    root.publish_object(private(root, b"data"), "ab" * 32, ".bundle", 4)
    with pytest.raises(BlendexError) as raised:
        root.publish_object(private(root, b"other"), "ab" * 32, ".bundle", 5)
    assert raised.value.code is Code.OBJECT_DAMAGED


def test_replace_leaves_the_old_or_the_new(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    path = os.path.join(root.path, "names", "x")
    replace(path, b"old")

    def fails(*_: object) -> None:
        raise OSError(errno.EIO, "no")

    monkeypatch.setattr(os, "rename", fails)
    with pytest.raises(OSError, match="no"):
        replace(path, b"new")
    assert Path(path).read_bytes() == b"old"
    assert os.listdir(os.path.dirname(path)) == ["x"]


def test_a_full_disk_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(BlendexError) as raised:
        write_all(1, b"x")
    assert raised.value.code is Code.NO_SPACE


def test_discard_removes_read_only_folders(root: Root) -> None:
    folder = Path(root.staging("build.1-1"))
    (folder / "idx").mkdir(parents=True)
    (folder / "idx/a").write_bytes(b"")
    (folder / "idx").chmod(0o555)
    folder.chmod(0o555)
    root.discard(str(folder))
    assert not folder.exists()
    assert os.listdir(os.path.join(root.path, "trash")) == []


def test_a_whole_filesystem_can_be_flushed(root: Root) -> None:
    flush_filesystem(root.path)
    with pytest.raises(OSError, match="No such file"):
        flush_filesystem(root.path + "/absent")


def test_a_group_alone_may_come_in_and_the_rest_stays_as_it_was(root: Root) -> None:
    name = root.publish_object(private(root, b"data"), "ab" * 32, ".bundle", 4)
    file = os.stat(root.object(name)).st_mode
    group = grp.getgrgid(os.getgid())
    for _ in range(2):
        root.restrict(group.gr_name)
        for folder in Root.FOLDERS:
            found = os.stat(os.path.join(root.path, folder))
            assert (found.st_gid, found.st_mode & 0o777) == (group.gr_gid, 0o750)
    assert os.stat(root.object(name)).st_mode == file
    with pytest.raises(BlendexError) as raised:
        root.restrict("no-such-group")
    assert (raised.value.code, raised.value.file) == (Code.ROOT_SETTINGS, root.path)
