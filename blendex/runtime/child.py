"""A child process: runs one named function after another, as told through its pipe.

It ends when the pipe ends, also in the middle of a call, when its parent dies, and, before the node has to kill
somebody, when its memory passes the limit of the call in hand. Only functions ``run`` of the package named on the
command line can be called: what arrives through the pipe is data.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import re
import resource
import select
import signal
import sys
import threading
from typing import Any

from blendex.errors import BlendexError, passing
from blendex.runtime import footprint, frames
from blendex.runtime.inhand import InHand

# How a child says why it ended itself: its pages passed the limit, or an allocation was refused.
WATCHDOG_EXIT, LIMIT_EXIT = 77, 78
WATCH_SECONDS = 0.05
# A child that was given nothing for so long is at rest. Between units that follow each other nothing is dropped.
REST_SECONDS = 1.0
PR_SET_PDEATHSIG = 1
# RLIMIT_DATA counts what is reserved, the limit of a call means pages. What is reserved and untouched when a call
# begins is allowed on top, and this for the stacks and allocator arenas of threads that the call begins itself: a plan
# has 8 threads of 1 MiB and 2 arenas. So an allocation that outruns the watchdog goes this far and no farther.
RESERVED_BYTES = 32 * 2**20
STACK_BYTES = 2**20


def status_bytes(*names: str) -> tuple[int, ...]:
    """Figures of ``/proc/self/status``, in bytes; 0 for one that is not there."""
    with open("/proc/self/status", "rb") as status:
        text = status.read()
    found = (re.search(rb"\n%s:\s+(\d+) kB" % name.encode(), text) for name in names)
    return tuple(int(match.group(1)) * 1024 if match else 0 for match in found)


def anonymous_bytes() -> int:
    """Anonymous resident memory of this process: what cannot be dropped like page cache."""
    return status_bytes("RssAnon")[0]


class _Child:
    def __init__(self, package: str, inbox: int, outbox: int, hand: InHand) -> None:
        self.package = package
        self.inbox = inbox
        self.outbox = outbox
        self.hand = hand
        self.limit = 0
        self.peak = 0
        self.sort = ""
        self.peaks: dict[str, int] = {}
        self._lock = threading.Lock()

    def send(self, message: dict[str, Any]) -> None:
        data = memoryview(frames.encode(message))
        with self._lock:
            while data:
                data = data[os.write(self.outbox, data) :]

    def watch(self) -> None:
        """Look at the memory and at the pipe, many times a second, whatever the call does."""
        # Not counted as progress of the call.
        self.send({"watchdog": threading.get_native_id()})
        pipe = select.poll()
        pipe.register(self.inbox, 0)  # whether its other end is there; what it holds is for the main thread
        while True:
            used = self.measure()
            if self.limit and used > self.limit:
                os._exit(WATCHDOG_EXIT)
            if any(event & select.POLLHUP for _, event in pipe.poll(int(WATCH_SECONDS * 1000))):
                os._exit(0)

    def measure(self) -> int:
        """What is used now, noted for the sort of thing in hand."""
        used = anonymous_bytes()
        self.peak = max(self.peak, used)
        if sort := self.sort:
            self.peaks[sort] = max(self.peaks.get(sort, 0), used)
        return used

    def report(self, data: dict[str, Any]) -> None:
        """Pass on what the function reports. What it has ``in_hand`` is laid where the parent looks if it has to;
        ``sort`` in that says under which word its memory is noted from now on.
        """
        if (sort := data.get("sort")) is not None and sort != self.sort:
            if self.sort:
                self.measure()
            self.sort = sort
        if "in_hand" in data:
            self.hand.write(data)
        else:
            self.send({"progress": data})

    def limit_memory(self, limit: int) -> None:
        """Let this process have ``limit`` bytes of anonymous memory, all in all."""
        self.limit = limit
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if not limit:
            resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
            return
        used, data = status_bytes("RssAnon", "VmData")
        most = data + max(0, limit - used) + RESERVED_BYTES
        if hard != resource.RLIM_INFINITY:
            most = min(most, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))

    def call(self, message: dict[str, Any]) -> None:
        """Run one function and tell what came of it."""
        self.hand.write({})  # begun
        module, _, name = message["function"].partition(":")
        if not module.startswith(self.package + ".") or name != "run":
            raise ValueError(f"{message['function']} is not a function of {self.package}")
        function = importlib.import_module(module).run
        self.sort, self.peaks = "", {}
        self.peak = anonymous_bytes()
        self.limit_memory(int(message.get("memory", 0)))
        try:
            result = function(message["arguments"], self.report)
        except MemoryError:
            os._exit(LIMIT_EXIT)
        except BlendexError as error:
            self.send({"error": error.as_dict()})
        except Exception as error:
            sys.excepthook(type(error), error, error.__traceback__)
            if isinstance(error, OSError) and (named := passing(error)) is not None:
                self.send({"error": named.as_dict()})
                return
            self.send(
                {
                    "error": {
                        "code": "internal",
                        "message": f"{type(error).__name__} in {message['function']}.",
                    }
                }
            )
        else:
            self.measure()
            self.limit_memory(0)
            footprint.trim()
            self.send({"result": result, "peak": self.peak, "peaks": self.peaks, "rest": anonymous_bytes()})


def main() -> None:
    """Serve calls from standard input until it closes."""
    package, parent, hand = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the signal was armed
        os._exit(0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Ctrl-C goes to the whole foreground group: the parent decides what becomes of the work in hand.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    outbox = os.dup(1)
    os.dup2(2, 1)  # whatever a library prints is log, not protocol
    threading.stack_size(STACK_BYTES)
    child = _Child(package, 0, outbox, InHand(hand))
    os.close(hand)
    threading.Thread(target=child.watch, daemon=True).start()
    inbox = select.poll()
    inbox.register(child.inbox, select.POLLIN)
    with contextlib.suppress(BrokenPipeError):
        while True:
            if not inbox.poll(int(REST_SECONDS * 1000)):
                footprint.drop_code()
            if (message := frames.read(child.inbox)) is None:
                return
            child.call(message)
            del message
            footprint.trim()


if __name__ == "__main__":
    main()
