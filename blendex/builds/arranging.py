"""Arranging: which packs a build wants that nobody has made yet.

A unit of its own, done in the parent like the judging of a publish: it reads all that is known of every source, 25 s
for 300,000, which no transaction that writes may last.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from blendex.blend.world import World
from blendex.builds import abilities, packs
from blendex.builds.judging import Judged, ReplanError, digest_of, judge
from blendex.builds.places import known_rows
from blendex.builds.site import Site
from blendex.builds.submit import load_submission
from blendex.catalog import blobs, builds, states, units
from blendex.catalog import packs as catalog
from blendex.catalog.models import Build, Unit
from blendex.catalog.sources import Known
from blendex.errors import Code

# What the payload of an arrangement holds; that of a pack names its digest.
ARRANGE = {"arrange": True}
# The parent's: rows with their contents, and all that is known of the sources of one dataset at a time.
ARRANGE_MEMORY = 64 * 2**20
ARRANGE_PER_SOURCE = 1_000
# Measured: the child with its buffer, a segment with its path, a row or member with its name while it is matched.
BASE_MEMORY = 96 * 2**20
PER_SEGMENT = 2_000
PER_NAME = 500


class LeaseLostError(Exception):
    """Somebody else arranges by now."""


def queue(session: Session, build: Build) -> bool:
    """Bring a build that is indexed to packing, when it wants packs; True when it has moved.

    Once for each time of indexing: what comes of the units is known by then, also that there can be no pack.
    """
    session.refresh(build)  # who asks may have stored a new plan in this transaction
    if build.state == "packing" or build.plan is None:
        return False
    if not blobs.get_json(session, build.plan).get("packing", {}).get("wanted"):
        return False
    if not states.move_build(session, build.id, "packing", build.fence):
        return False
    memory = ARRANGE_MEMORY + ARRANGE_PER_SOURCE * build.sources
    unit = units.create(
        session, "pack", build.id, ARRANGE, memory=memory, priority=build.priority, needs=build.recipes
    )
    units.subscribe(session, unit, build.id, 0)
    builds.wake(session, "pack")
    return True


def arrange(site: Site, unit: Unit) -> None:
    """Subscribe a build to units that make the packs it wants, those of others or new ones.

    A dataset at a time, each in a short transaction, so that its pack is made while the next one is looked at. Doing
    it again after half of it was done comes to the same.

    Raises:
        ReplanError: a source has not been learnt from, or is not known any more.
        LeaseLostError: somebody else does it by now, or nobody wants it.
    """
    with site.work.read() as session:
        build = builds.get(session, unit.build)
        if build is None or build.state != "packing":
            raise LeaseLostError
        judged = judge(session, build, World.from_dict(load_submission(session, build)["world"]))
        if judged.problems and build.options["on_bad"] == "fail":
            return  # publishing tells them
        asked = list(packs.asked(judged.plan, judged.gone))
        priority = build.priority
    for item in asked:
        if item.refusal is not None:
            continue
        name = digest_of(item, judged)
        with site.work.read() as session:
            if _settled(session, name):
                continue
            found = _learnt(session, judged, item)
        payload = {"digest": name, "dataset": item.name} | _payload(judged, item, found)
        cost = sum(known.length for known in found.values())
        memory = _memory(item, found)
        with site.work.write() as session:
            if not (units.hold(session, [unit.id]) and states.holds_lease(session, unit.id, unit.fence)):
                raise LeaseLostError
            if not _settled(session, name):
                _wait_for(session, unit.build, payload, memory=memory, cost=cost, priority=priority)


def _settled(session: Session, name: str) -> bool:
    """Whether it is known what comes of a pack."""
    known = catalog.known(session, [name]).get(name)
    return known is not None and (known.error is None or known.error["code"] == Code.PACK_REFUSED)


def _learnt(session: Session, judged: Judged, item: packs.Asked) -> dict[int, Known]:
    """What is known of the sources of a pack.

    Raises:
        ReplanError: a source has not been learnt from, as when it was read for somebody who wanted no pack.
    """
    rows = sorted(item.rows())
    found = {
        number: source for number, source in known_rows(session, judged.places, judged.rows, rows) if source is not None
    }
    learnt = packs.learnt_rows(judged.plan["datasets"], [item.position])
    for number in rows:
        if number not in found or (number in learnt and not found[number].learned):
            raise ReplanError(judged.rows[number][1])
    return found


def _wait_for(session: Session, build: str, payload: dict[str, Any], *, memory: int, cost: int, priority: int) -> None:
    """Subscribe to the unit that makes a pack, made now if there is none.

    As for index units: what others announced meanwhile is subscribed to, and held until this transaction ends. One that
    just ended is looked up when the build is published.
    """
    key = (f"pack:{payload['digest']}", packs.RECIPE)
    while True:
        unit = units.under_way(session, [key]).get(key)
        if unit is None:
            unit = units.create(
                session, "pack", build, payload, memory=memory, priority=priority, cost=cost,
                needs=abilities.needs([packs.RECIPE]),
            )  # fmt: skip
            if units.announce(session, [(*key, unit)]):
                units.drop(session, unit)
                continue
            builds.wake(session, "pack")
        elif not units.hold(session, [unit]):
            return
        units.subscribe(session, unit, build, 0)
        return


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
