"""Arranging: which packs a build wants that nobody has made yet.

A unit of its own, done in the parent like the judging of a publish: it reads all that is known of every source, once,
which takes seconds for 300,000: no transaction that writes may last that long.
"""

from __future__ import annotations

from array import array
from sys import intern
from typing import Any

from sqlalchemy.orm import Session

from blendex.blend.world import World
from blendex.builds import abilities, packs
from blendex.builds.judging import Judged, ReplanError, digest_of, judge
from blendex.builds.site import Site
from blendex.builds.submit import load_submission
from blendex.catalog import blobs, builds, states, units
from blendex.catalog import packs as catalog
from blendex.catalog.models import Build, Unit
from blendex.catalog.sources import Known
from blendex.errors import Code

# What the payload of an arrangement holds; that of a pack names its digest.
ARRANGE = {"arrange": True}
# The parent's: rows with their contents, where each sidecar lies, and the payload of one pack at a time.
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
        found = _Sidecars()
        judged = judge(session, build, World.from_dict(load_submission(session, build)["world"]), found.add)
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
        _check_learnt(judged, item, found)
        payload = {"digest": name, "dataset": item.name} | _payload(judged, item, found)
        cost = sum(map(found.length, item.rows()))
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


class _Sidecars:
    """Where the sidecar of each row lies, kept while the rows are judged: 80 bytes a row, and no second look."""

    def __init__(self) -> None:
        self._objects: list[str] = []
        self._digests = bytearray()
        self._learned = bytearray()
        self._numbers = tuple(array("q") for _ in range(4))

    def add(self, _judged: Judged, number: int, known: Known) -> None:
        """A row that is good, after all rows before it; those that are not leave a gap."""
        gap = number - len(self._objects)
        self._objects += [""] * gap
        self._objects.append(intern(known.object))
        self._digests += bytes(32 * gap) + bytes.fromhex(known.digest)
        self._learned += bytes(gap) + bytes([known.learned])
        crc = -1 if known.crc is None else known.crc
        for column, value in zip(self._numbers, (known.offset, known.length, known.records, crc), strict=True):
            column.frombytes(bytes(8 * gap))
            column.append(value)

    def length(self, number: int) -> int:
        """Bytes of a sidecar."""
        return self._numbers[1][number]

    def records(self, number: int) -> int:
        """Records in a sidecar."""
        return self._numbers[2][number]

    def learned(self, number: int) -> int:
        """What is known of the records of a row; nothing of a row that is not good."""
        return self._learned[number] if number < len(self._learned) else 0

    def known(self, number: int) -> bool:
        """Whether a row is good."""
        return number < len(self._objects) and self._objects[number] != ""

    def line(self, number: int, size: int) -> list[Any]:
        """What the child is told: object, offset, length, digest, size, CRC-32, what was learnt."""
        offset, length, _, crc = (column[number] for column in self._numbers)
        digest = self._digests[32 * number : 32 * number + 32].hex()
        known_crc = None if crc < 0 else crc
        return [self._objects[number], offset, length, digest, size, known_crc, self._learned[number]]


def _check_learnt(judged: Judged, item: packs.Asked, found: _Sidecars) -> None:
    """Raise ReplanError for a source that has not been learnt from, as when it was read for one who wanted no pack."""
    learnt = packs.learnt_rows(judged.plan["datasets"], [item.position])
    for number in item.rows():
        if not found.known(number) or (number in learnt and not found.learned(number)):
            raise ReplanError(judged.rows[number][1])


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


def _payload(judged: Judged, item: packs.Asked, found: _Sidecars) -> dict[str, Any]:
    """All that the child needs: collections and pairs by places in a list of sources."""
    place = {number: at for at, number in enumerate(item.rows())}
    return {
        "collections": [
            [role, kind, spec, [place[number] for number in numbers]] for role, kind, spec, numbers in item.collections
        ],
        "natives": item.natives,
        "sources": [
            [*judged.rows[number], *found.line(number, judged.contents.of(number)[1])] for number in place
        ],
    }  # fmt: skip


def _memory(item: packs.Asked, found: _Sidecars) -> int:
    """What the child may need: one tar beside its manifest at a time, or all of them where one manifest serves all."""
    names = 0
    for pair in item.natives:
        manifests, tars = (item.collections[at][3] for at in pair)
        rows = list(map(found.records, manifests))
        members = list(map(found.records, tars))
        together = len(manifests) == 1
        names = max(names, sum(rows + members) if together else max(rows) + max(members))
    return BASE_MEMORY + PER_SEGMENT * len(item.rows()) + PER_NAME * names
