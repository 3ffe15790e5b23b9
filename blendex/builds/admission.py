"""Admission: which unit a worker may begin now, by the memory that it shares with the other workers of its host.

The budget of a ledger is the least limit that holds here less what the workers themselves need; what is promised of it
is the predicted peak of every unit that runs. A unit is begun when its prediction fits into the rest, and into what
the host or cgroup has left, page cache not counted. Three rules beside that:

* A unit that needs more than the whole budget runs alone, with all of it, where no worker has a larger budget: so it
  ends, well or by name, and waits for nobody who never comes.
* A unit that has waited ``RESERVE_SECONDS`` because lighter ones always took the room gets the ledger reserved: nothing
  else is begun there until it fits. So a heavy one is not starved for ever.
* After that one has ended, or was waited for in vain, there is no other reservation for as long again. So the light
  ones are not, either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from blendex.catalog import ledgers, pauses, states
from blendex.catalog.models import Unit
from blendex.runtime.budget import Budget

RESERVE_SECONDS = 60.0
# What a child holds at rest, measured (17 MB), with what the allocator may keep of its last call.
REST_BYTES = 24 * 2**20
ENDLESS = 2**62
# In waits of a heavy unit: whoever could have done it may have gone meanwhile.
LONGEST_RESERVATION = 30
# Not begun while the disk is full. A plan writes to the catalog only.
WRITES = ("index", "pack", "publish")
MIB = 2**20


@dataclass(frozen=True, slots=True)
class Own:
    """What one worker knows of itself.

    Bytes: ``budget`` for all children of the ledger, ``taken``: promised here, ``used``: by the children here,
    ``reserve``: for the worker itself.
    """

    worker: str
    ledger: str
    host: str
    source: str
    budget: int
    taken: int
    used: int
    reserve: int
    lease_seconds: float
    classes: Sequence[str]
    able: Sequence[str] | None = None  # what it can do, of what units name; None: everything


@dataclass(frozen=True, slots=True)
class Verdict:
    """A unit with the memory it may have, or why there is none; ``why`` None: nothing waits."""

    unit: Unit | None = None
    memory: int = 0
    why: str | None = None


def admit(
    session: Session,
    own: Own,
    now: Callable[[], Budget],
    lives: Callable[[str], bool | None],
    reserve_seconds: float = RESERVE_SECONDS,
) -> Verdict:
    """Claim what may be begun.

    Args:
        session: the transaction of the claim; it locks the ledger.
        own: the worker.
        now: what the host or cgroup has left now.
        lives: whether a process of that name is there; None: it cannot be told from here.
        reserve_seconds: how long a heavy unit waits before the ledger is reserved for it.
    """
    if ledgers.has_work(session, own.classes) is None:
        return Verdict()  # most claims find nothing: asked first, and the ledger is left to those that do
    ledger = ledgers.lock(session, own.ledger)
    while ledger is None:
        ledgers.ensure(session, own.ledger, own.host, own.source)
        ledger = ledgers.lock(session, own.ledger)
    classes = own.classes
    paused = pauses.current(session)
    if paused is not None:
        classes = tuple(work for work in classes if work not in WRITES)
    others = ledgers.others(session, own.ledger, own.worker, lives)
    promised = own.taken + others.taken
    alone = promised == 0
    left = own.budget - promised
    found = now()
    # What runs may yet take what it was promised and has not used.
    there = found.left - own.reserve - max(0, promised - own.used - others.used)
    if not alone:
        left = min(left, there)
    left = max(0, left)
    most = ENDLESS if alone and own.budget >= ledgers.most_budget(session) else left

    def claim(only: int | None = None) -> Verdict:
        unit = states.claim_unit(session, own.worker, own.lease_seconds, most, classes, only, own.able)
        return Verdict(unit, 0 if unit is None else min(unit.memory, max(left, MIB)))

    if ledger.reserved is not None:
        state = ledgers.state_of(session, ledger.reserved)
        over = state is None or state[0] not in ("waiting", "leased")
        if over or (state is not None and state[0] == "waiting" and not ledgers.resting(session, ledger)):
            ledgers.reserve(session, own.ledger, None, reserve_seconds)
        elif state is not None and state[0] == "waiting":
            verdict = claim(ledger.reserved)
            if verdict.unit is not None or _still_reserved(session, ledger.reserved):
                needs = f"which needs {state[1] // MIB} MiB: {left // MIB} MiB are left"
                why = f"reserved for unit {ledger.reserved}, {needs}"
                return verdict if verdict.unit is not None else Verdict(why=why)
    elif not ledgers.resting(session, ledger):
        heavy = ledgers.starving(session, most, reserve_seconds, classes, own.able)
        if heavy is not None:
            ledgers.reserve(session, own.ledger, heavy, LONGEST_RESERVATION * reserve_seconds)
            return Verdict(why=f"reserved for unit {heavy}, which has waited for memory")
    verdict = claim()
    if verdict.unit is not None:
        return verdict
    if paused is not None and ledgers.has_work(session, own.classes, own.able) is not None:
        return Verdict(why=f"paused: {paused}")
    least = ledgers.has_work(session, classes, own.able)
    if least is None:
        if own.able is not None and ledgers.has_work(session, classes) is not None:
            return Verdict(why="what waits needs recipes that this version has not")
        return Verdict()
    if least > most:
        return Verdict(
            why=f"memory: the lightest unit needs {least // MIB} MiB, {left // MIB} of {own.budget // MIB} MiB are left"
            f" ({found.source})"[:180]
        )
    return Verdict(why="what waits is set back until a store or a disk is there again, or is just being claimed")


def _still_reserved(session: Session, unit: int) -> bool:
    state = ledgers.state_of(session, unit)
    return state is not None and state[0] == "waiting"
