"""What a build does next when it waits for nothing more: derive what is made from others, pack, then publish."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from blendex.builds import abilities, arranging
from blendex.catalog import blobs, builds, events, observations, sources, states, units
from blendex.catalog.models import Build
from blendex.formats.kinds import recipe
from blendex.units.sorts import sort_of_derived

# Measured while staging 100,000 sidecars.
PUBLISH_MEMORY = 256 * 2**20
# The names of the members of a whole collection: about 250 bytes each.
DERIVE_MEMORY = 512 * 2**20


def queue_publish_if_done(session: Session, build: Build) -> None:
    """Ask for what comes next, when a build waits for nothing more."""
    if build.state not in ("indexing", "planning", "packing") or units.unfinished(session, build.id) > 0:
        return
    recipes = builds.recipes(session, build.id)
    if not abilities.can(recipes):
        return  # planned by a newer program, whose reaper goes on with it
    if build.state != "packing" and _queue_derivations(session, build):
        return
    if arranging.queue(session, build):
        return
    if not states.move_build(session, build.id, "publishing", build.fence):
        return
    unit = units.create(
        session, "publish", build.id, {}, memory=PUBLISH_MEMORY, priority=build.priority, needs=recipes
    )
    units.subscribe(session, unit, build.id, 0)
    builds.wake(session, "publish")


def derived_of(session: Session, build: Build) -> list[dict[str, Any]]:
    """What the derived sources of a build are made from, as its plan told."""
    if build.plan is None:
        return []
    specs: list[dict[str, Any]] = blobs.get_json(session, build.plan).get("derived", [])
    return specs


def _queue_derivations(session: Session, build: Build) -> bool:
    """Make units for the derived sources that are not known as the plan saw them; once for each time of indexing."""
    stages = dict(build.stages)
    if stages.get("deriving", 0.0) >= stages.get("indexing", 0.0) > 0.0:
        return False
    specs = derived_of(session, build)
    compat = build.options["compat"]
    waits = False
    for spec in specs:
        waits = _wait_for(session, build, spec, compat) or waits
    if waits:
        now = round(states.now(session), 3)
        states.touch_build(session, build.id, stages=stages | {"deriving": max(now, stages.get("indexing", now))})
        events.note(session, build.id, "deriving", sources=len(specs))
        builds.wake(session, "index")
    return waits


def _wait_for(session: Session, build: Build, spec: dict[str, Any], compat: str) -> bool:
    """Let a build wait for the unit that makes a derived source, made now if there is none; False when it is known.

    As with sources that are read: a unit that is subscribed to is held, so that it cannot end unseen, and what somebody
    else announced first is looked up again.
    """
    name = recipe(spec["kind"], compat, spec["derivation"])
    key = (spec["address"], name)
    while True:
        unit = units.under_way(session, [key]).get(key)
        known = next(sources.known(session, name, [spec["address"]]), None)
        if known is not None and known.has_content and known.token == spec["token"] and not known.racy:
            return False
        if unit is None:
            item = [spec["kind"], spec["path"], spec["address"], False, spec["derivation"]]
            payload = {"compat": compat, "sources": [item], "derive": spec}
            payload |= {"team": build.team} if build.team else {}
            unit = units.create(
                session, "index", build.id, payload, memory=_memory(session, spec, compat), priority=build.priority,
                needs=abilities.needs_of([spec["kind"]], compat),
            )  # fmt: skip
            if units.announce(session, [(*key, unit)]):
                units.drop(session, unit)
                continue
        elif not units.hold(session, [unit]):
            continue
        units.subscribe(session, unit, build.id, 1)
        return True


def _memory(session: Session, spec: dict[str, Any], compat: str) -> int:
    """What making a derived source is predicted to take: by what was seen of its like, never more for a first try."""
    addresses: dict[str, list[str]] = {}
    for kind, _, address, _ in spec["inputs"]:
        addresses.setdefault(recipe(kind, compat), []).append(address)
    records = sum(
        known.records for name, wanted in addresses.items() for known in sources.known(session, name, wanted)
    )
    predicted = observations.predictions(session).get(sort_of_derived(spec, records), DERIVE_MEMORY)
    return min(DERIVE_MEMORY, predicted)
