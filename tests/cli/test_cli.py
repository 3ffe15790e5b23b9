"""The command line, as a person and as a script uses it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.corpus import corpus, manifest, put

pytestmark = pytest.mark.slow

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def blendex(tmp_path: Path) -> Run:
    def run(*arguments: str, code: int = 0, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        result = subprocess.run(
            [sys.executable, "-c", "from blendex.cli import main; main()", *arguments],
            check=False, capture_output=True, text=True, cwd=cwd or tmp_path, timeout=120,
            env=os.environ | {"BLENDEX_ROOT": str(tmp_path / "root"), "COLUMNS": "80"},
        )  # fmt: skip
        assert result.returncode == code, result.stdout + result.stderr
        return result

    return run


def test_the_first_evening(blendex: Run, tmp_path: Path) -> None:
    blend = blendex("sample", "data").stdout.strip()
    plan = json.loads(blendex("plan", blend, "--data-blend-dir", f"{tmp_path}/data", "--json").stdout)
    assert (plan["sources"], plan["reused"]) == (17, 0)
    built = blendex("build", blend, "--data-blend-dir", f"{tmp_path}/data", "--name", "first", "--label", "run=7")
    path = built.stdout.splitlines()[-1]
    assert Path(path, "READY").exists()
    assert "17 sources" in built.stderr
    assert (tmp_path / "root/names/first").read_text() == path + "\n"
    assert "17 sidecars" in blendex("verify", path, "--sources").stdout
    build = json.loads(blendex("builds", "--json", "--label", "run=7").stdout)[0]
    assert (build["state"], build["path"], build["labels"]) == ("ready", path, {"run": "7"})
    assert blendex("builds", "log", build["id"]).stdout.splitlines()[-1].endswith("published")
    assert build["id"] in blendex("builds").stdout
    assert json.loads(blendex("builds", "show", build["id"], "--json").stdout)["datasets"]
    assert "dataset" in blendex("builds", "show", build["id"]).stdout
    mirror = json.loads(blendex("mirrors", "--json").stdout)[0]
    assert mirror["key"] in blendex("mirrors").stdout
    assert "whole: 17 sources checked" in blendex("mirrors", "verify", mirror["key"]).stdout
    assert json.loads(blendex("mirrors", "show", mirror["key"], "--json").stdout)["receipt"]["counts"]["sources"] == 17
    blendex("names", "set", "second", build["id"])
    assert [item["name"] for item in json.loads(blendex("names", "--json").stdout)] == ["first", "second"]
    assert path in blendex("names", "show", "second").stdout


def test_relative_sources_mean_the_current_folder_or_the_base(blendex: Run, tmp_path: Path) -> None:
    put(tmp_path / "here/m.json", manifest(1))
    put(tmp_path / "here/blend.yaml", b"- {type: nemo, manifest_filepath: m.json}\n")
    first = blendex("build", "blend.yaml", cwd=tmp_path / "here").stdout
    assert blendex("build", "here/blend.yaml", "--base-dir", "here").stdout == first
    assert Path(first.strip(), "idx/m.json.idx").exists()
    assert "source_missing" in blendex("build", "here/blend.yaml", code=1).stderr


def test_a_failed_build_says_what_to_do_and_accept_does_it(blendex: Run, tmp_path: Path, data: Path) -> None:
    bad = put(tmp_path / "bad.json", b"[1]\n")
    put(tmp_path / "b.yaml", (corpus(data, 1) + f"- {{type: nemo, manifest_filepath: {bad}}}\n").encode())
    failed = blendex("build", "b.yaml", code=1)
    assert failed.stdout == ""
    assert f"{bad} at byte 0" in failed.stderr
    build = json.loads(blendex("builds", "--state", "failed", "--json").stdout)[0]["id"]
    assert build in failed.stderr
    assert Path(blendex("builds", "accept", build, "--why", "tonight").stdout.strip(), "READY").exists()
    assert "tonight" in blendex("builds", "show", build).stdout
    blendex("builds", "retry", build, code=1)  # it is ready
    packed = Path(blendex("builds", "pack", build).stdout.strip())
    assert len(list((packed / "packs").iterdir())) == 1
    assert "tonight" in (packed / "receipt.json").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("build", "absent.yaml"), "cannot be read"),
        (("build", "b.yaml", "--allow", "everything"), "names no finding"),
        (("build", "b.yaml", "--var", "x"), "is not NAME=VALUE"),
        (("build", "b.yaml", "--name", "../x"), "cannot be a name"),
        (("builds", "show", "nothing"), "there is no build nothing"),
        (("builds", "cancel", "nothing"), "there is no build nothing"),
        (("names", "show", "nothing"), "there is no name nothing"),
        (("mirrors", "show", "nothing"), "there is no mirror nothing"),
        (("verify", "nothing"), "READY"),
        (("builds", "--server", "http://127.0.0.1:9"), "does not answer"),
    ],
)
def test_errors_are_one_sentence_and_a_next_step(
    blendex: Run, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    put(tmp_path / "b.yaml", b"- {type: nemo, manifest_filepath: m.json}\n")
    result = blendex(*arguments, code=1)
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_verify_fails_on_a_changed_mirror(blendex: Run, tmp_path: Path, data: Path) -> None:
    put(tmp_path / "b.yaml", corpus(data, 1).encode())
    path = Path(blendex("build", "b.yaml").stdout.strip())
    sidecar = next(path.rglob("audio_0.tar.idx"))
    sidecar.chmod(0o644)
    sidecar.write_bytes(b"12345678")
    assert "audio_0.tar.idx has 8 bytes" in blendex("verify", str(path), code=1).stderr
    assert json.loads(blendex("verify", str(path), "--json", code=1).stdout)["faults"]


def test_help_needs_no_database_and_no_numpy(blendex: Run) -> None:
    code = (
        "import sys\nsys.argv = ['blendex', '--help']\n"
        "from blendex.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print(sorted(set(sys.modules) & {'sqlalchemy', 'numpy', 'pydantic', 'fastapi', 'httpx', 'orjson'}))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"


def test_lint_without_a_root_needs_no_database() -> None:
    code = "import sys, blendex.cli.lint; print(sorted(set(sys.modules) & {'sqlalchemy', 'alembic', 'structlog'}))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"


def test_findings_of_a_build(blendex: Run, tmp_path: Path) -> None:
    put(tmp_path / "m.json", manifest(1) + b"\n")
    put(tmp_path / "blend.yaml", b"- {type: nemo, manifest_filepath: m.json}\n")
    blendex("build", "blend.yaml")
    build = json.loads(blendex("builds", "--json").stdout)[0]["id"]
    shown = blendex("findings", build).stdout
    assert "blank_line: 1 in 1 sources" in shown
    assert "grep -v" in shown
    report = json.loads(blendex("findings", build, "--json").stdout)
    assert report["counts"] == {"refuse": 0, "warn": 1, "note": 0}
    assert "there is no build" in blendex("findings", "nope", code=1).stderr


def test_packs_on_the_command_line(blendex: Run, tmp_path: Path, data: Path) -> None:
    put(tmp_path / "blend.yaml", corpus(data).encode())
    plan = blendex("plan", "blend.yaml", "--packs", "all").stdout
    assert "nemo_tarred-0 (6 sources)" in plan
    built = blendex("build", "blend.yaml", "--packs", "nemo_tarred-0")
    mirror = Path(built.stdout.splitlines()[-1])
    (pack,) = (mirror / "packs").iterdir()
    assert f"pack of nemo_tarred-0: {pack.name}, 6 sources" in built.stderr
    assert "Nothing is wrong with it." in blendex("inspect", str(pack)).stdout
    found = json.loads(blendex("inspect", str(pack), "--json").stdout)
    assert (found["version"], found["sources_here"], found["faults"]) == (3, 6, [])
    put(data / "a/audio_0.tar", b"")
    assert "WRONG" in blendex("inspect", str(pack), code=1).stdout
    assert "no index file" in blendex("inspect", "blend.yaml", code=1).stderr
