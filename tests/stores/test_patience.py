"""A store that is away is waited for, and whoever waits is told for what, how long, and how to stop."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from blendex.builds.causes import paused
from blendex.cli.output import waiting_line


@pytest.mark.parametrize(("delays", "seconds"), [(0, 0), (1, 2), (4, 30), (5, 62), (8, 242), (9, 302), (64, 3602)])
def test_how_long_pauses_are_together(delays: int, seconds: float) -> None:
    assert paused(delays) == seconds


def test_a_line_for_people() -> None:
    line = waiting_line(
        {"message": "lab cannot be reached (Timeout).", "endpoint": "http://ais:51080", "waited_seconds": 6.0,
         "patience_seconds": 60.0},
    )  # fmt: skip
    for words in ("http://ais:51080", "lab cannot be reached", "about 54 s", "--store-patience", "Ctrl-C"):
        assert words in line


def test_a_command_line_waits_and_says_so(tmp_path: Path) -> None:
    stores = {"lab": {"kind": "aistore", "endpoint": "http://127.0.0.1:9", "buckets": ["*"], "connect_seconds": 0.5}}
    blend = tmp_path / "b.yaml"
    blend.write_text("- {type: nemo, manifest_filepath: 'ais://speech/m.jsonl'}\n")
    ran = subprocess.run(
        [str(Path(sys.executable).parent / "blendex"), "build", str(blend), "--root", str(tmp_path / "root"),
         "--store-patience", "1"],
        capture_output=True, text=True, env=os.environ | {"BLENDEX_STORES": json.dumps(stores)}, timeout=120,
        check=False,
    )  # fmt: skip
    assert ran.returncode == 1
    waiting = [line for line in ran.stderr.splitlines() if line.startswith("Waiting")]
    assert len(waiting) == 1
    assert "http://127.0.0.1:9" in waiting[0]
    assert "cannot be reached" in waiting[0]
    assert "store_unreachable" in ran.stderr + ran.stdout
