"""Publishing: judge what was read, make the key, hand the job to a child, and tell that the mirror is there."""

from __future__ import annotations

import contextlib
import os
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson
from sqlalchemy.orm import Session

from blendex.blend.world import World
from blendex.builds import packs
from blendex.builds.attempts import attempt
from blendex.builds.places import Places, content_hash, known_rows, rows_of
from blendex.builds.site import Site
from blendex.builds.submit import load_submission, queue_plan
from blendex.catalog import blobs, builds, mirrors, sources, states, units
from blendex.catalog import packs as pack_catalog
from blendex.catalog.models import Build, Unit
from blendex.catalog.packs import KnownPack
from blendex.catalog.sources import Known
from blendex.errors import BlendexError, Code
from blendex.formats.findings import FINDINGS, Finding, refusing
from blendex.mirrors.keys import KeyMaker
from blendex.mirrors.pointers import write_pointer
from blendex.runtime.slots import Call, Outcome
from blendex.units.job import JOB_FIELDS, read_job
from blendex.units.plan import runs_of
from blendex.version import __version__

# A blend whose sources change while they are read is planned again; one that never comes to rest is given up.
MOST_REPLANS = 5
MOST_ATTEMPTS = 3
# Rows of one transaction that notes where sidecars lie: well under a second.
LINKS = 20_000


class ReplanError(Exception):
    """Something that the plan relied on is not there any more."""


@dataclass(slots=True)
class Judged:
    """What is published and what is not."""

    rows: list[tuple[str, str]]  # (kind, path), sorted, all that were planned
    places: Places
    plan: dict[str, Any]
    problems: list[dict[str, Any]] = field(default_factory=list)
    excluded: list[dict[str, Any]] = field(default_factory=list)
    kept: set[int] = field(default_factory=set)  # row numbers that go into the mirror

    @property
    def gone(self) -> set[tuple[Any, ...]]:
        """Pointers of the leaves that are left out."""
        return {tuple(item["pointer"]) for item in self.excluded}


@dataclass(slots=True)
class Packs:
    """The packs of a mirror, and what the build says of each dataset that was to have one."""

    files: dict[str, KnownPack] = field(default_factory=dict)  # by name in the mirror
    datasets: list[dict[str, Any]] = field(default_factory=list)
    blend: list[list[Any]] = field(default_factory=list)  # [pointer of a dataset, file]
    inside: dict[int, str] = field(default_factory=dict)  # row number: the pack that stands for its loose sidecar


def _numbers(leaf: dict[str, Any]) -> Iterator[int]:
    for start, length in leaf["sources"]:
        yield from range(start, start + length)


def _refused(path: str, findings: list[Finding]) -> dict[str, Any]:
    finding = findings[0]
    others = f" and {len(findings) - 1} other findings" if len(findings) > 1 else ""
    known = FINDINGS[finding.name]
    names = ",".join(item.name for item in findings)
    return BlendexError(
        Code.SOURCE_REFUSED,
        f"{finding.name} ({finding.count}×){others}: {known.effect}",
        file=path,
        byte=finding.first,
        next_step=f"{known.remedy} Or take it as it is with allow={names}.",
    ).as_dict()


def judge(session: Session, build: Build, world: World) -> Judged:
    """Hold every source of a build against what was found in it.

    Raises:
        ReplanError: something is not known that should be, such as an object that was lost.
    """
    assert build.plan is not None
    assert build.problems is not None
    plan = blobs.get_json(session, build.plan)
    rows = rows_of(session, build.id)
    judged = Judged(rows, Places(build.options["compat"], world, plan.get("derived", [])), plan)
    _check_derived(session, judged)
    leaves = [leaf for dataset in plan["datasets"] for leaf in dataset["leaves"]]
    bad = _bad_rows(session, build, judged)
    bad_leaves: dict[tuple[Any, ...], dict[str, Any]] = {}
    for item in blobs.get_json(session, build.problems):
        judged.problems.append(item)
        if item["pointer"] is not None:
            bad_leaves.setdefault(tuple(item["pointer"]), item)
    for leaf in leaves:
        for number in _numbers(leaf):
            if (error := bad.get(number)) is not None:
                place = {"blend_file": leaf["file"], "blend_line": leaf["line"], "pointer": leaf["pointer"]}
                problem = place | error | {"scope": "source", "path": judged.rows[number][1]}
                judged.problems.append(problem)
                bad_leaves.setdefault(tuple(leaf["pointer"]), problem)
    for leaf in leaves:
        if tuple(leaf["pointer"]) not in bad_leaves:
            judged.kept.update(_numbers(leaf))
    who = build.options.get("accepted_by", build.owner)
    why = build.options.get("accepted_why", "on_bad=exclude")
    judged.excluded = [
        {"pointer": list(pointer), "by": who, "why": why, "problem": problem}
        for pointer, problem in sorted(bad_leaves.items(), key=lambda item: str(item[0]))
    ]
    return judged


def _check_derived(session: Session, judged: Judged) -> None:
    """A derived source was made from what the plan saw: if an input is another one by now, plan again.

    Raises:
        ReplanError: naming the input.
    """
    for spec in judged.plan.get("derived", []):
        for kind, path, _, token in spec["inputs"]:
            name, address = judged.places.of(kind, path)
            known = next(sources.known(session, name, [address]), None)
            if known is not None and known.error is None and known.token != token:
                raise ReplanError(path)


def _bad_rows(session: Session, build: Build, judged: Judged) -> dict[int, dict[str, Any]]:
    allow = frozenset(build.options["allow"])
    bad: dict[int, dict[str, Any]] = {}
    for number, known in known_rows(session, judged.places, judged.rows, range(len(judged.rows))):
        path = judged.rows[number][1]
        if known is None or (not known.has_content and known.error is None):
            raise ReplanError(path)
        if known.error is not None:
            bad[number] = known.error | {"file": path}
        elif known.findings and (refused := refusing([Finding.from_dict(item) for item in known.findings], allow)):
            bad[number] = _refused(path, refused)
    return bad


def wanted_rows(session: Session, judged: Judged, item: packs.Asked) -> dict[int, Known]:
    """What the catalog knows of the sources of a pack."""
    return {
        number: known
        for number, known in known_rows(session, judged.places, judged.rows, sorted(item.rows()))
        if known is not None
    }


def _packs(session: Session, build: Build, judged: Judged) -> Packs:
    """The packs that were made for a build, and why others were not.

    Raises:
        ReplanError: a pack is not there: an object was lost, or a source became another one.
    """
    made = Packs()
    names: dict[str, str] = {}
    loose = set(judged.kept)
    for item in packs.asked(judged.plan, judged.gone):
        error = item.refusal
        if error is None:
            digest = packs.digest(item, judged.rows, wanted_rows(session, judged, item), build.options["compat"])
            pack = pack_catalog.known(session, [digest]).get(digest)
            if pack is None:
                raise ReplanError(item.name)
            error = pack.error
        if error is not None:
            made.datasets.append({"dataset": item.name, "reasons": [{"pointer": item.pointer} | error]})
            continue
        assert pack is not None
        assert pack.layout_hash is not None
        name = packs.file_name(item, judged.rows, pack, names)
        names[name] = pack.layout_hash
        made.files[name] = pack
        made.blend.append([item.pointer, name])
        made.datasets.append({"dataset": item.name, "file": name, "layout_hash": pack.layout_hash} | pack.counts)
        made.inside |= dict.fromkeys(item.rows(), name)
    made.datasets += judged.plan.get("packing", {}).get("told", [])
    if build.options.get("sidecars") == "all":
        made.inside.clear()
    elif made.inside:
        packed = {str(pointer) for pointer, _ in made.blend}
        for dataset in judged.plan["datasets"]:
            inside = made.inside if str(dataset["pointer"]) in packed else {}
            for leaf in dataset["leaves"]:
                if tuple(leaf["pointer"]) not in judged.gone:
                    loose.difference_update(number for number in _numbers(leaf) if number in inside)
        for dataset in judged.plan["datasets"]:
            # A source that an unpacked dataset names as well keeps its sidecar.
            if str(dataset["pointer"]) not in packed:
                loose.update(number for leaf in dataset["leaves"] for number in _numbers(leaf) if number in judged.kept)
        made.inside = {number: name for number, name in made.inside.items() if number not in loose}
    return made


class _Amounts:
    """Records and bytes of every source of a build, to be summed up for its datasets."""

    def __init__(self, rows: int) -> None:
        self.records = array("q", bytes(8 * rows))
        self.bytes = array("q", bytes(8 * rows))

    def of_datasets(self, plan: dict[str, Any]) -> list[list[int]]:
        """[records, bytes] of each dataset, in their order."""
        found = []
        for dataset in plan["datasets"]:
            numbers = {number for leaf in dataset["leaves"] for number in _numbers(leaf)}
            records = sum(self.records[number] for number in numbers)
            found.append([records, sum(self.bytes[number] for number in numbers)])
        return found


def _job_lines(
    session: Session, judged: Judged, keys: KeyMaker, inside: dict[int, str], amounts: _Amounts
) -> Iterator[bytes]:
    for number, known in known_rows(session, judged.places, judged.rows, sorted(judged.kept)):
        kind, path = judged.rows[number]
        assert known is not None  # one transaction judges and writes
        amounts.records[number], amounts.bytes[number] = known.records, known.size
        name = judged.places.recipe(kind, path)
        content = content_hash(kind, path, known)
        keys.add(kind, path, name, known.strength, content)
        values = {
            "kind": kind, "path": path, "address": known.address, "token": known.token, "recipe": name,
            "strength": known.strength, "content_hash": content, "size": known.size,
            "records": known.records, "digest": known.digest, "object": known.object, "offset": known.offset,
            "length": known.length, "link": known.mirror if known.mirror_path == path else None,
            "pack": inside.get(number),
        }  # fmt: skip
        yield orjson.dumps([values[field] for field in JOB_FIELDS], option=orjson.OPT_APPEND_NEWLINE)


def _roles(judged: Judged) -> list[dict[str, list[list[int]]]]:
    """Which sources the blend puts side by side, as runs of lines of the job, per leaf that is published."""
    line = array("Q", bytes(8 * len(judged.rows)))
    for position, number in enumerate(sorted(judged.kept)):
        line[number] = position
    found = []
    for dataset in judged.plan["datasets"]:
        for leaf in dataset["leaves"]:
            roles = leaf.get("roles") or {}
            numbers = {
                role: [number for start, length in runs for number in range(start, start + length)]
                for role, runs in roles.items()
            }
            if roles and all(number in judged.kept for row in numbers.values() for number in row):
                found.append({role: runs_of(line[number] for number in row) for role, row in numbers.items()})
    return found


def _job_path(site: Site, unit: Unit) -> str:
    return os.path.join(site.root.staging(attempt(unit)), "job")


def prepare(site: Site, unit: Unit) -> Call | None:
    """The call of a publish unit; None when there is nothing to publish: the build was brought to its state.

    Judging reads everything that is known of every source: seconds for a large build. It is done in a transaction that
    only reads, so nobody waits for it, and its verdict is written afterwards, under the fence of the lease.

    The folder of this attempt is made first, then those of earlier attempts at the same build are taken away, then
    the lease is looked at. Whatever an earlier attempt puts in its place it renames out of its own folder, so from
    then on it can publish nothing, wherever it was stopped; and if this attempt lost its lease before the look, it
    stops here, else whoever has the lease next takes this folder away.
    """
    os.mkdir(site.root.staging(attempt(unit)))
    site.root.fence_off(unit.build, attempt(unit))
    if not _has_lease(site, unit):
        _drop_folder(site, unit)
        return None
    verdict = _verdict(site, unit)
    if isinstance(verdict, Call):
        return verdict
    _drop_folder(site, unit)
    with site.work.write() as session:
        if not states.end_unit(session, unit.id, unit.fence, "done"):
            return None
        build = builds.get(session, unit.build)
        if build is None or build.state != "publishing":
            return None
        if verdict:
            _fail(session, build, verdict)
        else:
            replan(session, build, [])
    return None


def _has_lease(site: Site, unit: Unit) -> bool:
    with site.work.read() as session:
        return states.holds_lease(session, unit.id, unit.fence)


def _verdict(site: Site, unit: Unit) -> Call | list[dict[str, Any]]:
    """What shall become of a build: the call that publishes it, the problems it fails of, or no problem: plan again."""
    with site.work.read() as session:
        build = builds.get(session, unit.build)
        if build is None or build.state != "publishing":
            return []
        submission = load_submission(session, build)
        world = World.from_dict(submission["world"])
        try:
            judged = judge(session, build, world)
        except ReplanError:
            return []
        # The problems of the plan are stored: a retry starts from them; those of the sources are judged anew.
        if judged.problems and build.options["on_bad"] == "fail":
            return judged.problems
        if not judged.kept:
            error = BlendexError(
                Code.EMPTY_BUILD,
                "nothing is left to index in this blend.",
                file=build.file,
                next_step="See the problems: every entry needs no index, or was refused.",
            )
            return [error.as_dict() | {"scope": "entry", "pointer": None}, *judged.problems]
        excluded = judged.excluded if build.options["on_bad"] == "exclude" else []
        try:
            made = _packs(session, build, judged)
        except ReplanError:
            return []
        layouts = {str(pack.layout_hash) for pack in made.files.values()}
        keys = KeyMaker()
        amounts = _Amounts(len(judged.rows))
        with open(_job_path(site, unit), "xb") as file:
            file.writelines(_job_lines(session, judged, keys, made.inside, amounts))
        checked_at = round(states.now(session), 3)
    arguments = submission | {
        "root": site.root.path,
        "roots": list(site.roots),
        "build": build.id,
        "attempt": attempt(unit),
        "key": keys.key(layouts, () if build.options.get("sidecars") == "all" else layouts),
        "file": build.file,
        "max_sources": site.settings.max_sources,
        "stat_threads": site.settings.stat_threads,
        "exclude": [item["pointer"] for item in excluded],
        "roles": _roles(judged),
        "packs": [
            {"file": name, "object": pack.object, "layout_hash": pack.layout_hash} | pack.counts
            for name, pack in sorted(made.files.items())
        ],
        "index_packs": made.blend,
        "receipt": {
            "source_set": keys.source_set,
            "content": keys.content,
            "recipes": sorted({judged.places.recipe(*row) for row in judged.rows}),
            "versions": {"blendex": __version__},
            "excluded": excluded,
        },
        "build_json": {
            "id": build.id,
            "owner": build.owner,
            "identity": build.identity,
            "file": build.file,
            "options": build.options,
            "names": build.names,
            "created_at": build.created_at,
            "checked_at": checked_at,
            "sources": len(judged.kept),
            "excluded": excluded,
            "packs": made.datasets,
            "amounts": amounts.of_datasets(judged.plan),
        },
    }
    return Call("blendex.units.stage:run", arguments, unit.memory, site.settings.unit_seconds)


def _fail(session: Session, build: Build, problems: list[dict[str, Any]]) -> None:
    states.move_build(
        session,
        build.id,
        "failed",
        build.fence,
        error=problems[0],
        problems=blobs.put_json(session, problems),
    )
    units.unsubscribe(session, build.id)


def replan(session: Session, build: Build, changed: list[str]) -> None:
    """Plan a build again: what it was published from is not what lies there now."""
    if build.replans >= MOST_REPLANS:
        error = BlendexError(
            Code.SOURCE_CHANGED,
            f"sources kept changing while they were indexed ({build.replans} attempts).",
            file=changed[0] if changed else None,
            next_step="Retry when nobody writes to them any more.",
        )
        states.move_build(session, build.id, "failed", build.fence, error=error.as_dict())
        units.unsubscribe(session, build.id)
        return
    states.move_build(session, build.id, "planning", build.fence, replans=build.replans + 1)
    queue_plan(session, build.id)


def finish(site: Site, unit: Unit, outcome: Outcome) -> bool:
    """Take over what the child published; False when the lease was lost."""
    assert outcome.result is not None
    result = outcome.result
    if not _take_over(site, unit, result):
        return False
    _drop_folder(site, unit)
    return True


def _take_over(site: Site, unit: Unit, result: dict[str, Any]) -> bool:
    with site.work.write() as session:
        if not states.end_unit(session, unit.id, unit.fence, "done"):
            return False
        build = builds.get(session, unit.build)
        if build is None:
            return True
        if "changed" in result:
            replan(session, build, result["changed"])
            return True
        receipt = result["receipt"]
        key = receipt["key"]
        mirror = mirrors.add(
            session,
            key=key,
            source_set=receipt["source_set"],
            content=receipt["content"],
            counts=receipt["counts"],
        )
        build_json = _read_build_json(site, build.id)
        if not states.move_build(
            session,
            build.id,
            "ready",
            build.fence,
            mirror=key,
            excluded=build_json["excluded"],
            packs=build_json["packs"],
            checked_at=build_json["checked_at"],
            error=None,
        ):
            return True
        builds.set_amounts(session, build.id, build_json.get("amounts", ()))
        # Read after the move: a submission that joined this build while it ran may have brought a name.
        build = builds.get(session, unit.build)
        assert build is not None
        names = list(build.names)
        for name in sorted(names):
            mirrors.point(session, name, build.id)
        units.unsubscribe(session, build.id)
    for name in names:
        write_pointer(site.work, site.root, name)
    if result["written"]:
        _remember_links(site, unit, mirror)
    return True


def _read_build_json(site: Site, build: str) -> dict[str, Any]:
    with open(os.path.join(site.root.build(build), "build.json"), "rb") as file:
        value: dict[str, Any] = orjson.loads(file.read())
    return value


def _remember_links(site: Site, unit: Unit, mirror: int) -> None:
    """Note where the sidecars lie that were written, so that the next mirror links them.

    In transactions of their own, after the build is ready: nobody waits for it, and a mirror whose links were
    forgotten by a crash costs the next one a copy.
    """
    written: dict[str, list[tuple[str, str]]] = {}
    with contextlib.suppress(FileNotFoundError):  # another attempt swept what is left of this one
        for item in read_job(_job_path(site, unit)):
            if item["link"] is None and item["pack"] is None:
                rows = written.setdefault(item["recipe"], [])
                rows.append((item["address"], item["path"]))
                if len(rows) == LINKS:
                    _note(site, mirror, item["recipe"], rows)
    for name, rows in written.items():
        _note(site, mirror, name, rows)


def _note(site: Site, mirror: int, recipe_name: str, rows: list[tuple[str, str]]) -> None:
    rows.sort()
    with site.work.write() as session:
        sources.written_in(session, mirror, recipe_name, rows)
    rows.clear()


def _drop_folder(site: Site, unit: Unit) -> None:
    with contextlib.suppress(FileNotFoundError):
        site.root.discard(site.root.staging(attempt(unit)))


def fail(site: Site, unit: Unit, outcome: Outcome) -> bool:
    """The child could not publish; False when the lease was lost."""
    _drop_folder(site, unit)
    with site.work.write() as session:
        build = builds.get(session, unit.build)
        if build is None:
            return states.end_unit(session, unit.id, unit.fence, "failed")
        error = (
            outcome.error
            or BlendexError(
                Code.OUT_OF_MEMORY if outcome.cause == "memory" else Code.CHILD_DIED,
                f"publishing was stopped ({outcome.cause}).",
                next_step="Retry; see the log of the worker if it comes again.",
            ).as_dict()
        )
        if error["code"] == Code.OBJECT_DAMAGED:
            if not states.end_unit(session, unit.id, unit.fence, "done"):
                return False
            site.root.set_aside(error["file"])
            sources.lose_object(session, error["file"])
            replan(session, build, [])
            return True
        if outcome.error is None and unit.attempts + 1 < MOST_ATTEMPTS:
            return states.hand_back(session, unit.id, unit.fence, count=True)
        if not states.end_unit(session, unit.id, unit.fence, "failed", error):
            return False
        states.move_build(session, build.id, "failed", build.fence, error=error)
        units.unsubscribe(session, build.id)
    return True
