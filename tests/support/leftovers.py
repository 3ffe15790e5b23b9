"""Servers of the tests end with the process that started them, however that ended: by Ctrl-C, a kill, a crash.

Each works in a folder of its own, whose name says which process it is of. A guard, this module as a program, waits at
the other end of a pipe until that process is gone. (A parent-death signal would not do: it follows a thread, and is
lost when a server changes its account.) Where the guard was killed as well, the next who starts a server sweeps.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OWNED = re.compile(r"blendex-(?:pg|redis)-(\d+)-(\d+)-\w+")
PATIENCE = 5.0  # seconds in which a server ends by itself


def _born(pid: int) -> str | None:
    """When a process began, which tells it from a later one of the same number; None when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return None


def inside(folder: Path) -> list[int]:
    """The processes that work in a folder."""
    found = []
    for link in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if Path(os.readlink(link)).is_relative_to(folder):
                found.append(int(link.parent.name))
    return found


def remove(folder: Path) -> None:
    """End what works in a folder, and delete it."""
    ends = time.monotonic() + PATIENCE
    how = signal.SIGQUIT  # at which PostgreSQL gives its shared memory back
    while left := inside(folder):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, how)
        time.sleep(0.1)
        how = signal.SIGKILL if time.monotonic() > ends else how
    shutil.rmtree(folder, ignore_errors=True)


def sweep() -> None:
    """Remove what processes that are gone have left."""
    for folder in Path(tempfile.gettempdir()).iterdir():
        owner = OWNED.fullmatch(folder.name)
        if owner is not None and _born(int(owner[1])) != owner[2]:
            remove(folder)


class Place:
    """The folder of a server, guarded until it is closed.

    Args:
        kind: pg or redis.
    """

    def __init__(self, kind: str) -> None:
        sweep()
        self.path = Path(tempfile.mkdtemp(prefix=f"blendex-{kind}-{os.getpid()}-{_born(os.getpid())}-"))
        self.guard = subprocess.Popen(
            [sys.executable, "-S", "-E", __file__, str(self.path)],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def close(self) -> None:
        """Remove it; the guard ends."""
        remove(self.path)
        assert self.guard.stdin is not None
        self.guard.stdin.close()
        self.guard.wait()


if __name__ == "__main__":
    sys.stdin.read()
    remove(Path(sys.argv[1]))
