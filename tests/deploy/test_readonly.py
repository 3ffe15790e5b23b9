"""A container's root filesystem is never written: the processes run in a mount namespace where it cannot be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from blendex.sample import make
from blendex.settings import Settings
from tests.support import services

pytestmark = pytest.mark.slow

# Everything is read-only but the root of mirrors and one small /var/tmp, as in the chart and the compose file.
SCRIPT = """
set -e
mount --make-rprivate /
mount --bind "$PLACE" "$PLACE"
mount -o remount,bind,ro /
mount -t tmpfs -o size=64m,mode=1777 tmpfs /var/tmp
if touch /var/blendex-was-here 2>/dev/null; then echo "the root can be written" >&2; exit 70; fi
cd /
blendex="$PYTHON -c 'from blendex.cli import main; main()'"
eval "$blendex db upgrade" >&2
eval "$blendex db check" >&2
eval "$blendex doctor" >&2
eval "exec 3>'$PLACE/worker.log'; $blendex worker --slots 1 2>&3 &"
worker=$!
eval "$blendex serve --port $PORT >'$PLACE/api.log' 2>&1 &"
api=$!
trap 'kill $worker $api; wait $worker $api' EXIT
url=http://127.0.0.1:$PORT
curl -fsS --noproxy '*' --retry 100 --retry-delay 1 --retry-connrefused --retry-max-time 60 -o /dev/null "$url/readyz"
curl -fsS --noproxy '*' --data-binary "@$PLACE/data/blend.yaml" "$url/v1/builds?wait=60&var=data_blend_dir=$PLACE/data"
curl -fsS --noproxy '*' "http://127.0.0.1:$BLENDEX_METRICS_PORT/healthz" >&2
"""


def test_nothing_is_written_but_the_root_of_mirrors(tmp_path: Path) -> None:
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        pytest.skip("mount namespaces are not allowed here")
    make(tmp_path / "data", utterances=4)
    environment = {
        "PATH": os.environ["PATH"], "PLACE": str(tmp_path), "PORT": str(services.free_port()), "PYTHON": sys.executable,
        "TMPDIR": "/var/tmp", "PYTHONDONTWRITEBYTECODE": "1", "BLENDEX_ROOT": str(tmp_path / "root"),
        "BLENDEX_ALLOWED_ROOTS": json.dumps([str(tmp_path / "data")]),
        "BLENDEX_METRICS_PORT": str(services.free_port()), "BLENDEX_MIGRATE": "false",
    }  # fmt: skip
    result = subprocess.run(
        ["unshare", "--mount", "sh", "-c", SCRIPT],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    logs = "".join(path.read_text() for path in tmp_path.glob("*.log"))
    assert result.returncode == 0, result.stderr + logs
    assert json.loads(result.stdout)["state"] == "ready"
    assert "Read-only file system" not in logs


def test_a_user_without_an_account_has_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("TMPDIR", "/var/tmp")
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # what it does when there is no home
    assert Settings(root=Path("/r")).state_dir == Path("/var/tmp/blendex")
