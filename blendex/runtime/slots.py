"""Slots: each holds one child process with its own pipe, so a killed child costs its own call and no other.

One long-lived supervisor thread creates every child, since PR_SET_PDEATHSIG follows the creating *thread*. It
alone touches children; callers start calls and take outcomes from a queue.
"""

from __future__ import annotations

import contextlib
import os
import queue
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import IO, Any, Protocol

from blendex.runtime import activity, frames
from blendex.runtime.budget import kernel_kills
from blendex.runtime.child import LIMIT_EXIT, WATCHDOG_EXIT
from blendex.runtime.inhand import InHand

TICK_SECONDS = 0.25
STDERR_TAIL = 4_000
# A child that has done many calls is replaced: arenas fragment, and a fresh one costs 0.2 s.
CALLS_PER_CHILD = 1_000
# One that kept so much of what it once needed is replaced, too: at rest a child has 20 MB.
GROWN_BYTES = 96 * 2**20
# Stalled: no byte read or written, and the processor used for less than this share of the time.
STALLED_SHARE = 0.01
LOOK_SECONDS = 1.0
# The supervisor looks several times a second: one that did not for so long was stopped.
PAUSED_SECONDS = 3.0
KEPT_VARIABLES = ("PATH", "PYTHONPATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "VIRTUAL_ENV")


@dataclass(frozen=True, slots=True)
class Call:
    """What a child shall do: ``function`` is ``module:run`` inside the runtime's package.

    ``memory``: bytes it may have, all in all; 0: any number. ``seconds``: its deadline. ``stall``: it is ended when it
    has not moved a byte for so many seconds, nor used the processor; 0: never.
    """

    function: str
    arguments: dict[str, Any]
    memory: int = 0
    seconds: float = 3600.0
    stall: float = 0.0


@dataclass(slots=True)
class Outcome:
    """How a call ended.

    ``cause``: done, error, memory, timeout, stall, signal, unstarted, cancelled, shutdown. ``how``: of memory, who
    noticed: ``limit`` (an allocation was refused), ``watchdog`` or ``kernel``; of a signal, its name, or the exit code.
    ``in_hand``: what the function had announced last, ``holding``: all that it said with it. ``peaks``: most memory by
    sort of thing.
    """

    ticket: int
    cause: str
    how: str = ""
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    progress: list[dict[str, Any]] = field(default_factory=list)
    holding: dict[str, Any] = field(default_factory=dict)
    peak: int = 0
    peaks: dict[str, int] = field(default_factory=dict)
    log: str = ""

    @property
    def in_hand(self) -> str | None:
        """What the function had announced last."""
        value: str | None = self.holding.get("in_hand")
        return value


class Runner(Protocol):
    """Runs calls; outcomes arrive in ``outcomes``."""

    outcomes: queue.Queue[Outcome]
    count: int

    def free(self) -> int: ...
    def idle(self) -> int: ...
    def used(self) -> int: ...
    def start(self, call: Call) -> int: ...
    def holding(self, ticket: int) -> dict[str, Any]: ...
    def cancel(self, ticket: int, cause: str = "cancelled") -> None: ...
    def close(self) -> None: ...


@dataclass(slots=True)
class _Work:
    ticket: int
    call: Call
    progress: list[dict[str, Any]] = field(default_factory=list)
    hand: InHand | None = None
    kill_cause: str | None = None
    deadline: float = 0.0
    moved: activity.Activity | None = None
    moved_at: float = 0.0


class _Process:
    """One child and what is under way with it; touched by the supervisor thread only."""

    def __init__(self, package: str) -> None:
        self.log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 -- closed with the child
        environment = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        # One thread, two arenas: a child's memory is what it holds, not what its libraries might.
        environment |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        environment["MALLOC_ARENA_MAX"] = "2"
        memory = InHand.create()
        try:
            self.hand = InHand(memory)
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "blendex.runtime.child", package, str(os.getpid()), str(memory)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.log,
                env=environment,
                close_fds=True,
                pass_fds=(memory,),
            )
        except BaseException:
            self.log.close()
            raise
        finally:
            os.close(memory)
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        self.inbox = self.popen.stdin.fileno()
        self.outbox = self.popen.stdout.fileno()
        os.set_blocking(self.inbox, False)
        os.set_blocking(self.outbox, False)
        self.decoder = frames.Decoder()
        self.unsent = memoryview(b"")
        self.work: _Work | None = None
        self.calls = 0
        self.watchdog = 0

    def tail(self) -> str:
        """The end of what the child printed."""
        size = self.log.seek(0, os.SEEK_END)
        self.log.seek(max(0, size - STDERR_TAIL))
        return self.log.read().decode(errors="replace")

    def end(self) -> int:
        """Close the pipes, make sure that it is gone; its return code."""
        for pipe in (self.popen.stdin, self.popen.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        try:
            code = self.popen.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            code = self.popen.wait()
        self.log.close()
        self.hand.close()
        return code


class Slots:
    """A fixed number of child processes.

    Args:
        count: slots.
        package: the package whose functions may be called, such as ``blendex.units``.
    """

    def __init__(self, count: int, package: str) -> None:
        self.count = count
        self.outcomes: queue.Queue[Outcome] = queue.Queue()
        self._package = package
        self._lock = threading.Lock()
        self._waiting: deque[_Work] = deque()
        self._active: dict[int, _Work] = {}
        self._next_ticket = 1
        self._closing = False
        self._idle: list[_Process] = []
        self._pids: set[int] = set()
        self._kernel_kills = self._counted = kernel_kills()
        self._looked = 0.0
        self._enforced = time.monotonic()
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._supervise, name="blendex-slots", daemon=True)
        self._thread.start()

    def free(self) -> int:
        """Calls that could start now."""
        with self._lock:
            return self.count - len(self._active)

    def idle(self) -> int:
        """Children that have nothing to do, and hold what a child holds at rest."""
        with self._lock:
            return len(self._pids) - min(len(self._pids), len(self._active))

    def used(self) -> int:
        """Bytes of anonymous memory that all children have now."""
        with self._lock:
            pids = list(self._pids)
        return sum(map(activity.anonymous_bytes, pids))

    def start(self, call: Call) -> int:
        """Begin a call; its ticket. The outcome comes through ``outcomes``, whatever happens."""
        with self._lock:
            work = _Work(self._next_ticket, call)
            self._next_ticket += 1
            self._active[work.ticket] = work
            self._waiting.append(work)
        self._wake()
        return work.ticket

    def holding(self, ticket: int) -> dict[str, Any]:
        """What the function of a call has announced last; empty before it did, and when the call has ended."""
        with self._lock:
            work = self._active.get(ticket)
            return {} if work is None or work.hand is None else work.hand.read() or {}

    def cancel(self, ticket: int, cause: str = "cancelled") -> None:
        """Kill the child that works on ``ticket``; its outcome says ``cause``."""
        with self._lock:
            if work := self._active.get(ticket):
                work.kill_cause = cause
        self._wake()

    def close(self) -> None:
        """Kill what runs (cause ``shutdown``) and end all children."""
        with self._lock:
            self._closing = True
            for work in self._active.values():
                work.kill_cause = work.kill_cause or "shutdown"
        self._wake()
        self._thread.join()
        # Not the supervisor: it may be through before it is woken, and the byte would go to whoever has the number.
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_write, b"\0")

    # Everything below runs in the supervisor thread.

    def _supervise(self) -> None:
        processes: set[_Process] = set()
        while True:
            for key, mask in self._selector.select(TICK_SECONDS):
                if key.data is None:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake_read, 4096)
                elif key.data in processes:
                    self._serve(key.data, mask, processes)
            self._enforce(processes)
            self._assign(processes)
            with self._lock:
                if self._closing and not self._active:
                    break
        for process in processes:
            self._forget(process)
            process.end()
        self._selector.close()

    def _forget(self, process: _Process) -> None:
        for descriptor in (process.inbox, process.outbox):
            with contextlib.suppress(KeyError):
                self._selector.unregister(descriptor)

    def _assign(self, processes: set[_Process]) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    return
                work = self._waiting.popleft()
            if work.kill_cause:
                self._finish(work, Outcome(work.ticket, work.kill_cause))
                continue
            process = self._idle.pop() if self._idle else None
            if process is not None and process.popen.poll() is not None:
                self._retire(process, processes)  # it ended while it had nothing to do: no call is to blame
                process = None
            if process is None:
                try:
                    process = _Process(self._package)
                except OSError as error:  # no process, descriptor or disk to be had: the call is lost, not the slots
                    self._finish(work, Outcome(work.ticket, "unstarted", log=f"No child could be started: {error}"))
                    continue
                processes.add(process)
                with self._lock:
                    self._pids.add(process.popen.pid)
                self._selector.register(process.outbox, selectors.EVENT_READ, process)
            process.hand.clear()
            with self._lock:
                process.work, work.hand = work, process.hand
            work.moved_at = time.monotonic()
            work.deadline = work.moved_at + work.call.seconds
            message = {
                "function": work.call.function,
                "arguments": work.call.arguments,
                "memory": work.call.memory,
            }
            process.unsent = memoryview(frames.encode(message))
            self._selector.register(process.inbox, selectors.EVENT_WRITE, process)

    def _serve(self, process: _Process, mask: int, processes: set[_Process]) -> None:
        if mask & selectors.EVENT_WRITE and process.unsent:
            try:
                process.unsent = process.unsent[os.write(process.inbox, process.unsent[: 1 << 20]) :]
            except BlockingIOError:
                pass
            except BrokenPipeError:
                process.unsent = memoryview(b"")
            if not process.unsent:
                self._selector.unregister(process.inbox)
        if mask & selectors.EVENT_READ:
            try:
                data = os.read(process.outbox, 1 << 20)
            except BlockingIOError:
                return
            if not data:
                self._died(process, processes)
                return
            for message in process.decoder.feed(data):
                self._message(process, message, processes)

    def _message(self, process: _Process, message: dict[str, Any], processes: set[_Process]) -> None:
        if "watchdog" in message:
            process.watchdog = message["watchdog"]
            return
        work = process.work
        if work is None:
            return
        if "progress" in message:
            work.progress.append(message["progress"])
            return
        process.work = None
        process.calls += 1
        outcome = Outcome(work.ticket, "done" if "result" in message else "error", progress=work.progress)
        outcome.result = message.get("result")
        outcome.error = message.get("error")
        outcome.peak = message.get("peak", 0)
        outcome.peaks = message.get("peaks", {})
        if outcome.error is not None:
            outcome.holding = process.hand.read() or {}
            outcome.log = process.tail()
        with self._lock:
            work.hand = None
        self._finish(work, outcome)
        if process.calls >= CALLS_PER_CHILD or outcome.cause == "error" or message["rest"] > GROWN_BYTES:
            self._retire(process, processes)
        else:
            self._idle.append(process)

    def _retire(self, process: _Process, processes: set[_Process]) -> int:
        self._forget(process)
        with self._lock:
            if process.work is not None:
                process.work.hand = None
        processes.discard(process)
        if process in self._idle:
            self._idle.remove(process)
        code = process.end()
        with self._lock:
            self._pids.discard(process.popen.pid)
        return code

    def _died(self, process: _Process, processes: set[_Process]) -> None:
        log = process.tail()
        told = process.hand.read()
        code = self._retire(process, processes)
        if (work := process.work) is None:
            return
        if told is None and process.calls and not work.kill_cause:
            # It was as good as dead when it was given the call, and never began it: another one does.
            with self._lock:
                self._waiting.appendleft(work)
            return
        how = ""
        if work.kill_cause:
            cause = work.kill_cause
        elif code in (WATCHDOG_EXIT, LIMIT_EXIT):
            cause, how = "memory", "watchdog" if code == WATCHDOG_EXIT else "limit"
        elif code == -signal.SIGKILL and kernel_kills() > self._kernel_kills:
            cause, how = "memory", "kernel"
        else:
            cause, how = "signal", signal.Signals(-code).name if code < 0 else f"exit code {code}"
            log = log or f"The child ended with {how}."
        self._kernel_kills = self._counted = kernel_kills()
        self._finish(work, Outcome(work.ticket, cause, how, progress=work.progress, holding=told or {}, log=log))

    def _enforce(self, processes: set[_Process]) -> None:
        now = time.monotonic()
        if now - self._enforced > PAUSED_SECONDS:
            # We were stopped, as with a paused machine, and so were the children: that time is nobody's.
            for process in processes:
                if process.work is not None:
                    process.work.deadline += now - self._enforced
                    process.work.moved_at += now - self._enforced
        self._enforced = now
        look = now - self._looked >= LOOK_SECONDS
        if look:
            self._looked = now
            self._kernel_kills = self._settled_kills()
        for process in processes:
            if (work := process.work) is None:
                continue
            if not work.kill_cause and now > work.deadline:
                work.kill_cause = "timeout"
            if not work.kill_cause and look and work.call.stall and self._stalled(process, work, now):
                work.kill_cause = "stall"
            if work.kill_cause:
                process.popen.kill()

    def _settled_kills(self) -> int:
        """The kernel's count of a second ago: a kill that we have not heard of yet still shows against it."""
        self._counted, settled = kernel_kills(), self._counted
        return max(settled, self._kernel_kills)

    def _stalled(self, process: _Process, work: _Work, now: float) -> bool:
        found = activity.of(process.popen.pid, process.watchdog)
        if work.moved is None or found.bytes != work.moved.bytes:
            work.moved, work.moved_at = found, now
            return False
        seconds = now - work.moved_at
        if seconds < work.call.stall:
            return False
        if found.seconds - work.moved.seconds > STALLED_SHARE * seconds:
            work.moved, work.moved_at = found, now
            return False
        return True

    def _finish(self, work: _Work, outcome: Outcome) -> None:
        with self._lock:
            del self._active[work.ticket]
        self.outcomes.put(outcome)
