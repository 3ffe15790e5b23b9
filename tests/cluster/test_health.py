"""``blendex worker --healthcheck``: what consumes is well, what merely lives is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.cluster import Worker, wait_for
from workers import liveness
from workers.liveness import Beat, trouble

pytestmark = pytest.mark.slow


def healthcheck(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from blendex.cli import main; main()", "worker", "--healthcheck"],
        env=os.environ | {"TMPDIR": str(folder)}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_worker_proves_that_it_consumes(tmp_path: Path) -> None:
    none = healthcheck(tmp_path)
    assert (none.returncode, none.stdout) == (1, "no worker runs here\n")
    environment = {"BLENDEX_ROOT": str(tmp_path / "root"), "TMPDIR": str(tmp_path), "BLENDEX_POLL_SECONDS": "0.2"}
    worker = Worker(environment)
    try:
        wait_for(worker.ready)
        well = wait_for(lambda: (found := healthcheck(tmp_path)).returncode == 0 and found)
        assert f"worker {worker.pid}: ok; last poll" in well.stdout
        worker.send(signal.SIGKILL)
        worker.popen.wait()
        assert healthcheck(tmp_path).returncode == 1
    finally:
        worker.close()


@pytest.mark.parametrize(
    ("beat", "told"),
    [
        (Beat("p", 999, 999, 999), ""),
        (Beat("p", 900, 900, 999), "the claim loop has stood still for 100 s"),
        (Beat("p", 999, 600, 999), "the catalog has not answered for 400 s"),
        (Beat("p", 999, 999, 600), "no heartbeat for 400 s"),
    ],
)
def test_what_is_wrong_is_told(beat: Beat, told: str) -> None:
    assert trouble(beat, 1000) == told
    assert liveness.folder().name.endswith(f".{os.getuid()}")
