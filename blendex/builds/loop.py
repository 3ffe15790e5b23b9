"""The claim loop: takes units from the catalog, runs them in slots, brings back what comes of them.

The same loop is the embedded form, ``blendex build`` and a worker's heart. It polls, so a lost wake-up costs a
second and nothing else. Leases are renewed by a thread of their own: taking over a large plan may take seconds.
"""

from __future__ import annotations

import os
import queue
import socket
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from sqlalchemy.exc import OperationalError

from blendex.builds import indexing, packing, planning, publishing, reap
from blendex.builds.site import Site
from blendex.catalog import builds, states
from blendex.catalog.models import Unit
from blendex.runtime.budget import read_budget
from blendex.runtime.slots import Call, Outcome, Runner

ROOMS: dict[str, Any] = {"plan": planning, "index": indexing, "pack": packing, "publish": publishing}
# What the parent itself and the page cache it works with need.
RESERVE_BYTES = 256 * 2**20
REAP_SECONDS = 5.0
NOBODY = 0  # the ticket of an outcome that only ends a wait; real ones begin at 1


class ClaimLoop:
    """Works for one site until it is told to stop.

    Args:
        site: root and catalog.
        runner: slots that run the functions of ``blendex.units``.
        idle: called between claims; returning True ends the loop.
    """

    def __init__(self, site: Site, runner: Runner, idle: Callable[[], bool] = lambda: False) -> None:
        self.site = site
        self.runner = runner
        self.worker = f"{socket.gethostname()}.{os.getpid()}.{uuid.uuid4().hex[:8]}"
        self._idle = idle
        self._held: dict[int, Unit] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._reaped = -REAP_SECONDS

    def stop(self) -> None:
        """End soon: what runs is handed back."""
        self._stop.set()
        self.wake()

    def wake(self) -> None:
        """There may be work: do not wait for the next poll."""
        self.runner.outcomes.put(Outcome(NOBODY, "wake"))

    def run(self) -> None:
        """Work until ``stop`` or until ``idle`` says so."""
        heart = threading.Thread(target=self._beat, name="blendex-leases", daemon=True)
        heart.start()
        try:
            while not self._stop.is_set() and not self._idle():
                self._reap()
                claimed = self._claim()
                self._take_outcomes(wait=not claimed)
        finally:
            self._stop.set()
            self.runner.close()
            self._take_outcomes(wait=False)
            heart.join()

    def _beat(self) -> None:
        while not self._stop.wait(self.site.settings.lease_seconds / 3):
            try:
                with self.site.work.write() as session:
                    held = states.renew_leases(session, self.worker, self.site.settings.lease_seconds)
            except OperationalError:
                continue  # the database is away: the next beat tries again, the fence decides
            with self._lock:
                lost = [ticket for ticket, unit in self._held.items() if (unit.id, unit.fence) not in held]
            for ticket in lost:
                self.runner.cancel(ticket)

    def _reap(self) -> None:
        now = time.monotonic()
        if now - self._reaped >= REAP_SECONDS:
            self._reaped = now
            reap.reap(self.site)

    def _memory_left(self) -> int:
        budget = read_budget()
        with self._lock:
            taken = sum(unit.memory for unit in self._held.values())
        return budget.limit - RESERVE_BYTES - taken

    def _claim(self) -> bool:
        """Start what fits; True when something was started or decided."""
        any_claimed = False
        while self.runner.free() > 0:
            with self.site.work.write() as session:
                builds.take_outbox(session)
                unit = states.claim_unit(session, self.worker, self.site.settings.lease_seconds, self._memory_left())
                if unit is None:
                    break
                session.flush()
                session.expunge(unit)
            any_claimed = True
            self._start(unit)
        return any_claimed

    def _start(self, unit: Unit) -> None:
        call: Call | None = None
        with self.site.work.write() as session:
            call = ROOMS[unit.work].call(self.site, session, unit)
            if call is None:
                states.end_unit(session, unit.id, unit.fence, "done")
        if call is not None:
            with self._lock:
                self._held[self.runner.start(call)] = unit

    def _take_outcomes(self, *, wait: bool) -> None:
        deadline = self.site.settings.poll_seconds if wait else 0.0
        while True:
            try:
                outcome = self.runner.outcomes.get(timeout=deadline) if deadline else self.runner.outcomes.get_nowait()
            except queue.Empty:
                return
            deadline = 0.0
            if outcome.ticket == NOBODY:
                continue
            with self._lock:
                unit = self._held.pop(outcome.ticket)
            self._finish(unit, outcome)

    def _finish(self, unit: Unit, outcome: Outcome) -> None:
        room = ROOMS[unit.work]
        if outcome.cause == "done":
            room.finish(self.site, unit, outcome)
        elif outcome.cause in ("shutdown", "cancelled"):
            with self.site.work.write() as session:
                states.hand_back(session, unit.id, unit.fence, count=False)
        else:
            room.fail(self.site, unit, outcome)
