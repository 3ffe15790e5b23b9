"""A child process: runs one named function after another, as told through its pipe.

It ends when the pipe ends, when its parent dies, and, before the node has to kill somebody, when its memory
passes the limit of the call in hand. Only functions ``run`` of the package named on the command line can be
called: what arrives through the pipe is data.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import re
import resource
import signal
import sys
import threading
import time
import traceback
from typing import Any

from blendex.errors import BlendexError
from blendex.runtime import frames

MEMORY_EXIT = 77
WATCH_SECONDS = 0.05
PR_SET_PDEATHSIG = 1
# Address space that Python, numpy and thread stacks reserve as data without touching it; RLIMIT_DATA counts
# reservations, the watchdog counts pages. Measured: 5 threads of 8 MiB stacks and allocator arenas stay under.
RESERVED_BYTES = 256 * 2**20


def anonymous_bytes() -> int:
    """Anonymous resident memory of this process: what cannot be dropped like page cache."""
    with open("/proc/self/status", "rb") as status:
        match = re.search(rb"RssAnon:\s+(\d+) kB", status.read())
    return int(match.group(1)) * 1024 if match else 0


class _Child:
    def __init__(self, package: str, inbox: int, outbox: int) -> None:
        self.package = package
        self.inbox = inbox
        self.outbox = outbox
        self.limit = 0
        self.peak = 0
        self._lock = threading.Lock()

    def send(self, message: dict[str, Any]) -> None:
        data = memoryview(frames.encode(message))
        with self._lock:
            while data:
                data = data[os.write(self.outbox, data) :]

    def watch(self) -> None:
        while True:
            used = anonymous_bytes()
            self.peak = max(self.peak, used)
            if self.limit and used > self.limit:
                os._exit(MEMORY_EXIT)
            time.sleep(WATCH_SECONDS)

    def call(self, message: dict[str, Any]) -> None:
        module, _, name = message["function"].partition(":")
        if not module.startswith(self.package + ".") or name != "run":
            raise ValueError(f"{message['function']} is not a function of {self.package}")
        self.limit = int(message.get("memory", 0))
        self.peak = anonymous_bytes()
        if self.limit:
            _, hard = resource.getrlimit(resource.RLIMIT_DATA)
            resource.setrlimit(resource.RLIMIT_DATA, (self.limit + RESERVED_BYTES, hard))
        function = importlib.import_module(module).run
        try:
            result = function(message["arguments"], lambda data: self.send({"progress": data}))
        except MemoryError:
            os._exit(MEMORY_EXIT)
        except BlendexError as error:
            self.send({"error": error.as_dict()})
        except Exception as error:
            traceback.print_exc()
            self.send(
                {
                    "error": {
                        "code": "internal",
                        "message": f"{type(error).__name__} in {message['function']}.",
                    }
                }
            )
        else:
            self.peak = max(self.peak, anonymous_bytes())
            self.send({"result": result, "peak": self.peak})


def main() -> None:
    """Serve calls from standard input until it closes."""
    package, parent = sys.argv[1], int(sys.argv[2])
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the signal was armed
        os._exit(0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Ctrl-C goes to the whole foreground group: the parent decides what becomes of the work in hand.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    outbox = os.dup(1)
    os.dup2(2, 1)  # whatever a library prints is log, not protocol
    child = _Child(package, 0, outbox)
    threading.Thread(target=child.watch, daemon=True).start()
    with contextlib.suppress(BrokenPipeError):
        while (message := frames.read(child.inbox)) is not None:
            child.call(message)


if __name__ == "__main__":
    main()
