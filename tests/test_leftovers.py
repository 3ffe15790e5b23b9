"""What the tests start ends with them, also when they are killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import leftovers, services

START = "import sys\nfrom tests.support import services\nserver = getattr(services, sys.argv[1])()\n"
TELL = "print(server.place.path, server.place.guard.pid, flush=True)\nsys.stdin.read()\n"


@pytest.fixture(params=["Postgres", "Redis"])
def owner(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """A process that started a server, and told its folder and its guard."""
    there = services.has_postgres() if request.param == "Postgres" else shutil.which("redis-server") is not None
    if not there and not os.environ.get("CI"):
        pytest.skip(f"{request.param} is not installed")
    command = [sys.executable, "-c", START + TELL, request.param]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def told(owner: subprocess.Popen[str]) -> tuple[Path, int]:
    assert owner.stdout is not None
    folder, guard = owner.stdout.readline().split()
    assert leftovers.inside(Path(folder))
    return Path(folder), int(guard)


def test_a_server_ends_when_the_process_that_started_it_is_killed(owner: subprocess.Popen[str]) -> None:
    folder, _ = told(owner)
    owner.kill()
    deadline = time.monotonic() + 60
    while folder.exists() or leftovers.inside(folder):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_server_whose_guard_was_killed_too_ends_when_the_next_one_starts(owner: subprocess.Popen[str]) -> None:
    folder, guard = told(owner)
    leftovers.sweep()
    assert leftovers.inside(folder), "its owner lives"
    os.kill(guard, signal.SIGKILL)
    owner.kill()
    owner.wait()
    assert leftovers.inside(folder)
    leftovers.sweep()
    assert not folder.exists()
    assert not leftovers.inside(folder)
