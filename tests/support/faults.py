"""Faults that servers of the tests are asked for, by operation."""

from __future__ import annotations

import threading
from dataclasses import dataclass


@dataclass
class Fault:
    """One thing that goes wrong, so many times."""

    kind: str
    times: int = 1
    argument: float = 0.0
    key: str | None = None
    skip: int = 0


class Faults:
    """What shall go wrong, by operation: list, head, get, range, batch (proxy step), moss (target step)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, list[Fault]] = {}
        self.met: list[tuple[str, str]] = []

    def add(
        self, operation: str, kind: str, times: int = 1, argument: float = 0.0, key: str | None = None, skip: int = 0
    ) -> None:
        """Let it go wrong, after ``skip`` requests that go right."""
        with self._lock:
            self._waiting.setdefault(operation, []).append(Fault(kind, times, argument, key, skip))

    def clear(self) -> None:
        """Nothing goes wrong any more."""
        with self._lock:
            self._waiting.clear()

    def take(self, operation: str, key: str = "") -> Fault | None:
        """The fault of this request."""
        with self._lock:
            waiting = self._waiting.get(operation, [])
            for fault in waiting:
                if fault.key is None or fault.key == key:
                    if fault.skip > 0:
                        fault.skip -= 1
                        continue
                    fault.times -= 1
                    if fault.times <= 0:
                        waiting.remove(fault)
                    self.met.append((operation, fault.kind))
                    return fault
        return None
