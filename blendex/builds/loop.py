"""The claim loop: takes units from the catalog, runs them in slots, brings back what comes of them.

The same loop is the embedded form, ``blendex build`` and a worker's heart. It polls, so a lost wake-up costs a
second and nothing else. Leases are renewed by a thread of their own: taking over a large plan may take seconds.

The database may go away at any point and come back. Claiming, renewing and reaping are tried again; an outcome is kept
and told when the database answers, and its fence says whether it still counts. A lease that nobody renewed
meanwhile runs out, and whoever is first claims the unit.
"""

from __future__ import annotations

import os
import queue
import random
import socket
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from blendex.builds import abilities, admission, causes, disk, indexing, packing, planning, publishing, reap
from blendex.builds.site import Site
from blendex.catalog import builds, deaths, dialect, pauses, states, workers
from blendex.catalog.models import Unit
from blendex.errors import BlendexError, Code, passing
from blendex.observability import logs, metrics, traces
from blendex.runtime import activity
from blendex.runtime.budget import ledger_id, read_budget
from blendex.runtime.slots import Call, Outcome, Runner
from blendex.version import __version__

ROOMS: dict[str, Any] = {"plan": planning, "index": indexing, "pack": packing, "publish": publishing}
# What the parent itself and the page cache it works with need.
RESERVE_BYTES = 256 * 2**20
REAP_SECONDS = 5.0
# An outcome of so many sources is taken over in about 10 ms.
LIGHT_SOURCES = 256
# Between two tries to reach a database that is away.
AWAY_FIRST, AWAY_MOST = 0.1, 2.0
# The disk is full: what writes is not begun for so long, then tried again.
PAUSE_SECONDS = 10.0
WAKE = Outcome(0, "wake")  # tickets begin at 1

# A lost lease may come back as another one, of the same unit, while the first attempt is still under way.
Key = tuple[int, int]  # unit, fence

logger = logs.get_logger("blendex.worker")


@dataclass(slots=True)
class _Held:
    """A unit that this loop holds a lease of."""

    unit: Unit
    since: float
    memory: int  # promised
    ticket: int | None = None
    lost: bool = False
    span: Any = None
    ending: bool = False  # its outcome is being told: that it is not leased any more is as it should be


class ClaimLoop:
    """Works for one site until it is told to stop.

    Args:
        site: root and catalog.
        runner: slots that run the functions of ``blendex.units``.
        idle: called between claims; returning True ends the loop.
        classes: the work to claim.
        budget: bytes of memory that all units together may be predicted to take; None: what there is.
        threads: threads that prepare calls and take over outcomes, so that a large plan or publication keeps nothing
            else waiting. 0 does it in the loop's own thread, one after another.
        relay: told after transactions that may have left wake-ups in the outbox; None: this loop is the only one
            that could be woken, and needs no telling.
    """

    def __init__(
        self,
        site: Site,
        runner: Runner,
        idle: Callable[[], bool] = lambda: False,
        *,
        classes: Sequence[str] = states.CLASSES,
        budget: int | None = None,
        threads: int = 0,
        relay: Callable[[], None] | None = None,
    ) -> None:
        self.site = site
        self.runner = runner
        self.worker = f"{socket.gethostname()}.{os.getpid()}.{uuid.uuid4().hex[:8]}"
        self._idle = idle
        self._process = activity.identity(os.getpid())
        self._source = read_budget().source
        self._ledger = ledger_id(self._source)
        self._why: str | None = None
        self._told = workers.Told(0, None)
        self._classes = tuple(classes)
        self._budget = budget
        self._relay = relay
        self._pool = ThreadPoolExecutor(threads, "blendex-errand") if threads else None
        self._errands: set[Future[None]] = set()
        self._held: dict[Key, _Held] = {}
        self._tickets: dict[int, Key] = {}
        self._outcomes: deque[tuple[Unit, Outcome]] = deque()  # heard of, and not taken over yet
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._deadline = 0.0
        self._ended = threading.Event()
        self._wake = threading.Event()
        self._reaped = time.monotonic() - REAP_SECONDS
        self._pause = AWAY_FIRST
        self.polled = time.monotonic()  # when the catalog answered last, for probes
        self.beaten = time.monotonic()  # when it took a heartbeat last
        self.turned = time.monotonic()  # when this loop went round last, whether anybody answered or not

    def stop(self, drain_seconds: float = 0.0) -> None:
        """Claim nothing more and end: as soon as what runs has ended, or after ``drain_seconds`` handing it back."""
        self._deadline = time.monotonic() + drain_seconds
        self._stop.set()
        self.wake()

    def wake(self) -> None:
        """There may be work."""
        if not self._wake.is_set():
            self._wake.set()
            self.runner.outcomes.put(WAKE)

    def run(self) -> None:
        """Work until ``stop`` or until ``idle`` says so."""
        self._patiently(lambda: self._beat("working"))
        heart = threading.Thread(target=self._renew, name="blendex-leases", daemon=True)
        heart.start()
        try:
            while not self._stop.is_set() and not self._patiently(self._idle):
                self._wake.clear()
                # A free slot gets its next unit first; what came of its last one is taken over meanwhile. But what is
                # taken over at once comes before: it may bring a small build's next unit, whose turn it is.
                self._settle_light()
                claimed = self._patiently(self._turn)
                settled = self._settle_all()
                self._hear(wait=not claimed and not settled)
            while self._stop.is_set() and self._any_held() and time.monotonic() < self._deadline:
                self._take_outcomes(wait=True)
        finally:
            self._stop.set()
            self.runner.close()
            self._take_outcomes(wait=False)
            if self._pool is not None:
                self._pool.shutdown()
                self._take_outcomes(wait=False)
            self._ended.set()
            heart.join()
            self._patiently(self._leave)

    def _any_held(self) -> bool:
        with self._lock:
            return bool(self._held)

    def _patiently(self, action: Callable[[], Any]) -> Any:
        """What ``action`` returns; None when the database did not answer, after a pause that grows."""
        self.turned = time.monotonic()
        try:
            result = action()
        except dialect.AWAY as error:
            metrics.DATABASE_AWAY.inc()
            logger.warning("database_away", error=type(error).__name__)
            if not self._stop.is_set():
                self._stop.wait(self._pause * random.uniform(0.5, 1))  # noqa: S311
            self._pause = min(self._pause * 2, AWAY_MOST)
            return None
        self._pause = AWAY_FIRST
        self.polled = time.monotonic()
        return result

    def _renew(self) -> None:
        """The heart: renews all leases in one statement, tells that this worker is there, stops what was lost."""
        pause = every = self.site.settings.lease_seconds / 3
        while not self._ended.wait(pause):
            pause = every
            try:
                asked, held = self._beat("draining" if self._stop.is_set() else "working")
            except dialect.AWAY:
                pause = min(every, AWAY_MOST)  # the sooner the better; the fence decides
                continue
            with self._lock:
                lost = [
                    item
                    for key in asked - held
                    if (item := self._held.get(key)) is not None and not item.lost and not item.ending
                ]
                for item in lost:
                    item.lost = True
            for item in lost:
                if item.ticket is None:
                    continue  # it was never begun, and will not be
                metrics.LEASES_LOST.inc()
                logger.warning("lease_lost", unit=item.unit.id, build=item.unit.build)
                self.runner.cancel(item.ticket)

    def _beat(self, state: str) -> tuple[set[Key], set[Key]]:
        """Renew and tell; the leases that were asked for, and of them those that this worker has."""
        settings = self.site.settings
        with self._lock:
            units = [item.unit for item in self._held.values()]
            asked = set(self._held)
            tickets = [(item.ticket, item.unit) for item in self._held.values() if item.ticket is not None]
        hands = [
            {"unit": unit.id, "work": unit.work, "source": source}
            for ticket, unit in tickets
            if (source := self.runner.holding(ticket).get("in_hand")) is not None
        ]
        budget = self._limit()
        taken, used = self._taken(), self.runner.used()
        metrics.SLOTS.set(self.runner.count)
        metrics.SLOTS_BUSY.set(len(units))
        metrics.MEMORY_BUDGET.set(budget)
        metrics.MEMORY_TAKEN.set(taken)
        metrics.MEMORY_USED.set(used)
        with self.site.work.write() as session:
            held: set[Key] = set()
            if units:
                ids = sorted({unit.id for unit in units})
                held = states.renew_leases(session, self.worker, settings.lease_seconds, ids)
            workers.beat(
                session,
                self.worker,
                settings.lease_seconds,
                {
                    "host": socket.gethostname(),
                    "pid": os.getpid(),
                    "version": __version__,
                    "state": state,
                    "classes": list(self._classes),
                    "slots": self.runner.count,
                    "busy": len(units),
                    "budget": budget,
                    "taken": taken,
                    "used": used,
                    "ledger": self._ledger,
                    "process": self._process,
                    "waiting": self._why,
                    "recipes": abilities.own(),
                    "in_hand": hands,
                },
                ago=time.monotonic() - self.polled,
            )
        self.beaten = time.monotonic()
        return asked, held

    def _leave(self) -> None:
        with self.site.work.write() as session:
            workers.leave(session, self.worker)

    def _limit(self) -> int:
        limit = read_budget().limit - RESERVE_BYTES
        return limit if self._budget is None else min(limit, self._budget)

    def _promised(self) -> int:
        """Bytes, for what runs or is about to; under the lock. A child that ended its unit is at rest."""
        return sum(item.memory for item in self._held.values() if not item.ending)

    def _taken(self) -> int:
        """Promised to what runs here, and held by children that rest."""
        with self._lock:
            return self._promised() + self.runner.idle() * admission.REST_BYTES

    def _free(self) -> int:
        """Slots that nothing runs in or is about to."""
        with self._lock:
            preparing = sum(item.ticket is None for item in self._held.values())
        return self.runner.free() - preparing

    def _turn(self) -> bool:
        """Reap when it is time, start what fits; True when something was started or decided."""
        now = time.monotonic()
        every = min(REAP_SECONDS, self.site.settings.lease_seconds / 3)
        if now - self._reaped >= every:
            self._reaped = now + random.uniform(0, every / 5)  # noqa: S311 -- so that workers do it in turn
            reap.reap(self.site)
        any_claimed = False
        while not self._stop.is_set() and self._free() > 0:
            unit = self._claim()
            if unit is None:
                break
            any_claimed = True
            self._errand(self._start, unit)
        return any_claimed

    def _claim(self) -> Unit | None:
        with self.site.work.write() as session:
            if self._relay is None and (told := builds.outbox(session)):
                builds.told(session, [number for number, _ in told])
            with self._lock:
                promised = self._promised()
            verdict = admission.admit(
                session,
                admission.Own(
                    self.worker, self._ledger, socket.gethostname(), self._source,
                    self._limit() - self.runner.idle() * admission.REST_BYTES,
                    promised, self.runner.used(), RESERVE_BYTES, self.site.settings.lease_seconds, self._classes,
                    abilities.able(),
                ),
                read_budget,
                activity.lives,
                self.site.settings.reserve_seconds,
            )  # fmt: skip
            message = workers.Told(self._taken() + verdict.memory, verdict.why)
            if message != self._told:
                workers.tell(session, self.worker, message)
            unit = verdict.unit
            if unit is not None:
                session.flush()
                session.expunge(unit)
        self._told, self._why = message, verdict.why
        if unit is None:
            return None
        metrics.CLAIMS.labels(unit.work).inc()
        with self._lock:
            held = self._held[unit.id, unit.fence] = _Held(unit, time.monotonic(), verdict.memory)
        held.span = traces.begin(
            f"blendex.{unit.work}", unit.traceparent, build=unit.build, unit=unit.id, attempt=unit.fence
        )
        return unit

    def _errand(self, what: Callable[..., None], unit: Unit, *arguments: Any, here: bool = False) -> None:
        """Do something for a unit, in a thread of the pool if there is one, but not if it must be done ``here``."""

        def run() -> None:
            with (
                logs.bound(worker=self.worker, build=unit.build, unit=unit.id, attempt=unit.fence, work=unit.work),
                traces.within(self._held[unit.id, unit.fence].span),
            ):
                try:
                    what(unit, *arguments)
                except Exception:
                    logger.exception("errand_failed")  # in a thread nobody else would hear of it
                    raise

        if here or self._pool is None:
            run()
            return
        future = self._pool.submit(run)
        self._errands.add(future)
        future.add_done_callback(self._errands.discard)

    def _start(self, unit: Unit) -> None:
        try:
            if causes.loses_workers(self.site, unit):
                self._settle(unit, Outcome(0, "lost lease"))
                return
            call: Call | None = ROOMS[unit.work].prepare(self.site, unit)
        except dialect.AWAY:
            self._settle(unit, Outcome(0, "cancelled"))
            return
        except Exception as error:
            logger.exception("preparing_failed")
            self._settle(unit, _internal(error))
            return
        with self._lock:
            item = self._held[unit.id, unit.fence]
            if call is None or item.lost or self._stop_now():
                ticket = None
            else:
                ticket = item.ticket = self.runner.start(replace(call, memory=min(call.memory, item.memory)))
                self._tickets[ticket] = (unit.id, unit.fence)
        if call is None:
            self._let_go(unit, "done")
        elif ticket is None:
            self._settle(unit, Outcome(0, "shutdown"))

    def _stop_now(self) -> bool:
        return self._stop.is_set() and time.monotonic() >= self._deadline

    def _take_outcomes(self, *, wait: bool) -> None:
        self._hear(wait=wait)
        self._settle_all()

    def _hear(self, *, wait: bool) -> None:
        """Note what ended since; ``wait`` for it, unless something is heard of already."""
        wait = wait and not self._outcomes
        deadline = self.site.settings.poll_seconds if wait else 0.0
        if wait and self._stop.is_set():
            deadline = max(0.01, min(deadline, self._deadline - time.monotonic()))
        while True:
            try:
                outcome = self.runner.outcomes.get(timeout=deadline) if deadline else self.runner.outcomes.get_nowait()
            except queue.Empty:
                return
            deadline = 0.0
            if outcome.ticket == WAKE.ticket:
                continue
            with self._lock:
                item = self._held[self._tickets.pop(outcome.ticket)]
                item.ending = True
            self._outcomes.append((item.unit, outcome))

    def _settle_light(self) -> None:
        """Take over what is little and leads on: a build's next unit is waiting before the slot is given away."""
        for ended in [ended for ended in self._outcomes if _is_light(*ended)]:
            self._outcomes.remove(ended)
            self._errand(self._settle, *ended, True, here=True)

    def _settle_all(self) -> bool:
        """Take over what ended; whether anything had."""
        any_ended = bool(self._outcomes)
        while self._outcomes:
            unit, outcome = self._outcomes.popleft()
            try:
                self._errand(self._settle, unit, outcome)
            except RuntimeError:  # the pool is shut down: this is the end
                self._settle(unit, outcome)
        return any_ended

    def _settle(self, unit: Unit, outcome: Outcome, once: bool = False) -> None:
        """Tell the catalog how an attempt ended, as often as it takes; here only ``once``, if there is a pool."""
        room = ROOMS[unit.work]
        if outcome.cause not in ("done", "shutdown", "cancelled"):
            logger.warning(
                "attempt_failed", cause=outcome.cause, how=outcome.how, error=outcome.error, in_hand=outcome.in_hand,
                log=outcome.log[-2_000:],
            )  # fmt: skip
        pause = AWAY_FIRST
        while True:
            try:
                if outcome.cause == "done":
                    counted = room.finish(self.site, unit, outcome)
                elif outcome.cause in ("shutdown", "cancelled", "unstarted"):
                    counted = self._hand_back(unit, causes.pause_of(unit) if outcome.cause == "unstarted" else None)
                else:
                    counted = room.fail(self.site, unit, outcome)
                break
            except dialect.AWAY as error:
                metrics.DATABASE_AWAY.inc()
                logger.warning("database_away", error=type(error).__name__)
                if self._stop_now():
                    counted = False
                    break  # nobody waits for a database at the end: the lease runs out
                if unit.work == "plan" and outcome.cause == "done":
                    outcome = Outcome(outcome.ticket, "cancelled")  # what a plan found is let go while it is stored
                if once and self._pool is not None:
                    # The loop goes round meanwhile: one that stood still would be restarted.
                    self._errand(self._settle, unit, outcome)
                    return
                self._stop.wait(pause) if not self._stop.is_set() else time.sleep(pause)
                pause = min(pause * 2, AWAY_MOST)
            except Exception as error:
                logger.exception("taking_over_failed", cause=outcome.cause)
                if outcome.cause == "error" and not causes.is_passing(outcome):
                    counted = False
                    break  # its lease runs out
                outcome = _internal(error)
        if outcome.cause != "done":
            self._note(unit, outcome)
        self._let_go(unit, outcome.cause if counted else "lost")

    def _hand_back(self, unit: Unit, pause: float | None) -> bool:
        with self.site.work.write() as session:
            if not states.hand_back(session, unit.id, unit.fence, count=False, pause=pause):
                return False
            builds.wake(session, unit.work)
        return True

    def _note(self, unit: Unit, outcome: Outcome) -> None:
        """Keep what became of an attempt, for whoever looks; and a full disk for everybody who would write."""
        code = (outcome.error or {}).get("code", "")
        metrics.DEATHS.labels(unit.work, outcome.cause.replace(" ", "_"), _word(outcome, code)).inc()
        try:
            with self.site.work.write() as session:
                deaths.record(
                    session, unit, self.worker, outcome.cause.replace(" ", "_"),
                    how=outcome.how or code, in_hand=outcome.in_hand,
                )  # fmt: skip
                states.touch_build(session, unit.build)  # whoever looks at it sees that
                if code == Code.NO_SPACE:
                    why = str((outcome.error or {})["message"])
                    pauses.begin(session, f"{why} {disk.told(disk.reclaimable(self.site, session))}", PAUSE_SECONDS)
        except dialect.AWAY:
            metrics.DATABASE_AWAY.inc()

    def _let_go(self, unit: Unit, outcome: str) -> None:
        with self._lock:
            item = self._held.pop((unit.id, unit.fence))
        seconds = time.monotonic() - item.since
        traces.end(item.span, outcome=outcome)
        metrics.UNITS.labels(unit.work, outcome).inc()
        metrics.UNIT_SECONDS.labels(unit.work).observe(seconds)
        logger.info("attempt_ended", outcome=outcome, seconds=round(seconds, 3))
        if self._relay is not None:
            self._relay()
        if self._pool is not None:
            self.wake()  # a slot may be free, and another unit ready


def _is_light(unit: Unit, outcome: Outcome) -> bool:
    """Whether an outcome is taken over in some milliseconds, and another unit of its build may wait for that.

    A publish leads nowhere, and notes where all sidecars lie when its build is ready.
    """
    if unit.work == "publish":
        return False
    found = 0
    if unit.work == "plan":
        found = sum(len(item["rows"]) for item in outcome.progress)
    elif unit.work == "index" and outcome.result is not None:
        found = len(outcome.result["entries"]) + len(outcome.result["failures"])
    return found <= LIGHT_SOURCES


def _word(outcome: Outcome, code: str) -> str:
    """A word for a label, from a short list."""
    if outcome.cause == "signal":
        return outcome.how if outcome.how in ("SIGKILL", "SIGSEGV", "SIGABRT", "SIGBUS", "SIGTERM") else "other"
    return outcome.how or code


def _internal(error: Exception) -> Outcome:
    if isinstance(error, OSError) and (named := passing(error)) is not None:
        return Outcome(0, "error", error=named.as_dict())
    # The name of its type only: a message may hold anything.
    answer = BlendexError(
        Code.INTERNAL,
        f"{type(error).__name__} while its outcome was taken over.",
        next_step="See the log of the worker; retry when the cause is mended.",
    )
    return Outcome(0, "error", error=answer.as_dict())
