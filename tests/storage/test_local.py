"""Local sources: tokens, and nothing outside the allowed roots."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from blendex.errors import BlendexError, Code
from blendex.storage import beneath
from blendex.storage.interface import RACY_NS, Stat
from blendex.storage.local import LocalStorage, token_mtime_ns


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    folder = tmp_path / "inside"
    folder.mkdir()
    (folder / "a.json").write_bytes(b"abc")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret.json").write_bytes(b"secret")
    return folder


def code_of(action: Callable[[], object]) -> Code:
    with pytest.raises(BlendexError) as raised:
        action()
    assert raised.value.file
    assert raised.value.next_step
    return raised.value.code


def test_a_token_is_size_times_and_inode_but_no_device(inside: Path) -> None:
    result = LocalStorage([str(inside)]).stat(str(inside / "a.json"))
    stat = os.stat(inside / "a.json")
    assert result.token == f"3:{stat.st_mtime_ns}:{stat.st_ctime_ns}:{stat.st_ino}"
    assert token_mtime_ns(result.token) == stat.st_mtime_ns


@pytest.mark.parametrize("change", ["content", "touch", "replace"])
def test_every_change_changes_the_token(inside: Path, change: str) -> None:
    path = inside / "a.json"
    storage = LocalStorage([str(inside)])
    before = storage.stat(str(path))
    mtime = path.stat().st_mtime_ns
    if change == "content":
        time.sleep(0.02)  # one tick of the kernel's clock, by which ctime is stamped
        path.write_bytes(b"xyz")
        os.utime(path, ns=(mtime, mtime))
    elif change == "touch":
        os.utime(path, ns=(mtime + 1, mtime + 1))
    else:
        other = inside / "b.json"
        other.write_bytes(b"abc")
        os.utime(other, ns=(mtime, mtime))
        os.rename(other, path)
    assert storage.stat(str(path)).token != before.token


@pytest.mark.parametrize(
    "path", ["../outside/secret.json", "../outside/absent.json", "link.json", "folder/secret.json", "folder/absent"]
)
def test_outside_the_roots_nothing_is_read_or_revealed(inside: Path, path: str) -> None:
    (inside / "link.json").symlink_to(inside.parent / "outside/secret.json")
    (inside / "folder").symlink_to(inside.parent / "outside")
    storage = LocalStorage([str(inside)])
    for action in (storage.stat, storage.open, lambda address: storage.read(address, 100)):
        assert code_of(lambda action=action: action(f"{inside}/{path}")) is Code.PATH_OUTSIDE_ROOTS  # type: ignore[misc]


def test_a_folder_that_leads_outside_is_not_listed(inside: Path) -> None:
    (inside / "folder").symlink_to(inside.parent / "outside")
    storage = LocalStorage([str(inside)])
    assert storage.list(str(inside)) == [("a.json", False), ("folder", True)]
    assert code_of(lambda: storage.list(f"{inside}/folder")) is Code.PATH_OUTSIDE_ROOTS


def test_links_inside_the_roots_are_followed(inside: Path) -> None:
    (inside / "link.json").symlink_to(inside / "a.json")
    with LocalStorage([str(inside)]).open(f"{inside}/link.json") as source:
        assert source.pread(10, 0) == b"abc"


@pytest.mark.parametrize("moved", ["link.json", "folder"])
@pytest.mark.parametrize("how", ["open", "stat"])
def test_a_link_that_moves_before_it_is_opened_leads_nowhere(
    inside: Path, monkeypatch: pytest.MonkeyPatch, moved: str, how: str
) -> None:
    link, outside = inside / moved, inside.parent / "outside"
    targets = (inside / "a.json", outside / "secret.json") if moved == "link.json" else (inside, outside)
    address = link if moved == "link.json" else link / "secret.json"
    corpus_file = inside / "secret.json"
    corpus_file.write_text("mine")
    link.symlink_to(targets[0])
    storage = LocalStorage([str(inside)])
    opened = beneath.open_beneath
    storage.stat(str(address))  # the folder is known by now

    def late(root: str, path: str, flags: int) -> int:
        link.unlink()
        link.symlink_to(targets[1])
        return opened(root, path, flags)

    monkeypatch.setattr(beneath, "open_beneath", late)
    if moved == "link.json":
        assert code_of(lambda: getattr(storage, how)(str(address))) is Code.PATH_OUTSIDE_ROOTS
        return
    found = getattr(storage, how)(str(address))  # what it led to when it was looked up, by its real name
    with found if how == "open" else contextlib.nullcontext() as source:
        assert (source.size if how == "open" else found.size) == len("mine")


def test_links_swapped_all_the_time_lead_nowhere_else(inside: Path) -> None:
    outside = inside.parent / "outside"
    (inside / "secret.json").write_text("mine")
    ended = threading.Event()

    def swap() -> None:
        names = {"link.json": "secret.json", "folder": "."}
        while not ended.is_set():
            for name, target in names.items():
                for top in (inside, outside):
                    fresh = inside / f".{name}"
                    fresh.symlink_to(top / target)
                    fresh.rename(inside / name)

    thread = threading.Thread(target=swap)
    thread.start()
    seen: set[object] = set()
    try:
        for number in range(1_500):
            storage = LocalStorage([str(inside)])  # knows no folder
            for address in (inside / "link.json", inside / "folder/secret.json"):
                try:
                    if number % 2:
                        seen.add(storage.stat(str(address)).size)
                    else:
                        with storage.open(str(address)) as source:
                            seen.add(source.pread(100, 0))
                except BlendexError as error:
                    seen.add(error.code)
    finally:
        ended.set()
        thread.join()
    assert seen <= {4, b"mine", Code.PATH_OUTSIDE_ROOTS, Code.SOURCE_MISSING}


def test_a_link_to_another_root_is_followed(inside: Path) -> None:
    (inside / "link.json").symlink_to(inside.parent / "outside/secret.json")
    storage = LocalStorage([str(inside), str(inside.parent / "outside")])
    with storage.open(f"{inside}/link.json") as source:
        assert source.size == (inside.parent / "outside/secret.json").stat().st_size
    assert storage.stat(f"{inside}/link.json").size == source.size


def test_a_link_that_moves_between_check_and_open_is_caught(inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beneath, "KNOWN", False)  # a kernel before 5.6
    link = inside / "link.json"
    link.symlink_to(inside / "a.json")
    storage = LocalStorage([str(inside)])
    real = os.open

    def late(path: str, flags: int, *mode: int) -> int:
        if path == str(link):
            link.unlink()
            link.symlink_to(inside.parent / "outside/secret.json")
        return real(path, flags, *mode)

    monkeypatch.setattr(os, "open", late)
    assert code_of(lambda: storage.open(str(link))) is Code.PATH_OUTSIDE_ROOTS


@pytest.mark.parametrize(("name", "code"), [("absent", Code.SOURCE_MISSING), ("a.json/x", Code.SOURCE_MISSING)])
def test_what_is_missing_is_named(inside: Path, name: str, code: Code) -> None:
    assert code_of(lambda: LocalStorage([str(inside)]).stat(f"{inside}/{name}")) is code


def test_pipes_and_folders_are_refused_without_waiting(inside: Path) -> None:
    os.mkfifo(inside / "pipe")
    storage = LocalStorage([str(inside)])
    for name in ("pipe", "."):
        assert code_of(lambda name=name: storage.open(f"{inside}/{name}")) is Code.SOURCE_NOT_REGULAR  # type: ignore[misc]


def test_a_young_token_is_racy_and_an_old_one_is_not(inside: Path) -> None:
    result = LocalStorage([str(inside)]).stat(str(inside / "a.json"))
    assert result.racy(result.changed_ns + RACY_NS - 1)
    assert not result.racy(result.changed_ns + RACY_NS)


def test_an_open_source_notices_a_change(inside: Path) -> None:
    with LocalStorage([str(inside)]).open(str(inside / "a.json")) as source:
        assert source.unchanged()
        with (inside / "a.json").open("ab") as file:
            file.write(b"more")
        assert not source.unchanged()


def test_figures_count_what_was_done(inside: Path) -> None:
    storage = LocalStorage([str(inside)])
    storage.stat(str(inside / "a.json"))
    with storage.open(str(inside / "a.json")) as source:
        source.pread(2, 0)
        source.pread_into(memoryview(bytearray(8)), 0)
    assert storage.figures.as_dict() == {
        "stats": 1, "opens": 1, "bytes_read": 5, "reads": 2, "requests": 0, "retries": 0,
    }  # fmt: skip


def test_the_file_servers_clock_is_never_later_than_ours(tmp_path: Path) -> None:
    assert LocalStorage(["/"], str(tmp_path)).now_ns() <= time.time_ns()


@pytest.mark.parametrize("threads", [1, 3])
def test_many_stats_come_in_order_with_their_errors(inside: Path, threads: int) -> None:
    for number in range(0, 1000, 2):
        (inside / f"{number}.json").write_bytes(b"x" * number)
    storage = LocalStorage([str(inside)], threads=threads)
    answers = list(storage.stat_many(f"{inside}/{number}.json" for number in range(1000)))
    assert [answer.size if isinstance(answer, Stat) else answer.code for answer in answers] == [
        Code.SOURCE_MISSING if number % 2 else number for number in range(1000)
    ]
