"""What the linter sees in sources that nobody has indexed yet."""

from __future__ import annotations

import errno
import io
import tarfile
import threading

import orjson
import pytest

from blendex.blend.world import World
from blendex.formats.packreader import PackReader
from blendex.lint import looks
from blendex.lint.engine import lint
from blendex.lint.ground import Sidecar
from blendex.storage.interface import Opened, Stat
from tests.lint.ground import Disk, rules, run

NATIVE = (
    "train_ds:\n  input_cfg:\n"
    '  - {type: nemo_tarred, manifest_filepath: "/d/manifest_{0..%d}.json", tarred_audio_filepaths: '
    '"/d/audio_{0..%d}.tar"}\n'
)
GOOD = b'{"audio_filepath": "a.wav", "duration": 1.0, "sampling_rate": 16000}\n'


def archive(*names: str) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 3
            tar.addfile(member, io.BytesIO(b"abc"))
    return stream.getvalue()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (GOOD * 2, ""), (b"", ""), (GOOD + b'{"a": ', "half_line"), (GOOD + b"\n" + GOOD, "blank_line"),
        (b"\xef\xbb\xbf" + GOOD, "bom"), (b"[1]\n", "not_an_object"), (b"\xff\n", "not_utf8"), (b"\0\0\n", "nul_byte"),
        (b"\x1f\x8b" + b"x" * 100, "path_compressed"),
    ],
)  # fmt: skip
def test_lines(content: bytes, told: str) -> None:
    text = "- {type: nemo, manifest_filepath: /d/a.json}\n"
    _, report = run(text, files={"/d/a.json": content})
    found = [item for item in report.findings if item.rule == "IDX025"]
    assert [told in item.value for item in found] == [True] * bool(told)
    assert all(item.fix for item in found)
    assert "IDX025" not in {item.rule for item in report.unchecked}
    assert "a.wav" not in repr(found), "rows are looked at, never told"


def test_both_ends_of_large_files_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks, "END_BYTES", 4096)
    text = "- {type: nemo, manifest_filepath: /d/a.json}\n"
    many = GOOD * 300
    for content, told in ((many, 0), (b"[1]\n" + many, 1), (many + b'{"a"', 1), (many + b"[1]\n" + many, 0)):
        _, report = run(text, files={"/d/a.json": content})
        assert rules(report).count("IDX025") == told
        assert any(item.rule == "IDX025" and "whole content of 1 of 1" in item.what for item in report.unchecked)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (archive("a.wav", "b.wav"), ""), (archive("x/a.wav", "y/a.wav"), "merged_directories"), (b"", "tar_empty"),
        (archive("a.wav")[:700], "tar_truncated"), (b"<html>" + b" " * 1018, "tar_bad_header"),
    ],
)  # fmt: skip
def test_tars(content: bytes, told: str) -> None:
    files = {"/d/manifest_0.json": GOOD, "/d/audio_0.tar": content}
    _, report = run(NATIVE % (0, 0), files=files)
    found = [item for item in report.findings if item.rule == "IDX026"]
    assert [told in item.value for item in found] == [True] * bool(told)


def test_a_look_has_an_end_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks, "MOST_SOURCES", 6)
    files = {f"/d/{name}_{number}": b"[1]\n" for name in "ab" for number in range(10)}
    text = "".join(f"- {{type: txt_jsonl, paths: '/d/{name}_{{0..9}}'}}\n" for name in "ab")
    context, report = run(text, files=files)
    told = [item.message for item in report.findings if item.rule == "IDX025"]
    assert len(told) == 2, "the first sources of every entry come first"
    assert all("2 more of its sources" in item for item in told)
    assert any("14 of 20 JSON lines" in item.what for item in report.unchecked)
    assert len({name for name in context.ground.reads if name.startswith("/d/")}) == 6  # type: ignore[attr-defined]


def test_rows_are_looked_at_in_every_manifest() -> None:
    rows = [{"audio_filepath": "a.wav", "duration": 1.0, "sampling_rate": 8000}, {"audio_filepath": "b.wav"}]
    late = b"".join(orjson.dumps(row) + b"\n" for row in rows)
    files = {
        "/d/manifest_0.json": GOOD, "/d/manifest_1.json": late,
        **{f"/d/audio_{n}.tar": archive("a.wav", "b.wav") for n in (0, 1)},
    }  # fmt: skip
    _, report = run(NATIVE % (1, 1), files=files)
    found = next(item for item in report.findings if item.rule == "IDX028")
    assert found.message == (
        "Of 3 rows that were looked at, some lack a value: 1 without duration, 1 without sampling_rate."
    )
    with_rate = (NATIVE % (1, 1)).replace("train_ds:\n", "train_ds:\n  input_sampling_rate: 8000\n")
    found = next(item for item in run(with_rate, files=files)[1].findings if item.rule == "IDX028")
    assert "sampling_rate" not in found.message
    assert "IDX028" not in rules(run(NATIVE % (0, 0), files=files)[1])
    unseen = run(NATIVE % (2, 2), files=files)[1]
    assert any(item.rule == "IDX028" and "1 of 3 manifests" in item.what for item in unseen.unchecked)


def test_indexes_of_every_kind_are_looked_for_where_they_lie() -> None:
    """Two kinds have another ending than .idx; what is there is not called missing."""
    wds = "train_ds:\n  indexed: true\n  indexes_root: /i\n  input_cfg:\n" + (
        "  - {type: share_gpt_webdataset, data_dir: /w, wds_sample_index_version: 2}\n"
    )
    catalog = '{"format": "nemo-wds-shard-catalog", "version": 1, "shards": [{"url": "a.tar"}]}'
    tar = archive("a.json", "a.wav")
    end = len(tar).to_bytes(8, "little")
    files = {"/w/wds-catalog.json": catalog, "/w/a.tar": tar}
    assert "IDX107" in rules(run(wds, files=files)[1])
    assert "IDX107" not in rules(run(wds, files=files | {"/i/w/a.tar.wds-v2.idx": bytes(8) + end})[1])
    assert "IDX107" in rules(run(wds, files=files | {"/i/w/a.tar.idx": bytes(8) + end})[1])


class Meeting(Disk):
    """A disk on which four threads that look at sidecars wait for each other."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(files)
        self.barrier = threading.Barrier(4, timeout=20)
        self.thread = threading.local()

    def sidecar(self, address: str, source: Stat | None) -> Sidecar:
        if not hasattr(self.thread, "met"):
            self.thread.met = True
            self.barrier.wait()
        return super().sidecar(address, source)


def test_many_sidecars_are_looked_at_at_one_time() -> None:
    """Four batches are under way together, else the first would wait in vain."""
    side = bytes(8) + len(GOOD).to_bytes(8, "little")
    names = [f"/d/a_{number}.json" for number in range(256)]
    files = dict.fromkeys(names, GOOD) | {f"/i{name}.idx": side for name in names[:-1]}
    entry = "{type: nemo, manifest_filepath: '/d/a_{0..255}.json'}"
    text = f"train_ds: {{indexed: true, indexes_root: /i, input_cfg: [{entry}]}}"
    report = lint(text.encode(), "/cfg/t.yaml", World(), Meeting(files))
    told = [item.message for item in report.findings if item.rule == "IDX107"]
    assert told == ["1 of 256 sources have no index under /i, such as /d/a_255.json."]


class Failing(Disk):
    """A disk whose file server fails in the middle of a read."""

    def open(self, address: str) -> Opened:
        raise OSError(errno.EIO, "Input/output error")

    def sidecar(self, address: str, source: Stat | None) -> Sidecar:
        raise OSError(errno.EIO, "Input/output error")

    def pack(self, address: str) -> PackReader:
        raise OSError(errno.EIO, "Input/output error")


def test_a_file_server_that_fails_leaves_things_unchecked() -> None:
    text = (NATIVE % (0, 0)).replace("train_ds:\n", "train_ds:\n  indexed: true\n  indexes_root: /i\n")
    packed = text + "  - {type: nemo, manifest_filepath: /d/manifest_0.json, index_pack: /p/a.idxpack}\n"
    files = {"/d/manifest_0.json": GOOD, "/d/audio_0.tar": archive("a.wav"), "/p/a.idxpack": b"x"}
    report = lint(packed.encode(), "/cfg/t.yaml", World(), Failing(files))
    assert {"IDX025", "IDX026", "IDX028", "IDX032", "IDX055"} <= {item.rule for item in report.unchecked}
    assert not {"IDX025", "IDX026", "IDX032", "IDX055", "IDX107"} & {item.rule for item in report.findings}
