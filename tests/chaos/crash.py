"""Run a build in a forked process that is killed before its N-th change of disk or catalog."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import Engine, event

# Every call by which the bundle and publish protocols, and names, change the disk. Reading opens are not counted.
CHANGES = (
    "write", "pwrite", "fsync", "ftruncate", "link", "rename", "mkdir", "rmdir", "unlink", "chmod", "utime",
)  # fmt: skip


class Counter:
    """Counts changes; at ``stop_at`` the process is killed just before the change happens."""

    def __init__(self, stop_at: int = 0) -> None:
        self.count = 0
        self.stop_at = stop_at
        self.trail: list[str] = []

    def hit(self, what: str) -> None:
        self.count += 1
        self.trail.append(what)
        if self.count == self.stop_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def _wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.hit(name)
            if name in ("write", "pwrite") and self.count + 1 == self.stop_at and len(args[1]) > 1:
                # The crash that comes next also finds this write half done.
                return real(args[0], memoryview(args[1])[: len(args[1]) // 2], *args[2:])
            return real(*args, **kwargs)

        return call

    @contextlib.contextmanager
    def patched(self) -> Iterator[None]:
        real_open = os.open
        saved = {name: getattr(os, name) for name in CHANGES}

        def opened(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
            if flags & os.O_CREAT:
                self.hit("create")
            return real_open(path, flags, *args, **kwargs)

        os.open = opened  # type: ignore[assignment]
        for name, real in saved.items():
            setattr(os, name, self._wrap(name, real))
        try:
            yield
        finally:
            os.open = real_open
            for name, real in saved.items():
                setattr(os, name, real)

    def watch(self, engine: Engine) -> None:
        event.listen(engine, "commit", lambda _connection: self.hit("commit"))


def in_child(action: Callable[[], None]) -> int:
    """Run ``action`` in a forked process; its exit status: 0, 1 for an exception, -9 when it was killed."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            action()
            code = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)
