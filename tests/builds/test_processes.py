"""Whole processes on one root: their own databases, a service beside builders, kills, a user without rights."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from blendex.builds.run import run_build
from blendex.builds.site import Site
from tests.chaos.crash import in_child
from tests.support.corpus import corpus, put, sidecars, site, submission, wait_until_calm
from tests.support.inline import InlineRunner

pytestmark = pytest.mark.slow

OpenSite = Callable[..., Site]
COMMAND = [sys.executable, "-c", "from blendex.cli import main; main()"]
NOBODY = 65534


def start(*arguments: str, root: Path, **extra: str) -> subprocess.Popen[str]:
    environment = os.environ | {"BLENDEX_ROOT": str(root), "BLENDEX_LEASE_SECONDS": "1.5", "NO_PROXY": "*"} | extra
    return subprocess.Popen(
        [*COMMAND, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def end(process: subprocess.Popen[str]) -> dict[str, object]:
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    result: dict[str, object] = json.loads(output)
    return result


@pytest.fixture
def service(tmp_path: Path, data: Path) -> Iterator[httpx.Client]:
    process = start("serve", "--port", "0", "--allow-root", str(data), root=tmp_path / "root")
    assert process.stdout is not None
    assert process.stderr is not None
    address = process.stdout.readline().strip()
    with httpx.Client(base_url=address, timeout=90, trust_env=False) as client:
        yield client
    process.terminate()
    errors = process.communicate(timeout=30)[1]
    assert "Traceback" not in errors, errors


def test_two_builders_with_databases_of_their_own_end_in_one_mirror(data: Path, tmp_path: Path) -> None:
    blend = put(data / "blend.yaml", corpus(data, shards=60).encode())
    root = tmp_path / "root"
    both = [
        start("build", str(blend), "--json", root=root, BLENDEX_DATABASE_URL=f"sqlite:///{tmp_path}/{name}.sqlite")
        for name in ("one", "two")
    ]
    results = [end(process) for process in both]
    assert results[0]["path"] == results[1]["path"]
    assert len(os.listdir(root / "mirrors")) == 1
    assert len(os.listdir(root / "builds")) == 2


def test_a_service_beside_two_builders_one_of_them_killed(
    service: httpx.Client, data: Path, tmp_path: Path, open_site: OpenSite
) -> None:
    text = corpus(data, shards=150, rows=10)
    blend = put(data / "blend.yaml", text.encode())
    root = tmp_path / "root"
    victim, survivor = (start("build", str(blend), "--json", root=root) for _ in range(2))
    deadline = time.monotonic() + 60
    while not any(row["state"] == "indexing" for row in service.get("/v1/builds").json()["builds"]):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    posted = service.post("/v1/builds", params={"wait": 60}, content=text).json()
    result = end(survivor)
    assert posted["path"] == result["path"]
    calm = run_build(open_site(tmp_path / "calm"), submission(text, data), runner=InlineRunner())
    assert sidecars(str(result["path"])) == sidecars(calm["path"])


def test_the_command_line_against_a_service(service: httpx.Client, data: Path, tmp_path: Path) -> None:
    put(data / "sub/en.yaml", corpus(data, shards=2).encode())
    blend = put(data / "blend.yaml", b"- {type: group, input_cfg: sub/en.yaml}\n")
    wait_until_calm()  # else the preview after the build rightly says that its sources must be read again
    ask = ("--json", "--server", str(service.base_url))
    root = tmp_path / "unused"
    plan = end(start("plan", str(blend), *ask, root=root))
    assert (plan["sources"], plan["path"]) == (4, None)
    built = end(start("build", str(blend), "--name", "there", *ask, root=root))
    assert str(built["path"]).startswith(str(tmp_path / "root"))
    assert end(start("plan", str(blend), *ask, root=root))["path"] == built["path"]
    for command in (("builds",), ("mirrors",), ("names",)):
        assert len(end(start(*command, *ask, root=root))) == 1
    assert end(start("names", "show", "there", *ask, root=root))["path"] == built["path"]
    assert end(start("mirrors", "show", str(built["mirror"]), *ask, root=root))["receipt"]
    assert end(start("builds", "show", str(built["id"]), *ask, root=root))["state"] == "ready"
    failed = start("builds", "show", "nothing", *ask, root=root)
    assert "there is no build" in failed.communicate()[1]
    assert not root.exists()


def test_sigterm_hands_back_what_runs(data: Path, tmp_path: Path) -> None:
    text = corpus(data, shards=100)
    process = start("serve", "--port", "0", "--allow-root", str(data), root=tmp_path / "root")
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    with httpx.Client(base_url=address, timeout=30, trust_env=False) as client:
        assert client.post("/v1/builds", content=text).status_code == 202
    process.terminate()
    process.communicate(timeout=30)
    opened = site(tmp_path / "root")
    with opened.work.read() as session:
        from sqlalchemy import text as sql

        assert session.execute(sql("SELECT count(*) FROM units WHERE state = 'leased'")).scalar_one() == 0
    opened.work.engine.dispose()


def test_a_user_without_rights_can_build_link_and_touch() -> None:
    """As root everything is allowed: where the tests run as root, this goes on as nobody, in a forked process."""
    home = Path(tempfile.mkdtemp(prefix="blendex-test-", dir="/tmp"))
    home.chmod(0o755)
    try:
        data = home / "data"
        text = corpus(data, shards=2)
        opened = site(home / "root")
        # Warm: what is imported late must be there before the rights to read the interpreter's files are gone.
        run_build(opened, submission(corpus(data, shards=1, name="warm"), data), runner=InlineRunner())
        opened.work.engine.dispose()
        if os.geteuid() == 0:
            for path in (home, *home.rglob("*")):
                os.chown(path, NOBODY, NOBODY)

        def go_on() -> None:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)

            def build(text: str) -> Path:
                result = run_build(opened, submission(text, data), runner=InlineRunner())
                assert result["state"] == "ready", result
                return Path(result["path"])

            first = build(text)
            wait_until_calm()
            os.utime(data / "a/manifest_0.json", ns=(4 * 10**18, 4 * 10**18))
            assert build(text) == first
            second = build(text + f"- {{type: nemo, manifest_filepath: {put(data / 'x.json', b'{}')}}}\n")
            assert second != first
            assert stat.S_IMODE(second.stat().st_mode) == 0o555
            assert len([path for path in second.rglob("*.idx") if path.stat().st_nlink == 2]) == 4
            with pytest.raises(PermissionError):
                (second / "idx/new").write_bytes(b"")

        assert in_child(go_on) == 0
    finally:
        for folder, _, _ in os.walk(home):
            os.chmod(folder, 0o700)
        shutil.rmtree(home)
