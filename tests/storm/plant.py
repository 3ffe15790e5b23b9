"""Prepares a process of a storm before it starts: its children, its clock, and a mistake, if one is asked for."""

from __future__ import annotations

import time
from dataclasses import replace

from blendex.runtime import slots

CHILDREN = "tests.storm.children"
BUGS = ("ledger ignored", "poison blamed on the worker", "work not shared", "holds ignored")  # the last by collectors


class StormSlots(slots.Slots):
    """Slots whose children run ``wrapped``."""

    def __init__(self, count: int, journal: str, pause: float, clock: float = 0.0) -> None:
        super().__init__(count, CHILDREN)
        self._more = {"journal": journal, "pause": pause, "clock": clock}

    def start(self, call: slots.Call) -> int:
        arguments = {"function": call.function, "arguments": call.arguments} | self._more
        return super().start(replace(call, function=f"{CHILDREN}.wrapped:run", arguments=arguments))


def plant(journal: str, pause: float, clock: float, bug: str | None) -> None:
    """Plant all that in this process."""
    from workers import main

    main.Slots = lambda count, _package: StormSlots(count, journal, pause, clock)  # type: ignore[assignment,misc]
    if clock:
        real, real_ns = time.time, time.time_ns
        time.time = lambda: real() + clock
        time.time_ns = lambda: real_ns() + int(clock * 1e9)
    if bug == "ledger ignored":
        _ledger_ignored()
    elif bug == "poison blamed on the worker":
        _poison_blamed()
    elif bug == "work not shared":
        work_not_shared()


def _ledger_ignored() -> None:
    """A worker counts its own promises only."""
    from blendex.catalog import ledgers

    ledgers.others = lambda *_: ledgers.Promises(0, 0)


def _poison_blamed() -> None:
    """Every death is taken for a crash."""
    from blendex.builds import indexing

    real = indexing._cause
    indexing._cause = lambda unit, outcome: real(unit, replace(outcome, cause="signal", how="SIGKILL"))


def work_not_shared() -> None:
    """Nobody asks what others are about to read, nor tells what they will: it is read twice."""
    from blendex.catalog import units

    units.under_way = lambda *_: {}
    units.announce = lambda *_: set()
