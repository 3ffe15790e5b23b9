"""What the linter reads: inside the roots, and nothing of its own environment."""

from __future__ import annotations

import contextlib
import os
import struct
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blendex.blend.load import Limits
from blendex.blend.world import World
from blendex.errors import BlendexError
from blendex.lint.engine import lint
from blendex.lint.ground import Disk, Nowhere
from blendex.lint.model import Report
from blendex.storage.local import LocalStorage
from blendex.units.plan import FolderReader

SECRET = "cafe-secret-content"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An allowed root, with a secret beside it."""
    folder = tmp_path_factory.mktemp("house")
    (folder / "allowed").mkdir()
    (folder / "allowed/a.json").write_text('{"audio_filepath": "a.wav"}\n')
    (folder / "secret.yaml").write_text(f"- {{type: nemo, manifest_filepath: /{SECRET}.json}}\n")
    (folder / "allowed/link.yaml").symlink_to(folder / "secret.yaml")
    os.environ["BLENDEX_TEST_SECRET"] = SECRET
    return folder


def linted(house: Path, text: str) -> Report:
    storage = LocalStorage((str(house / "allowed"),))
    ground = Disk(storage, FolderReader(storage, {}, Limits().bytes))
    return lint(text.encode(), str(house / "allowed/t.yaml"), World(base=str(house / "allowed")), ground)


paths = st.sampled_from(
    [
        "{h}/secret.yaml", "../secret.yaml", "link.yaml", "/etc/passwd", "../../../../../../etc/passwd",
        "{h}/allowed/../secret.yaml", "${{oc.env:BLENDEX_TEST_SECRET}}", "file://{h}/secret.yaml", "{h}//secret.yaml",
        "/proc/self/environ", "allowed/a.json",
    ]
)  # fmt: skip
KEYS = ("input_cfg", "manifest_filepath", "indexes_root", "index_pack", "cuts_path")


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    paths, st.sampled_from(["input_cfg", "manifest_filepath", "indexes_root", "index_pack", "cuts_path"]), st.booleans()
)
def test_nothing_outside_the_roots_is_read_or_told(house: Path, path: str, key: str, nested: bool) -> None:
    value = path.format(h=house)
    kind = "group" if key == "input_cfg" else "nemo_tarred"
    entry = f"{{type: {kind}, {key}: '{value}', indexed: true, tarred_audio_filepaths: '{value}'}}"
    text = f"train_ds:\n  indexed: true\n  input_cfg: [{entry}]\n"
    text = f"train_ds: {{input_cfg: '{value}'}}\n" if nested else text
    opened = linted(house, text)
    told = repr([(item.message, item.value, item.fix) for item in opened.findings]) + repr(opened.unchecked)
    assert SECRET not in told
    assert "root:" not in told
    assert not any("secret" in name and name.endswith("secret.yaml") for name in opened.files)


def test_the_environment_of_the_process_is_no_fact(house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LHOTSE_USE_WORKER_PARTITION", "1")
    report = linted(house, "train_ds: {input_cfg: [{type: nemo, manifest_filepath: a.json}]}\n")
    assert "IDX050" not in {item.rule for item in report.findings}
    assert "IDX050" in {item.rule for item in report.unchecked}


@pytest.mark.parametrize(
    ("data", "wrong"),
    [(struct.pack("<3Q", 0, 5, 9), ""), (struct.pack("<3Q", 0, 5, 8), ("now it has "
                                                                      "9")), (b"1234567", ("are no "
                                                                                          "index")), (b"", ("are no "
                                                                                                           "index")),
     (struct.pack("<4Q", 0, 7, 5, 9), "decrease")],
)  # fmt: skip
def test_sidecars(tmp_path: Path, data: bytes, wrong: str) -> None:
    (tmp_path / "a.json").write_bytes(b"123456789")
    (tmp_path / "a.json.idx").write_bytes(data)
    storage = LocalStorage(("/",))
    disk = Disk(storage, FolderReader(storage, {}, 1))
    stat = storage.stat(str(tmp_path / "a.json"))
    state = disk.sidecar(str(tmp_path / "a.json.idx"), stat)
    assert not state.missing
    assert wrong in state.wrong
    assert bool(wrong) == bool(state.wrong)
    assert disk.sidecar(str(tmp_path / "b.idx"), stat).missing
    os.utime(tmp_path / "a.json.idx", (1, 1))
    assert disk.sidecar(str(tmp_path / "a.json.idx"), stat).wrong


def test_without_a_disk_nothing_is_assumed() -> None:
    text = b"train_ds: {indexed: true, indexes_root: /i, input_cfg: [{type: nemo, manifest_filepath: /d/a.json}]}\n"
    report = lint(text, "/cfg/t.yaml", World(), Nowhere())
    assert "IDX107" not in {item.rule for item in report.findings}
    assert any("sidecars" in item.what for item in report.unchecked)
    with pytest.raises(BlendexError):
        Nowhere().open("/x")


WATCHED = ("open", "os.listdir", "os.scandir", "os.chdir", "subprocess.Popen", "os.system", "exec")


class Watch:
    """What this process opens and lists while it is on; an audit hook stays for the life of the process.

    Threads that were there before are servers that other tests have started.
    """

    def __init__(self) -> None:
        self.on = False
        self.seen: list[str] = []
        self.others: set[int | None] = set()
        sys.addaudithook(self._event)

    def start(self) -> None:
        """Watch this thread and those to come."""
        self.seen.clear()
        self.others = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}
        self.on = True

    def _event(self, name: str, arguments: tuple[object, ...]) -> None:
        if self.on and name in WATCHED and threading.get_ident() not in self.others:
            self.seen.append(f"{name} {arguments[0]!s}")


@pytest.fixture(scope="module")
def watch() -> Watch:
    return Watch()


PIECES = """\
train_ds:|data:|validation_ds:|input_cfg:|indexed: true|datasets:|multi_config: true|defaults: [{p}]|dataset:
- {{type: nemo, manifest_filepath: "{p}"}}|- {{type: group, input_cfg: "{p}"}}|input_cfg: "{p}"|indexes_root: "{p}"
- {{type: nemo_tarred, manifest_filepath: "{p}", tarred_audio_filepaths: "{p}"}}|index_pack: "{p}"
- {{type: lhotse_shar, shar_path: "{p}"}}|- {{type: share_gpt_webdataset, data_dir: "{p}"}}|index_pack_root: "{p}"
- {{type: share_gpt, manifest_filepath: "{p}", tar_lookup_mode: collection, tar_routing_filepath: "{p}"}}
- {{type: txt_jsonl, paths: ["{p}", "{p}"]}}|cuts_path: "{p}"|noise_path: "{p}"|root: &r "{p}"|x: *r|p: ${{oc.env:HOME}}
""".replace("\n", "|").split("|")  # fmt: skip
OUTSIDE = [
    "{h}/secret.yaml", "../secret.yaml", "link.yaml", "/etc/passwd", "../../../../etc/passwd",
    "{h}/allowed/../secret.yaml", "/proc/self/environ", "/dev/stdin", "file:///etc/passwd", "~/.ssh/id_rsa", "{h}", "/",
    "out", "out/secret.yaml", "{h}/allowed/a.json", "a.json", "a_{{0..3}}.json", "${{root}}",
    "s3://b/x.json", "pipe:cat /etc/passwd",
]  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.sampled_from(PIECES), st.sampled_from(OUTSIDE), st.integers(0, 3)), max_size=12))
def test_random_configs_open_nothing_outside_the_roots(
    house: Path, watch: Watch, lines: list[tuple[str, str, int]]
) -> None:
    """Seen from the interpreter: whatever a config says, only what lies in the allowed root is opened or listed."""
    out = house / "allowed/out"
    if not out.is_symlink():
        out.symlink_to(house)
    text = "\n".join("  " * depth + piece.format(p=path.format(h=house)) for piece, path, depth in lines)
    linted(house, "- {type: nemo, manifest_filepath: a.json}\n")  # what is imported late is imported
    watch.start()
    try:
        with contextlib.suppress(BlendexError):
            report = linted(house, text)
            assert SECRET not in repr(report.findings)
            assert "root:" not in repr(report.findings)
    finally:
        watch.on = False
    inside = f"{house}/allowed"
    for event in watch.seen:
        name, _, path = event.partition(" ")
        assert name in ("open", "os.scandir"), event
        # A pack is read by the descriptor that the storage has opened.
        own = path.isdigit() or path.startswith("/proc/self/fd/")
        assert own or os.path.realpath(path).startswith(inside), event


def test_the_watch_sees(house: Path, watch: Watch) -> None:
    watch.start()
    try:
        linted(house, "- {type: nemo, manifest_filepath: a.json}\n")
        (house / "secret.yaml").read_bytes()
    finally:
        watch.on = False
    assert [event for event in watch.seen if event.endswith("allowed/a.json")]
    assert [event for event in watch.seen if event.endswith("secret.yaml")]
