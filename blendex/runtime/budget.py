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
