"""A real config, held against a list that was written before the linter; and after its patch, with a mirror."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import blendex
from blendex.blend.load import Limits
from blendex.blend.world import World
from blendex.lint.facts import Facts
from blendex.lint.ground import Disk
from blendex.lint.migrate import Migration, migrate
from blendex.lint.model import Finding
from blendex.storage.local import LocalStorage
from blendex.units.plan import FolderReader

SPEECH = Path(__file__).parent.parent / "data" / "speech"
EXPECTED = json.loads((Path(__file__).parent / "data" / "train.expected.json").read_text())["findings"]


@pytest.fixture
def speech(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SPEECH, tmp_path / "speech", ignore=shutil.ignore_patterns("expected")))


def told(finding: Finding) -> list[object]:
    name = Path(finding.file).name
    return [finding.rule, str(finding.severity), name, finding.line, finding.column, finding.field]


def linted(folder: Path, text: bytes | None = None, facts: Facts | None = None) -> Migration:
    storage = LocalStorage(("/",))
    ground = Disk(storage, FolderReader(storage, {}, Limits().bytes))
    file = folder / "train.yaml"
    return migrate(file.read_bytes() if text is None else text, str(file), World(base=str(folder)), ground, facts=facts)


def test_exactly_the_findings_of_the_list(speech: Path) -> None:
    found = [told(finding) for finding in linted(speech).report.findings]
    assert sorted(found, key=str) == sorted(EXPECTED, key=str)


def test_what_is_patched(speech: Path) -> None:
    migration = linted(speech)
    assert migration.refused == {}
    assert list(migration.texts) == [str(speech / "train.yaml")]
    diff = migration.diffs()[str(speech / "train.yaml")]
    changed = [line for line in diff.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    assert changed == [
        "-    shard_seed: randomized",
        "+    shard_seed: 42",
        "+    indexed: true",
        "+    use_stateful_dataloader: true",
        "+    concurrent_bucketing: false",
        "+    force_iterable_dataset: true",
    ]


def test_the_patched_config_is_launch_ready_once_a_mirror_exists(
    speech: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(speech)
    migration = linted(speech)
    assert not migration.ready
    assert {item.rule for item in migration.after.blockers} == {"IDX107"}, "only the indexes are missing"
    # The folder of a test is node-local by its name; here it stands for a shared one.
    shared = Facts(mounts={str(tmp_path): "lustre"})
    text = migration.texts[str(speech / "train.yaml")]
    built = blendex.build(speech / "blend.yaml", variables={"data_blend_dir": "."}, root=tmp_path / "root")
    with_mirror = text.replace("    indexed: true\n", f"    indexed: true\n    indexes_root: {built.path}/idx\n")
    again = linted(speech, with_mirror.encode(), shared)
    assert again.ready, [told(item) for item in again.report.blockers]
    assert again.report.blockers == []
    assert again.texts == {}, "nothing is left to patch"
    assert not {"IDX055", "IDX107"} & {item.rule for item in again.report.unchecked}, "every sidecar was looked at"

    (speech / "cuts.jsonl").write_text((speech / "cuts.jsonl").read_text() + "{}\n")
    stale = linted(speech, with_mirror.encode(), shared)
    assert [item.rule for item in stale.report.blockers] == ["IDX055"]
    sidecar = next(Path(built.path, "idx").rglob("manifest_2.json.idx"))
    sidecar.parent.chmod(0o755)
    sidecar.unlink()
    missing = linted(speech, with_mirror.encode(), shared)
    assert [item.rule for item in missing.report.blockers] == ["IDX107", "IDX055"]
