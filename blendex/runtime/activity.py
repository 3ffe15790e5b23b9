"""What another process of ours does: bytes moved, processor used, memory held. Read from ``/proc``."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Activity:
    """Since the start of a process: bytes read and written by whatever call, and seconds of processor time.

    Time for which a thread was ready and got no processor counts as if it had: a machine that is too busy for a thread
    says nothing of what the thread does.
    """

    bytes: int
    seconds: float


def of(pid: int, but: int = 0) -> Activity:
    """What the threads of a process did, but for one of them; zeros once it is gone."""
    moved = nanoseconds = 0
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            if int(thread) == but:
                continue
            with contextlib.suppress(OSError):  # a thread may end at any time
                with open(f"/proc/{pid}/task/{thread}/io", "rb") as file:
                    fields = file.read().split()
                    moved += int(fields[1]) + int(fields[3])
                with open(f"/proc/{pid}/task/{thread}/schedstat", "rb") as file:
                    nanoseconds += sum(map(int, file.read().split()[:2]))
    return Activity(moved, nanoseconds / 1e9)


def anonymous_bytes(pid: int) -> int:
    """Anonymous resident memory of a process; 0 once it is gone."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", "rb") as file:
        for line in file:
            if line.startswith(b"RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0


def born(pid: int) -> str:
    """When a process was started, as its kernel tells: a number that its successor under the same id has not."""
    with contextlib.suppress(OSError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[19].decode()
    return ""


def identity(pid: int) -> str:
    """A name of a process that no other one ever has: where ids are counted, its id, when it was started."""
    with contextlib.suppress(OSError):
        return f"{os.stat('/proc/self/ns/pid').st_ino}:{pid}:{born(pid)}"
    return f"0:{pid}:{born(pid)}"


def lives(name: str) -> bool | None:
    """Whether the process of that ``identity`` still runs; None when this process cannot see it."""
    space, _, rest = name.partition(":")
    pid, _, start = rest.partition(":")
    if not pid.isdigit() or identity(os.getpid()).partition(":")[0] != space:
        return None
    return born(int(pid)) == start
