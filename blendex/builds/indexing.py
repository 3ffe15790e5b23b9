"""Indexing: units are read by children; what they leave is taken over, what they die of is pinned to one source."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from blendex.builds import causes
from blendex.builds.attempts import attempt, call_of, priority_of
from blendex.builds.objects import ObjectGoneError, add_object, do_again
from blendex.builds.progress import queue_publish_if_done
from blendex.builds.site import Site
from blendex.builds.teams import site_of
from blendex.catalog import builds, endpoints, observations, sources, states, units
from blendex.catalog.models import Build, Unit
from blendex.errors import AWAY, PASSING, BlendexError, Code
from blendex.formats.kinds import recipe
from blendex.observability import logs
from blendex.runtime.slots import Call, Outcome
from blendex.units.sorts import sort_of_derived

logger = logs.get_logger("blendex.builds")

# A unit that fails this often with no source to blame is not tried again.
MOST_ATTEMPTS = 5
LARGER = 2
BY = {
    "limit": "an allocation was refused",
    "watchdog": "the child's own watchdog ended it",
    "kernel": "the kernel killed it",
}
CAUSES = {
    "memory": (
        Code.OUT_OF_MEMORY,
        "reading it took more memory than a child may have",
        "Raise unit_memory_mb, or split the file; then retry.",
    ),
    "timeout": (Code.TIMEOUT, "reading it took too long", "Look after the file server, then retry."),
    "stall": (Code.STALLED, "reading it stood still, twice", "Look after the file server, then retry."),
    "signal": (
        Code.CHILD_DIED,
        "the process that read it was killed or crashed, twice",
        "See the log of the worker, then retry.",
    ),
    "lost lease": (
        Code.CHILD_DIED,
        "every worker that had it in hand was lost with it",
        "See what became of the workers, then retry.",
    ),
}


def prepare(site: Site, unit: Unit) -> Call:
    """The call of an index unit."""
    payload = units.payload(unit)
    if "derive" in payload:
        return _derive(site, unit, payload)
    arguments = {
        "root": site.root.path,
        **site_of(site, payload.get("team", "")).reading(),
        "attempt": attempt(unit),
        "compat": payload["compat"],
        "sources": payload["sources"],
        "last": causes.paused(unit.delays) >= site.settings.store_patience,
    }
    return call_of(site, unit, "blendex.units.index:run", arguments)


def _derive(site: Site, unit: Unit, payload: dict[str, Any]) -> Call:
    """The call of a unit that makes a source from others: with what the catalog knows of these now."""
    spec, compat = payload["derive"], payload["compat"]
    inputs = []
    records = 0
    with site.work.read() as session:
        for kind, path, address, _ in spec["inputs"]:
            known = next(sources.known(session, recipe(kind, compat), [address]), None)
            item = {"kind": kind, "path": path, "address": address}
            if known is None or known.error is not None or not known.has_content:
                inputs.append(item | {"error": (known.error if known else None) or {}})
            else:
                inputs.append(item | {"content_hash": known.content_hash})
                records += known.records
    arguments = {
        "root": site.root.path,
        **site_of(site, payload.get("team", "")).reading(),
        "attempt": attempt(unit),
        "compat": compat,
        "recipe": recipe(spec["kind"], compat, spec["derivation"]),
        "sort": sort_of_derived(spec, records),
        "spec": spec | {"inputs": inputs},
    }
    return call_of(site, unit, "blendex.units.derive:run", arguments)


def _recipe(item: list[Any], compat: str) -> str:
    """The recipe of a source of a unit: [kind, path, address, learn, derivation]."""
    return recipe(item[0], compat, item[4])


def finish(site: Site, unit: Unit, outcome: Outcome) -> bool:
    """Take over the bundle of a unit, and let go on whoever waited for nothing else; False when the lease was lost."""
    assert outcome.result is not None
    try:
        return _take_over(site, unit, outcome, outcome.result)
    except ObjectGoneError:
        return do_again(site, unit)


def _take_over(site: Site, unit: Unit, outcome: Outcome, result: dict[str, Any]) -> bool:
    payload = units.payload(unit)
    for note, count in result.get("notes", {}).items():
        logger.info("store_note", build=unit.build, unit=unit.id, note=note, count=count)
    failures = result["failures"]
    if failures:
        names = {(item[0], item[2]): _recipe(item, payload["compat"]) for item in payload["sources"]}
        failures = [item | {"recipe": names[item["kind"], item["address"]]} for item in failures]
    with site.work.write() as session:
        if not states.end_unit(session, unit.id, unit.fence, "done"):
            return False
        units.withdraw(session, unit.id)
        if result["object"] is not None:
            object_id = add_object(site, session, result["object"], result["size"])
            sources.record(session, object_id, result["entries"])
        sources.record_failures(session, failures)
        endpoints.remember(session, result.get("paces", {}))
        observations.record(session, outcome.peaks, unit.memory)
        figures = result["figures"]
        _release(session, unit, opened=figures["opens"], size=figures["bytes_read"])
    return True


def _release(session: Session, unit: Unit, *, opened: int = 0, size: int = 0) -> None:
    """Tell the builds that waited for a unit that it ended; what it read is credited to the one that asked first.

    Each build's row is locked by that, one after another in the order of their ids, before it is asked what the build
    still waits for: of two units that end together the second sees that the first did.
    """
    waiting = set(units.subscribers(session, unit.id))
    for name in sorted(waiting | {unit.build}):
        read = {"opened": Build.opened + opened, "read_bytes": Build.read_bytes + size}
        states.touch_build(session, name, **(read if name == unit.build else {}))
        if name in waiting and (build := builds.get(session, name)) is not None:
            queue_publish_if_done(session, build)


def fail(site: Site, unit: Unit, outcome: Outcome) -> bool:
    """A child died, or could not do its unit at all; False when the lease was lost.

    What is nobody's fault (a store that is away, a full disk, no descriptors) is waited for, and counts nothing. A
    death is pinned to the source in hand: that one alone is tried once more, of memory with more of it; the others go
    back as they were. If it dies again, it is named, and that is the answer until its token changes or somebody says
    retry.
    """
    payload = units.payload(unit)
    with site.work.write() as session:
        suspects = [item for item in payload["sources"] if item[1] == outcome.in_hand]
        if outcome.cause == "error":
            assert outcome.error is not None
            if outcome.error["code"] in PASSING:
                return _wait(session, unit, payload, outcome.error, site.settings.store_patience)
            if unit.attempts + 1 < MOST_ATTEMPTS:
                return states.hand_back(session, unit.id, unit.fence, count=True)
            return _give_up(session, unit, payload, payload["sources"], outcome.error)
        if not suspects:
            if outcome.cause != "lost lease" and unit.attempts + 1 < MOST_ATTEMPTS:
                return states.hand_back(session, unit.id, unit.fence, count=True)
            return _give_up(session, unit, payload, payload["sources"], _cause(unit, outcome))
        memory = unit.memory
        if outcome.cause == "memory":
            # What was learnt of its like may have been too little: the second try has no less than one of which
            # nothing is known would have.
            memory = max(memory, site.settings.unit_memory_mb * 2**20) * LARGER
        if len(payload["sources"]) > 1:
            return _isolate(session, unit, payload, suspects[0], memory)
        if unit.attempts == 0:
            # Alone from the start: once more.
            if not states.end_unit(session, unit.id, unit.fence, "failed", {"cause": outcome.cause}):
                return False
            new = units.create(
                session, "index", unit.build, payload,
                memory=memory, cost=unit.cost, priority=priority_of(unit), attempts=1, needs=unit.needs,
            )  # fmt: skip
            _hand_over(session, unit, new, payload, payload["sources"])
            return True
        token: dict[str, Any] = {name: outcome.holding[name] for name in ("token", "racy") if name in outcome.holding}
        return _give_up(session, unit, payload, suspects, _cause(unit, outcome), token)


def _wait(session: Session, unit: Unit, payload: dict[str, Any], error: dict[str, Any], patience: float) -> bool:
    """Set a unit back while what it needs is away.

    For a full disk, or descriptors, as long as it takes. A store may be away for one source only, so when ``patience``
    is over a last attempt names those that it is away for, and indexes the others: all of them wait together, and once.
    """
    if error["code"] not in AWAY or causes.paused(unit.delays) < patience:
        pause = causes.pause_of(unit)
        return states.hand_back(session, unit.id, unit.fence, count=False, pause=pause, error=error)
    return _give_up(session, unit, payload, payload["sources"], error)


def _cause(unit: Unit, outcome: Outcome) -> dict[str, Any]:
    code, message, next_step = CAUSES[outcome.cause]
    if outcome.cause == "memory":
        message += f" ({unit.memory // 2**20} MiB; {BY[outcome.how or 'watchdog']})"
    elif outcome.how:
        message += f" ({outcome.how})"
    error = BlendexError(code, message + ".", file=outcome.in_hand, next_step=next_step).as_dict()
    return error | {"cause": outcome.cause, "how": outcome.how, "memory_bytes": unit.memory}


def _hand_over(session: Session, unit: Unit, new: int, payload: dict[str, Any], items: list[list[Any]]) -> None:
    keys = [(item[2], _recipe(item, payload["compat"])) for item in items]
    units.move_pending(session, unit.id, new, keys)
    units.copy_subscriptions(session, unit.id, new, len(items))


def _isolate(session: Session, unit: Unit, payload: dict[str, Any], suspect: list[Any], larger: int) -> bool:
    """Only the source in hand is tried again alone, with the memory given; the others go back as they were."""
    if not states.end_unit(session, unit.id, unit.fence, "failed", {"in_hand": suspect[1]}):
        return False
    others = [item for item in payload["sources"] if item != suspect]
    for items, memory, tried in (([suspect], larger, 1), (others, unit.memory, 0)):
        new = units.create(
            session,
            "index",
            unit.build,
            payload | {"sources": items},
            memory=memory,
            cost=unit.cost * len(items) // len(payload["sources"]),
            priority=priority_of(unit),
            attempts=tried,
            needs=unit.needs,
        )
        _hand_over(session, unit, new, payload, items)
    return True


def _give_up(
    session: Session,
    unit: Unit,
    payload: dict[str, Any],
    items: list[list[Any]],
    error: dict[str, Any],
    token: dict[str, Any] | None = None,
) -> bool:
    """Name sources; with the ``token`` under which one of them failed for good."""
    if not states.end_unit(session, unit.id, unit.fence, "failed", error):
        return False
    units.withdraw(session, unit.id)
    sources.record_failures(
        session,
        [
            {"address": item[2], "recipe": _recipe(item, payload["compat"]), "error": error | {"file": item[1]}}
            | (token or {})
            for item in items
        ],
    )
    _release(session, unit)
    return True
