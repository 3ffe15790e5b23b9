"""Whether a worker of this host consumes: what it tells of itself in a file, for a probe without ports or a database.

A process id proves nothing, since a process may hang. The file says, by the kernel's monotonic clock, when the claim
loop turned last, when the catalog answered it last, and when it took a heartbeat last.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from blendex.runtime import activity

WRITE_SECONDS = 2.0
# A claim loop turns at every poll, whether the catalog answers or not.
STUCK_SECONDS = 60.0
# The catalog did not answer for so long: whoever restarts the process does no harm, and may mend it.
STALE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Beat:
    """Moments by the monotonic clock."""

    process: str
    turned: float
    polled: float
    beaten: float


def folder() -> Path:
    """Where workers of this user tell of themselves."""
    return Path(tempfile.gettempdir()) / f"blendex-workers.{os.getuid()}"


def trouble(beat: Beat, now: float) -> str:
    """Why a worker should be restarted; empty when it should not."""
    if now - beat.turned > STUCK_SECONDS:
        return f"the claim loop has stood still for {now - beat.turned:.0f} s"
    if now - beat.polled > STALE_SECONDS:
        return f"the catalog has not answered for {now - beat.polled:.0f} s"
    if now - beat.beaten > STALE_SECONDS:
        return f"no heartbeat for {now - beat.beaten:.0f} s"
    return ""


class Teller:
    """Writes the file, every two seconds, until it is closed."""

    def __init__(self, beat: Callable[[], Beat]) -> None:
        self._beat = beat
        self._stop = threading.Event()
        self._path = folder() / f"{os.getpid()}.json"
        self._thread = threading.Thread(target=self._run, name="blendex-health", daemon=True)
        folder().mkdir(mode=0o700, exist_ok=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            private = self._path.with_suffix(".new")
            with contextlib.suppress(OSError):  # a full disk: the last one grows old
                private.write_text(json.dumps(asdict(self._beat())))
                private.replace(self._path)
            if self._stop.wait(WRITE_SECONDS):
                return

    def close(self) -> None:
        """Stop, and take the file away."""
        self._stop.set()
        self._thread.join()
        self._path.unlink(missing_ok=True)


def check() -> tuple[bool, list[str]]:
    """Whether there is a worker of this user here, and every one consumes; with a line for each."""
    lines = []
    well = True
    for path in sorted(folder().glob("*.json")):
        try:
            beat = Beat(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):
            continue  # it just ended
        if activity.lives(beat.process) is False:
            path.unlink(missing_ok=True)
            continue
        reason = trouble(beat, time.monotonic())
        well = well and not reason
        polled, beaten = time.monotonic() - beat.polled, time.monotonic() - beat.beaten
        lines.append(
            f"worker {path.stem}: {reason or 'ok'}; last poll {polled:.1f} s ago, last heartbeat {beaten:.1f} s ago"
        )
    return well and bool(lines), lines or ["no worker runs here"]
