"""How much memory this process and its children may use: the smallest limit that holds here."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True)
class Budget:
    """Bytes, and where the limit comes from."""

    limit: int
    used: int
    source: str

    @property
    def left(self) -> int:
        """Bytes that may still be taken."""
        return max(0, self.limit - self.used)


def _number(path: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text())
    return None


def _inactive_file(path: Path) -> int:
    with contextlib.suppress(OSError):
        for line in path.read_text().splitlines():
            if line.startswith(("inactive_file ", "total_inactive_file ")):
                return int(line.split()[1])
    return 0


def _field(path: Path, name: str) -> int | None:
    with contextlib.suppress(OSError):
        for line in path.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == name and value.isdigit():
                return int(value)
    return None


def kernel_kills() -> int:
    """How many processes the kernel has killed for want of memory: in this cgroup, else on this host.

    Children live in the cgroup of their worker, so what groups below it count (``memory.events``) is somebody else's;
    kernels before 5.4 have no other count. Version 1 of cgroups counts in the group of the killed process alone, so
    there the host's count serves.
    """
    group = Path("/sys/fs/cgroup") / _own_group("").lstrip("/")
    for path in (
        group / "memory.events.local",
        group / "memory.events",
        Path("/proc/vmstat"),
    ):
        if (found := _field(path, "oom_kill")) is not None:
            return found
    return 0


def ledger_id(source: str) -> str:
    """What everybody has who shares a limit with this process, and nobody else: the kernel's boot, the limit's place.

    The path of a cgroup says nothing, since every container sees its own as ``/``; its inode does.
    """
    boot = "unknown"
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    with contextlib.suppress(OSError):
        found = Path(source).parent.stat()
        return f"{boot}:{found.st_dev}:{found.st_ino}"
    return f"{boot}:host"


def _own_group(controller: str) -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controller in controllers.split(",") or (controller == "" and controllers == ""):
                return path
    return "/"


def read_budget() -> Budget:
    """The memory budget now: cgroup v2, else cgroup v1, else the host.

    Use is current minus inactive file pages: page cache is given back when somebody needs the memory.
    """
    host = psutil.virtual_memory()
    for mount, group, limit_name, used_name in (
        (Path("/sys/fs/cgroup"), _own_group(""), "memory.max", "memory.current"),
        (
            Path("/sys/fs/cgroup/memory"),
            _own_group("memory"),
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
        ),
    ):
        for folder in (mount / group.lstrip("/"), mount):
            limit = _number(folder / limit_name)
            used = _number(folder / used_name)
            if limit is not None and used is not None and limit < host.total:
                return Budget(limit, used - _inactive_file(folder / "memory.stat"), str(folder / limit_name))
    return Budget(host.total, host.total - host.available, "host memory")
