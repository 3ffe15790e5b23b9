"""Planning: what a plan found becomes datasets, subscriptions to work under way, and units for the rest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy.orm import Session

from blendex.builds import abilities, causes, disk, packs, quotas, rebinding
from blendex.builds.attempts import call_of
from blendex.builds.indexing import LARGER
from blendex.builds.progress import queue_publish_if_done
from blendex.builds.site import Site
from blendex.builds.submit import load_submission
from blendex.builds.teams import site_of
from blendex.catalog import blobs, builds, observations, sources, states, units
from blendex.catalog.models import Build, Unit
from blendex.errors import BlendexError, Code
from blendex.formats.kinds import recipe
from blendex.runtime.slots import Call, Outcome
from blendex.units.sorts import sort_of

# A tar is hopped through: about one 512-byte block in 16 KiB and more is read. Every source costs a round trip or
# a few, worth about 64 KiB of reading.
TAR_SHARE = 32
PER_SOURCE = 64 * 1024
# More and smaller units than slots keep the slots busy to the end: no lonely last unit.
UNITS_PER_SLOT = 6
# A build of more full units than these keeps the slots busy for long, and whoever comes meanwhile waits until a unit
# ends: its units are half as large. Three sources beside 300,000 were ready within 3.2 times their time alone with
# whole ones, within 2.4 with halves, which cost the large build nothing; a build of 20,000 they would cost 4 %.
LONG_UNITS = 16
MOST_ATTEMPTS = 3
# Seconds that one request of a plan is tried at least, however short the plan's patience is.
LEAST_PATIENCE = 1.0
# What a sidecar takes on a disk, about: a block of a small one; those of large sources are few.
SIDECAR_BYTES = 4096
# What a source fails of is in its bytes; or was tried twice, and the second time alone.
OF_BYTES = frozenset(
    {Code.TAR_EMPTY, Code.TAR_BAD_HEADER, Code.TAR_TRUNCATED, Code.TAR_ODD_MEMBERS, Code.WDS_BAD_SAMPLE}
)
OF_WORK = frozenset({Code.OUT_OF_MEMORY, Code.CHILD_DIED, Code.TIMEOUT, Code.STALLED})
FOR_GOOD = OF_BYTES | OF_WORK


class Row(NamedTuple):
    """One planned source: what the plan saw of it. A tuple: a large blend makes hundreds of thousands."""

    kind: str
    path: str
    address: str
    token: str
    size: int
    learn: bool = False  # whether the names of its records are wanted
    derivation: str = ""  # of a source that is made from others: a digest of what it is made from
    packed: bool = False  # whether a pack wants what is learnt of it

    def recipe(self, compat: str) -> str:
        """Its recipe."""
        return recipe(self.kind, compat, self.derivation)

    @property
    def cost(self) -> int:
        """Predicted bytes that indexing it reads, with what a request is worth."""
        return PER_SOURCE + (self.size if self.kind == "jsonl" else self.size // TAR_SHARE)


def plan_arguments(site: Site, submission: dict[str, Any], file: str, options: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a plan child."""
    return submission | {
        "packs": options.get("packs", "none"),
        "tars": options.get("tars", "offsets"),
        "pack_sources": site.settings.pack_sources,
        "file": file,
        **site.reading(max(LEAST_PATIENCE, site.plan_patience / 4)),  # then a pause, and what is waited for is told
        "max_sources": site.settings.max_sources,
        "stat_threads": site.settings.stat_threads,
    }


def prepare(site: Site, unit: Unit) -> Call | None:
    """The call of a plan unit; None when its build ended meanwhile, and the unit with it."""
    with site.work.write() as session:
        build = builds.get(session, unit.build)
        if build is None or not states.move_build(session, build.id, "planning", build.fence):
            states.end_unit(session, unit.id, unit.fence, "done")
            return None
        submission, file, team, options = load_submission(session, build), build.file, build.team, build.options
    arguments = plan_arguments(site_of(site, team), submission, file, options)
    return call_of(site, unit, "blendex.units.plan:run", arguments)


def chunks_of(outcome: Outcome) -> Iterator[list[Row]]:
    """The sources that a plan reported, sorted by (kind, path), a few thousand at a time; each chunk is let go."""
    outcome.progress.reverse()
    while outcome.progress:
        yield [Row(*row) for row in outcome.progress.pop()["rows"]]


def keys_of(rows: Iterable[Row], compat: str) -> list[tuple[str, str]]:
    """(address, recipe) of each: recipes are few, and one that is looked up takes a tenth of one that is made."""
    recipes: dict[tuple[str, str], str] = {}
    keys = []
    for row in rows:
        name = recipes.get((row.kind, row.derivation))
        if name is None:
            name = recipes[row.kind, row.derivation] = row.recipe(compat)
        keys.append((row.address, name))
    return keys


def look_up(session: Session, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], sources.Known]:
    """What the catalog knows of these sources, by (address, recipe)."""
    addresses: dict[str, list[str]] = {}
    for address, name in keys:
        addresses.setdefault(name, []).append(address)
    return {
        (item.address, name): item
        for name, wanted in addresses.items()
        for item in sources.known(session, name, wanted)
    }


def fresh(row: Row, known: sources.Known | None) -> bool:
    """True when the token proves that the content is the known one: no read is needed.

    A pack asks besides that its records were decoded and its names kept: a source that was read for somebody who
    wanted none is read once more.

    A token that was racy when it was stored proves nothing, now or later: the source is read again.
    """
    if known is None or (row.packed and not known.learned):
        return False
    return known.has_content and known.token == row.token and not known.racy


def settled(row: Row, known: sources.Known | None, memory: int) -> bool:
    """True when a source failed for good, and its token proves that it would again: the stored reason is the answer.

    One that took too much memory may get more today than it was given then.
    """
    if known is None or known.error is None or known.racy or known.token != row.token:
        return False
    if known.error["code"] == Code.OUT_OF_MEMORY and known.error.get("memory_bytes", 0) < memory:
        return False
    return known.error["code"] in FOR_GOOD


def cut(rows: Sequence[Row], *, most_bytes: int, most_sources: int, parts: int) -> list[list[Row]]:
    """Cut sources into units of about equal cost, neighbours together.

    Args:
        rows: sources in order.
        most_bytes: predicted bytes of one unit, about.
        most_sources: most sources in one unit.
        parts: units to aim at when there is little to do.
    """
    total = sum(row.cost for row in rows)
    target = min(most_bytes, max(total // parts, 4 * 2**20))
    result: list[list[Row]] = []
    part: list[Row] = []
    cost = 0
    for row in rows:
        if part and (cost + row.cost > target or len(part) >= most_sources):
            result.append(part)
            part, cost = [], 0
        part.append(row)
        cost += row.cost
    if part:
        result.append(part)
    return result


def _entry_failures(problems: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [item for item in problems if item["scope"] == "entry"]


def _store_datasets(session: Session, build: str, plan: dict[str, Any], members: list[tuple[str, str]]) -> None:
    described = []
    for position, dataset in enumerate(plan["datasets"]):
        numbers = sorted(
            {
                number
                for leaf in dataset["leaves"]
                for start, length in leaf["sources"]
                for number in range(start, start + length)
            }
        )
        packed = blobs.pack_list(members[number] for number in numbers)
        described.append(
            {
                "position": position,
                "name": dataset["name"],
                "type": dataset["type"],
                "weight": dataset.get("weight"),
                "share": dataset.get("share"),
                "list_hash": blobs.put(session, packed),
                "sources": len(numbers),
            }
        )
    builds.set_datasets(session, build, described)


def _sort(
    site: Site, session: Session, rows: list[Row], compat: str, again: frozenset[str] | None = None
) -> tuple[list[Row], dict[int, list[Row]]]:
    """Of these sources those that some unit must be made for, and those that a unit under way reads, by its id.

    With ``again`` only these paths are read of the sources that failed; why the others did stays as it is known.

    The units under way are looked up first, what is known second: a unit that ended between the two has told what
    it read. Sources that nobody needs to read are in neither.
    """
    keys = keys_of(rows, compat)
    under_way = units.under_way(session, keys)
    known = look_up(session, keys)
    largest = site.settings.unit_memory_mb * 2**20 * LARGER
    new: list[Row] = []
    shared: dict[int, list[Row]] = {}
    for row, key in zip(rows, keys, strict=True):
        if fresh(row, known.get(key)) or settled(row, known.get(key), largest):
            continue
        if again is not None and row.path not in again and (old := known.get(key)) is not None and old.error:
            continue
        if (unit := under_way.get(key)) is not None:
            shared.setdefault(unit, []).append(row)
        else:
            new.append(row)
    return new, shared


def _subscribe(
    site: Site,
    session: Session,
    build: Build,
    new: list[Row],
    shared: dict[int, list[Row]],
    compat: str,
    only: frozenset[str] | None = None,
) -> bool:
    """Let a build wait for units that read its sources already, and for new ones; False when there is none.

    Others plan and finish at the same time. A unit that is subscribed to is held, so that it cannot end before whoever
    ends it sees the subscription; what somebody else announced first is taken out of our units. Whatever came of
    the rest is looked up again, until there is nothing left: no source is read by two units, none by no unit.
    """
    waits = False
    while new or shared:
        again: list[Row] = []
        alive = units.hold(session, shared)
        for unit, rows in shared.items():
            if unit in alive:
                units.subscribe(session, unit, build.id, len(rows))
                waits = True
            else:
                again += rows
        units.hurry(session, alive, build.id, build.priority)
        if new:
            taken, made = _make_units(site, session, build, new, compat)
            waits = waits or made
            again += taken
        new, shared = _sort(site, session, again, compat, only)
    return waits


def _make_units(site: Site, session: Session, build: Build, new: list[Row], compat: str) -> tuple[list[Row], bool]:
    """Units for these sources; those that others announced meanwhile, and whether any unit was left."""
    # Two paths may map to one address: it is read once, and learnt from when either wants it.
    unique: dict[tuple[str, str], Row] = {}
    for row in new:
        if row.learn or (row.address, row.kind) not in unique:
            unique[row.address, row.kind] = row
    most = site.settings.unit_sources
    parts = cut(
        list(unique.values()),
        most_bytes=site.settings.unit_bytes,
        most_sources=most if len(unique) <= LONG_UNITS * most else max(1, most // 2),
        parts=site.settings.slots * UNITS_PER_SLOT,
    )
    # The largest first: no lonely last unit.
    parts.sort(key=lambda part: -sum(row.cost for row in part))
    predicted = observations.predictions(session)
    made: dict[int, list[Row]] = {}
    for part in parts:
        cost = sum(row.cost for row in part)
        unit = units.create(
            session,
            "index",
            build.id,
            _payload(part, compat, build.team),
            memory=_memory(site, part, predicted),
            cost=cost,
            priority=build.priority,
            needs=abilities.needs_of({row.kind for row in part}, compat),
        )
        made[unit] = part
    rows = [(*key, unit) for unit, part in made.items() for key in keys_of(part, compat)]
    taken: list[Row] = []
    for unit in units.announce(session, rows):
        ours = units.announced(session, unit)
        keyed = list(zip(made[unit], keys_of(made[unit], compat), strict=True))
        left = [row for row, key in keyed if key in ours]
        taken += [row for row, key in keyed if key not in ours]
        if left:
            made[unit] = left
            units.reduce(session, unit, _payload(left, compat, build.team), sum(row.cost for row in left))
        else:
            del made[unit]
            units.drop(session, unit)
    for unit, part in made.items():
        units.subscribe(session, unit, build.id, len(part))
    if made:
        builds.wake(session, "index")
    return taken, bool(made)


def _memory(site: Site, part: list[Row], predicted: dict[str, int]) -> int:
    """What a unit may need: the most that any of its sources is predicted to, as they are read one after another.

    Of a sort of which too little is known: what a child may have. Never more than that for a first try.
    """
    most = site.settings.unit_memory_mb * 2**20
    return min(most, max(predicted.get(sort_of(row.kind, row.address, row.size), most) for row in part))


def _payload(part: list[Row], compat: str, team: str) -> dict[str, Any]:
    # Whoever plans a unit says within whose roots it is read: a link that was turned meanwhile leads nowhere else.
    rows = [[row.kind, row.path, row.address, row.learn, ""] for row in part]
    return {"compat": compat, "sources": rows} | ({"team": team} if team else {})


def finish(site: Site, unit: Unit, outcome: Outcome) -> bool:
    """Take over what a plan found; False when the lease was lost."""
    assert outcome.result is not None
    plan = outcome.result
    with site.work.write() as session:
        if not states.end_unit(session, unit.id, unit.fence, "done"):
            return False
        build = builds.get(session, unit.build)
        if build is None or build.state != "planning":
            return True
        compat = build.options["compat"]
        again = frozenset(build.again) if build.again is not None else None
        rebind = build.options.get("rebind")
        world = load_submission(session, build)["world"] if rebind is not None else {}
        learnt = packs.learnt_rows(plan["datasets"], plan["packing"]["wanted"])
        members: list[tuple[str, str]] = []
        new: list[Row] = []
        shared: dict[int, list[Row]] = {}
        for rows in chunks_of(outcome):
            wanted = [
                row._replace(learn=True, packed=True) if number in learnt else row
                for number, row in enumerate(rows, len(members))
            ]
            if rebind is not None:
                rebinding.same_files(
                    session, rebind, world, ((row.path, row.recipe(compat), row.address, row.token) for row in rows)
                )
            some, others = _sort(site, session, wanted, compat, again)
            new += some
            for owner, waiting in others.items():
                shared.setdefault(owner, []).extend(waiting)
            members += [(row.kind, row.path) for row in rows]
        needed = len(new) + sum(map(len, shared.values()))
        entry_failures = _entry_failures(plan["problems"])
        _store_datasets(session, build.id, plan, members)
        slim = {key: plan[key] for key in ("datasets", "packing", "derived", "warnings", "entries")}
        values = {
            "plan": blobs.put_json(session, slim),
            "problems": blobs.put_json(session, plan["problems"]),
            "sources": len(members),
            "reused": len(members) - needed,
            "bytes": plan["bytes"],
            "recipes": abilities.needs_of_build({kind for kind, _ in members}, compat),
        }
        if entry_failures and build.options["on_bad"] == "fail":
            # The blend itself is wrong: its user mends it in a minute, and needs no hour of indexing before.
            states.move_build(session, build.id, "failed", build.fence, error=entry_failures[0], **values)
            units.unsubscribe(session, build.id)
            return True
        try:
            disk.check(site, session, files=needed, size=needed * SIDECAR_BYTES)
            quotas.check_plan(site, build, len(members))
        except BlendexError as error:
            states.move_build(session, build.id, "failed", build.fence, error=error.as_dict(), **values)
            units.unsubscribe(session, build.id)
            return True
        del members
        # The build stays as it was for everybody else until this transaction ends, however long it takes.
        if not states.move_build(session, build.id, "indexing", build.fence, **values):
            return True
        # What is derived waits for what it is derived from.
        read = [row for row in new if not row.derivation]
        if not _subscribe(site, session, build, read, shared, compat, again):
            queue_publish_if_done(session, build)
    return True


def fail(site: Site, unit: Unit, outcome: Outcome) -> bool:
    """The blend could not be planned at all."""
    error = (
        outcome.error
        or BlendexError(
            Code.OUT_OF_MEMORY if outcome.cause == "memory" else Code.CHILD_DIED,
            f"planning was stopped ({outcome.cause}).",
            next_step="Retry; see the log of the worker if it comes again.",
        ).as_dict()
    )
    with site.work.write() as session:
        if (again := causes.again(session, unit, outcome, MOST_ATTEMPTS, site.plan_patience)) is not None:
            return again
        if not states.end_unit(session, unit.id, unit.fence, "failed", error):
            return False
        build = builds.get(session, unit.build)
        if build is not None:
            problems = blobs.put_json(session, [error | {"scope": "entry", "pointer": None}])
            states.move_build(session, build.id, "failed", build.fence, error=error, problems=problems)
            units.unsubscribe(session, build.id)
    return True
