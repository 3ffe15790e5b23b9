"""Packing: one unit per pack that is not known yet; builds that want the same one share it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
from sqlalchemy.orm import Session

from blendex.blend.world import World
from blendex.builds import causes, packs
from blendex.builds.attempts import attempt, priority_of
from blendex.builds.publishing import Judged, ReplanError, judge, replan, wanted_rows
from blendex.builds.site import Site
from blendex.builds.submit import load_submission
from blendex.catalog import blobs, builds, sources, states, units
from blendex.catalog import packs as catalog
from blendex.catalog.models import Build, Unit
from blendex.catalog.sources import Known
from blendex.errors import BlendexError, Code
from blendex.runtime.slots import Call, Outcome

MOST_ATTEMPTS = 3
LARGER = 2
# Measured: the child with its buffer, a segment with its path, a row or member with its name while it is matched.
BASE_MEMORY = 96 * 2**20
PER_SEGMENT = 2_000
PER_NAME = 500


def queue(session: Session, build: Build) -> bool:
    """Bring a build that is indexed to packing, when it wants packs that are not there; True when it has moved.

    Once for each time of indexing: what comes of the units is known by then, also that there can be no pack.
    """
    if build.state == "packing" or build.plan is None:
        return False
    plan = blobs.get_json(session, build.plan)
    if not plan.get("packing", {}).get("wanted"):
        return False
    try:
        judged = judge(session, build, World.from_dict(load_submission(session, build)["world"]))
        if judged.problems and build.options["on_bad"] == "fail":
            return False  # publishing tells them
        waits = [_want(session, build, judged, item) for item in packs.asked(plan, judged.gone)]
    except ReplanError:
        replan(session, build, [])
        return True
    if not any(waits):
        return False
    builds.wake(session, "pack")
    return states.move_build(session, build.id, "packing", build.fence)


def _want(session: Session, build: Build, judged: Judged, item: packs.Asked) -> bool:
    """Subscribe to the unit that makes a pack; False when it is known what comes of it.

    Raises:
        ReplanError: a source has not been learnt from, as when it was read for somebody who wanted no pack.
    """
    if item.refusal is not None:
        return False
    found = wanted_rows(session, judged, item)
    name = packs.digest(item, judged.rows, found, build.options["compat"])
    known = catalog.known(session, [name]).get(name)
    if known is not None and (known.error is None or known.error["code"] == Code.PACK_REFUSED):
        return False
    learnt = packs.learnt_rows(judged.plan["datasets"], [item.position])
    for number in item.rows():
        if number in learnt and not found[number].learned:
            raise ReplanError(judged.rows[number][1])
    key = (f"pack:{name}", packs.RECIPE)
    while True:
        # As for index units: what others announced meanwhile is subscribed to, and held until this transaction ends.
        unit = units.under_way(session, [key]).get(key)
        if unit is not None:
            if units.hold(session, [unit]):
                break
            return False  # it just ended: what came of it is looked up when the build is published
        payload = {"digest": name, "dataset": item.name} | _payload(judged, item, found)
        unit = units.create(
            session, "pack", build.id, payload, memory=_memory(item, found), priority=build.priority,
            cost=sum(known.length for known in found.values()),
        )  # fmt: skip
        if not units.announce(session, [(*key, unit)]):
            break
        units.drop(session, unit)
    units.subscribe(session, unit, build.id, 0)
    return True


def _payload(judged: Judged, item: packs.Asked, found: dict[int, Known]) -> dict[str, Any]:
    """All that the child needs: collections and pairs by places in a list of sources."""
    place = {number: at for at, number in enumerate(item.rows())}
    return {
        "collections": [
            [role, kind, spec, [place[number] for number in numbers]] for role, kind, spec, numbers in item.collections
        ],
        "natives": item.natives,
        "sources": [
            [
                *judged.rows[number], found[number].object, found[number].offset, found[number].length,
                found[number].digest, found[number].size, found[number].crc, found[number].learned,
            ]
            for number in place
        ],
    }  # fmt: skip


def _memory(item: packs.Asked, found: dict[int, Known]) -> int:
    """What the child may need: one tar beside its manifest at a time, or all of them where one manifest serves all."""
    names = 0
    for pair in item.natives:
        manifests, tars = (item.collections[at][3] for at in pair)
        rows = [found[number].records for number in manifests]
        members = [found[number].records for number in tars]
        together = len(manifests) == 1
        names = max(names, sum(rows + members) if together else max(rows) + max(members))
    return BASE_MEMORY + PER_SEGMENT * len(found) + PER_NAME * names


def _job(payload: dict[str, Any]) -> Iterator[bytes]:
    head = {name: payload[name] for name in ("collections", "natives")}
    yield orjson.dumps(head, option=orjson.OPT_APPEND_NEWLINE)
    for source in payload["sources"]:
        yield orjson.dumps(source, option=orjson.OPT_APPEND_NEWLINE)


def prepare(site: Site, unit: Unit) -> Call:
    """The call of a pack unit."""
    job = site.root.staging(attempt(unit)) + ".job"
    with open(job, "xb") as file:
        file.writelines(_job(units.payload(unit)))
    arguments = {"root": site.root.path, "attempt": attempt(unit), "job": job}
    return Call("blendex.units.pack:run", arguments, unit.memory, site.settings.unit_seconds)


def finish(site: Site, unit: Unit, outcome: Outcome) -> bool:
    """Take over a pack, or why there can be none, and let go on whoever waited; False when the lease was lost."""
    assert outcome.result is not None
    result = outcome.result
    with site.work.write() as session:
        if not states.end_unit(session, unit.id, unit.fence, "done"):
            return False
        name = units.payload(unit)["digest"]
        if "refused" in result:
            catalog.record(session, name, object_id=None, error=result["refused"])
        else:
            object_id = sources.add_object(session, result["object"], result["counts"]["bytes"])
            catalog.record(
                session, name, object_id=object_id, layout_hash=result["layout_hash"], counts=result["counts"]
            )
        _release(session, unit.id)
    return True


def _release(session: Session, unit: int) -> None:
    # progress decides what comes next, and asks this room whether packs do.
    from blendex.builds.progress import queue_publish_if_done

    units.withdraw(session, unit)
    for name in sorted(units.subscribers(session, unit)):
        states.touch_build(session, name)
        build = builds.get(session, name)
        if build is not None:
            queue_publish_if_done(session, build)


def fail(site: Site, unit: Unit, outcome: Outcome) -> bool:
    """A child died, or found that what it packs from is damaged; False when the lease was lost."""
    with site.work.write() as session:
        error = outcome.error
        if error is not None and error["code"] == Code.OBJECT_DAMAGED:
            return _plan_again(site, session, unit, error)
        if outcome.cause == "memory" and unit.attempts == 0:
            return _larger(session, unit)
        if (again := causes.again(session, unit, outcome, MOST_ATTEMPTS, errors_too=True)) is not None:
            return again
        error = error or _cause(outcome.cause).as_dict()
        if not states.end_unit(session, unit.id, unit.fence, "failed", error):
            return False
        catalog.record(session, units.payload(unit)["digest"], object_id=None, error=error)
        _release(session, unit.id)
    return True


def _cause(cause: str) -> BlendexError:
    return BlendexError(
        Code.OUT_OF_MEMORY if cause == "memory" else Code.CHILD_DIED,
        f"packing was stopped ({cause}).",
        next_step="The dataset keeps its loose sidecars; post the blend again to try once more.",
    )


def _larger(session: Session, unit: Unit) -> bool:
    if not states.end_unit(session, unit.id, unit.fence, "failed", {"cause": "memory"}):
        return False
    payload = units.payload(unit)
    new = units.create(
        session, "pack", unit.build, payload, memory=unit.memory * LARGER, cost=unit.cost,
        priority=priority_of(unit), attempts=1,
    )  # fmt: skip
    units.move_pending(session, unit.id, new, [(f"pack:{payload['digest']}", packs.RECIPE)])
    units.copy_subscriptions(session, unit.id, new, 0)
    return True


def _plan_again(site: Site, session: Session, unit: Unit, error: dict[str, Any]) -> bool:
    """An object is damaged: its sources are read once more for every build that waits."""
    if not states.end_unit(session, unit.id, unit.fence, "done"):
        return False
    units.withdraw(session, unit.id)
    site.root.set_aside(error["file"])
    sources.lose_object(session, error["file"])
    for name in sorted(units.subscribers(session, unit.id)):
        build = builds.get(session, name)
        if build is not None:
            replan(session, build, [])
    return True
