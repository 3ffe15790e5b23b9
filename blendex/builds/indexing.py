"""Indexing: units are read by children; what they leave is taken over, what they die of is pinned to one source."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from blendex.builds.attempts import attempt
from blendex.builds.progress import queue_publish_if_done
from blendex.builds.site import Site
from blendex.catalog import builds, endpoints, sources, states, units
from blendex.catalog.models import Build, Unit
from blendex.errors import BlendexError, Code
from blendex.formats.kinds import recipe
from blendex.observability import logs
from blendex.runtime.slots import Call, Outcome

logger = logs.get_logger("blendex.builds")

# A unit that is lost this often with no source to blame is not tried again.
MOST_ATTEMPTS = 5
LARGER = 2
CAUSES = {
    "memory": (
        Code.OUT_OF_MEMORY,
        "reading it took more memory than a child may have.",
        "Raise unit_memory_mb, or split the file.",
    ),
    "timeout": (Code.TIMEOUT, "reading it took too long.", "Look after the file server, then retry."),
    "signal": (
        Code.CHILD_DIED,
        "the process that read it was killed or crashed.",
        "See the log of the worker, then retry.",
    ),
}


def prepare(site: Site, unit: Unit) -> Call:
    """The call of an index unit."""
    payload = units.payload(unit)
    if "derive" in payload:
        return _derive(site, unit, payload)
    arguments = {
        "root": site.root.path,
        **site.reading(),
        "attempt": attempt(unit),
        "compat": payload["compat"],
        "sources": payload["sources"],
    }
    return Call("blendex.units.index:run", arguments, unit.memory, site.settings.unit_seconds)


def _derive(site: Site, unit: Unit, payload: dict[str, Any]) -> Call:
    """The call of a unit that makes a source from others: with what the catalog knows of these now."""
    spec, compat = payload["derive"], payload["compat"]
    inputs = []
    with site.work.read() as session:
        for kind, path, address, _ in spec["inputs"]:
            known = next(sources.known(session, recipe(kind, compat), [address]), None)
            item = {"kind": kind, "path": path, "address": address}
            if known is None or known.error is not None or not known.has_content:
                inputs.append(item | {"error": (known.error if known else None) or {}})
            else:
                inputs.append(item | {"content_hash": known.content_hash})
    arguments = {
        "root": site.root.path,
        **site.reading(),
        "attempt": attempt(unit),
        "compat": compat,
        "recipe": recipe(spec["kind"], compat, spec["derivation"]),
        "spec": spec | {"inputs": inputs},
    }
    return Call("blendex.units.derive:run", arguments, unit.memory, site.settings.unit_seconds)


def _recipe(item: list[Any], compat: str) -> str:
    """The recipe of a source of a unit: [kind, path, address, learn, derivation]."""
    return recipe(item[0], compat, item[4])


def finish(site: Site, unit: Unit, outcome: Outcome) -> bool:
    """Take over the bundle of a unit, and let go on whoever waited for nothing else; False when the lease was lost."""
    assert outcome.result is not None
    result = outcome.result
    payload = units.payload(unit)
    names = {(item[0], item[2]): _recipe(item, payload["compat"]) for item in payload["sources"]}
    for note, count in result.get("notes", {}).items():
        logger.info("store_note", build=unit.build, unit=unit.id, note=note, count=count)
    failures = [item | {"recipe": names[item["kind"], item["address"]]} for item in result["failures"]]
    with site.work.write() as session:
        if not states.end_unit(session, unit.id, unit.fence, "done"):
            return False
        units.withdraw(session, unit.id)
        if result["object"] is not None:
            object_id = sources.add_object(session, result["object"], result["size"])
            sources.record(session, object_id, result["entries"])
        sources.record_failures(session, failures)
        endpoints.remember(session, result.get("paces", {}))
        _release(session, unit, opened=result["figures"]["opens"])
    return True


def _release(session: Session, unit: Unit, *, opened: int = 0) -> None:
    """Tell the builds that waited for a unit that it ended; what it read is credited to the one that asked first.

    Each build's row is locked by that, one after another in the order of their ids, before it is asked what the build
    still waits for: of two units that end together the second sees that the first did.
    """
    waiting = set(units.subscribers(session, unit.id))
    for name in sorted(waiting | {unit.build}):
        states.touch_build(session, name, **({"opened": Build.opened + opened} if name == unit.build else {}))
        if name in waiting and (build := builds.get(session, name)) is not None:
            queue_publish_if_done(session, build)


def fail(site: Site, unit: Unit, outcome: Outcome) -> bool:
    """A child died, or could not do its unit at all; False when the lease was lost."""
    payload = units.payload(unit)
    with site.work.write() as session:
        if outcome.cause == "error":
            assert outcome.error is not None
            if unit.attempts + 1 < MOST_ATTEMPTS:
                return states.hand_back(session, unit.id, unit.fence, count=True)
            return _give_up(session, unit, payload, payload["sources"], outcome.error)
        suspects = [item for item in payload["sources"] if item[1] == outcome.in_hand]
        if not suspects:
            if unit.attempts + 1 < MOST_ATTEMPTS:
                return states.hand_back(session, unit.id, unit.fence, count=True)
            return _give_up(session, unit, payload, payload["sources"], _cause(outcome.cause, None))
        if len(payload["sources"]) > 1:
            return _isolate(session, unit, payload, suspects[0])
        if unit.attempts == 0:
            # Alone from the start: once more, larger.
            if not states.end_unit(session, unit.id, unit.fence, "failed", {"cause": outcome.cause}):
                return False
            new = units.create(
                session, "index", unit.build, payload,
                memory=unit.memory * LARGER, cost=unit.cost, turn=unit.turn, attempts=1,
            )  # fmt: skip
            _hand_over(session, unit, new, payload, payload["sources"])
            return True
        return _give_up(session, unit, payload, suspects, _cause(outcome.cause, outcome.in_hand))


def _cause(cause: str, path: str | None) -> dict[str, Any]:
    code, message, next_step = CAUSES[cause]
    return BlendexError(code, message, file=path, next_step=next_step).as_dict()


def _hand_over(session: Session, unit: Unit, new: int, payload: dict[str, Any], items: list[list[Any]]) -> None:
    keys = [(item[2], _recipe(item, payload["compat"])) for item in items]
    units.move_pending(session, unit.id, new, keys)
    units.copy_subscriptions(session, unit.id, new, len(items))


def _isolate(session: Session, unit: Unit, payload: dict[str, Any], suspect: list[Any]) -> bool:
    """Only the source in hand is tried again alone, larger, once; the others go back as they were."""
    if not states.end_unit(session, unit.id, unit.fence, "failed", {"in_hand": suspect[1]}):
        return False
    others = [item for item in payload["sources"] if item != suspect]
    for items, memory, attempts in (([suspect], unit.memory * LARGER, 1), (others, unit.memory, 0)):
        new = units.create(
            session,
            "index",
            unit.build,
            payload | {"sources": items},
            memory=memory,
            cost=unit.cost * len(items) // len(payload["sources"]),
            turn=unit.turn,
            attempts=attempts,
        )
        _hand_over(session, unit, new, payload, items)
    return True


def _give_up(
    session: Session, unit: Unit, payload: dict[str, Any], items: list[list[Any]], error: dict[str, Any]
) -> bool:
    if not states.end_unit(session, unit.id, unit.fence, "failed", error):
        return False
    units.withdraw(session, unit.id)
    sources.record_failures(
        session,
        [
            {"address": item[2], "recipe": _recipe(item, payload["compat"]), "error": error | {"file": item[1]}}
            for item in items
        ],
    )
    _release(session, unit)
    return True
