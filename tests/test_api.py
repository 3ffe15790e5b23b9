"""The Python API."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import blendex
from blendex import sample
from blendex.errors import BlendexError, Code
from tests.support.corpus import manifest, put


def test_plan_build_and_resolve(tmp_path: Path) -> None:
    blend = sample.make(tmp_path / "data")
    options = {"variables": {"data_blend_dir": str(tmp_path / "data")}, "root": tmp_path / "root"}
    before = blendex.plan(blend, **options)  # type: ignore[arg-type]
    assert (before.sources, before.reused, before.path, before.problems) == (17, 0, None, [])
    assert before.inodes > 17
    built = blendex.build(blend, name="mine", labels={"run": "7"}, **options)  # type: ignore[arg-type]
    assert built.sources == 17
    assert built.blend.exists()
    for what in ("mine", built.build, built.key):
        assert blendex.resolve(what, root=tmp_path / "root") == built.path
    with pytest.raises(BlendexError) as raised:
        blendex.resolve("other", root=tmp_path / "root")
    assert raised.value.code is Code.NOT_FOUND


def test_a_failed_build_raises_all_its_problems(tmp_path: Path) -> None:
    bad = [put(tmp_path / f"{name}.json", manifest(1) + b"[]\n") for name in "ab"]
    blend = put(tmp_path / "blend.yaml", f"- {{type: nemo, manifest_filepath: [{bad[0]}, {bad[1]}]}}\n".encode())
    with pytest.raises(blendex.BuildFailed) as raised:
        blendex.build(blend, root=tmp_path / "root")
    assert [item["path"] for item in raised.value.problems] == [str(path) for path in bad]


def test_importing_is_cheap() -> None:
    import subprocess
    import sys

    code = "import sys, blendex; print(len([name for name in sys.modules if name.startswith(('sqlalchemy', 'numpy'))]))"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert found.stdout.strip() == "0"


def test_the_version_is_the_one_that_is_installed() -> None:
    from importlib.metadata import version

    assert blendex.__version__ == version("blendex")
