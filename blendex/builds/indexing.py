"""Indexing: units are read by children; what they leave is taken over, what they die of is pinned to one source."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from blendex.builds.attempts import attempt
from blendex.builds.progress import queue_publish_if_done
from blendex.builds.site import Site
from blendex.catalog import builds, sources, states, units
from blendex.catalog.models import Build, Unit
from blendex.errors import BlendexError, Code
from blendex.formats.kinds import recipe
from blendex.runtime.slots import Call, Outcome

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


def call(site: Site, session: Session, unit: Unit) -> Call:
    """The call of an index unit."""
    payload = units.payload(unit)
    if "derive" in payload:
        return _derive(site, session, unit, payload)
    arguments = {
        "root": site.root.path,
        "roots": list(site.roots),
        "attempt": attempt(unit),
        "compat": payload["compat"],
        "sources": payload["sources"],
    }
    return Call("blendex.units.index:run", arguments, unit.memory, site.settings.unit_seconds)


def _derive(site: Site, session: Session, unit: Unit, payload: dict[str, Any]) -> Call:
    """The call of a unit that makes a source from others: with what the catalog knows of these now."""
    spec, compat = payload["derive"], payload["compat"]
    inputs = []
    for kind, path, address, _ in spec["inputs"]:
        known = next(sources.known(session, recipe(kind, compat), [address]), None)
        item = {"kind": kind, "path": path, "address": address}
        if known is None or known.error is not None or not known.has_content:
            inputs.append(item | {"error": (known.error if known else None) or {}})
        else:
            inputs.append(item | {"content_hash": known.content_hash})
    arguments = {
        "root": site.root.path,
        "roots": list(site.roots),
        "attempt": attempt(unit),
        "compat": compat,
        "recipe": recipe(spec["kind"], compat, spec["derivation"]),
        "spec": spec | {"inputs": inputs},
    }
    return Call("blendex.units.derive:run", arguments, unit.memory, site.settings.unit_seconds)


def _recipe(item: list[Any], compat: str) -> str:
    """The recipe of a source of a unit: [kind, path, address, learn, derivation]."""
    return recipe(item[0], compat, item[4])


def finish(site: Site, unit: Unit, outcome: Outcome) -> None:
    """Take over the bundle of a unit, and let go on whoever waited for nothing else."""
    assert outcome.result is not None
    result = outcome.result
    payload = units.payload(unit)
    names = {(item[0], item[2]): _recipe(item, payload["compat"]) for item in payload["sources"]}
    failures = [item | {"recipe": names[item["kind"], item["address"]]} for item in result["failures"]]
    with site.work.write() as session:
        if not states.end_unit(session, unit.id, unit.fence, "done"):
            return
        units.withdraw(session, unit.id)
        if result["object"] is not None:
            object_id = sources.add_object(session, result["object"], result["size"])
            sources.record(session, object_id, result["entries"])
        sources.record_failures(session, failures)
        _credit(session, unit.build, result["figures"]["opens"])
        _release(session, unit.id)


def _credit(session: Session, build: str, opened: int) -> None:
    states.touch_build(session, build, opened=Build.opened + opened)


def _release(session: Session, unit: int) -> None:
    """Tell the builds that waited for a unit that it ended."""
    for name in units.subscribers(session, unit):
        build = builds.get(session, name)
        if build is not None:
            states.touch_build(session, name)
            queue_publish_if_done(session, build)


def fail(site: Site, unit: Unit, outcome: Outcome) -> None:
    """A child died, or could not do its unit at all."""
    payload = units.payload(unit)
    with site.work.write() as session:
        if outcome.cause == "error":
            assert outcome.error is not None
            if unit.attempts + 1 < MOST_ATTEMPTS:
                states.hand_back(session, unit.id, unit.fence, count=True)
            else:
                _give_up(session, unit, payload, payload["sources"], outcome.error)
            return
        suspects = [item for item in payload["sources"] if item[1] == outcome.in_hand]
        if not suspects:
            if unit.attempts + 1 < MOST_ATTEMPTS:
                states.hand_back(session, unit.id, unit.fence, count=True)
            else:
                _give_up(session, unit, payload, payload["sources"], _cause(outcome.cause, None))
        elif len(payload["sources"]) > 1:
            _isolate(session, unit, payload, suspects[0])
        elif unit.attempts == 0:
            # Alone from the start: once more, larger.
            if not states.end_unit(session, unit.id, unit.fence, "failed", {"cause": outcome.cause}):
                return
            new = units.create(
                session, "index", unit.build, payload, memory=unit.memory * LARGER, cost=unit.cost, attempts=1
            )
            _hand_over(session, unit, new, payload, payload["sources"])
        else:
            _give_up(session, unit, payload, suspects, _cause(outcome.cause, outcome.in_hand))


def _cause(cause: str, path: str | None) -> dict[str, Any]:
    code, message, next_step = CAUSES[cause]
    return BlendexError(code, message, file=path, next_step=next_step).as_dict()


def _hand_over(session: Session, unit: Unit, new: int, payload: dict[str, Any], items: list[list[Any]]) -> None:
    keys = [(item[2], _recipe(item, payload["compat"])) for item in items]
    units.move_pending(session, unit.id, new, keys)
    units.copy_subscriptions(session, unit.id, new, len(items))


def _isolate(session: Session, unit: Unit, payload: dict[str, Any], suspect: list[Any]) -> None:
    """Only the source in hand is tried again alone, larger, once; the others go back as they were."""
    if not states.end_unit(session, unit.id, unit.fence, "failed", {"in_hand": suspect[1]}):
        return
    others = [item for item in payload["sources"] if item != suspect]
    for items, memory, attempts in (([suspect], unit.memory * LARGER, 1), (others, unit.memory, 0)):
        new = units.create(
            session,
            "index",
            unit.build,
            payload | {"sources": items},
            memory=memory,
            cost=unit.cost * len(items) // len(payload["sources"]),
            attempts=attempts,
        )
        _hand_over(session, unit, new, payload, items)


def _give_up(
    session: Session, unit: Unit, payload: dict[str, Any], items: list[list[Any]], error: dict[str, Any]
) -> None:
    if not states.end_unit(session, unit.id, unit.fence, "failed", error):
        return
    units.withdraw(session, unit.id)
    sources.record_failures(
        session,
        [
            {"address": item[2], "recipe": _recipe(item, payload["compat"]), "error": error | {"file": item[1]}}
            for item in items
        ],
    )
    _release(session, unit.id)
