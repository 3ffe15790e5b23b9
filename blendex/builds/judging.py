"""Judging: hold every source of a build against what was found in it, and say which packs stand for which sources.

All of it comes out of one pass over the catalog, a few thousand sources at a time: what later steps need of each is
kept in 65 bytes a source (``Contents``), and whoever wants more of a source is told while it is in hand.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.orm import Session

from blendex.blend.world import World
from blendex.builds import packs
from blendex.builds.places import Contents, Places, known_rows, rows_of
from blendex.catalog import blobs, sources
from blendex.catalog import packs as pack_catalog
from blendex.catalog.models import Build
from blendex.catalog.packs import KnownPack
from blendex.catalog.sources import Known
from blendex.errors import BlendexError, Code
from blendex.formats.findings import FINDINGS, Finding, refusing
from blendex.formats.kinds import KINDS
from blendex.units.plan import runs_of


class ReplanError(Exception):
    """Something that the plan relied on is not there any more."""


@dataclass(slots=True)
class Judged:
    """What is published and what is not.

    Attributes:
        rows: (kind, path) of all that were planned, sorted.
        places: where the catalog knows them.
        plan: as it is stored.
        contents: of the rows that are good.
        problems: all that is wrong.
        excluded: the leaves that are left out, with who, why and the first problem.
        kept: for each row 1 when it goes into the mirror.
    """

    rows: list[tuple[str, str]]
    places: Places
    plan: dict[str, Any]
    contents: Contents
    problems: list[dict[str, Any]] = field(default_factory=list)
    excluded: list[dict[str, Any]] = field(default_factory=list)
    kept: bytearray = field(default_factory=bytearray)

    @property
    def gone(self) -> set[tuple[Any, ...]]:
        """Pointers of the leaves that are left out."""
        return {tuple(item["pointer"]) for item in self.excluded}

    @property
    def count(self) -> int:
        """How many sources go into the mirror."""
        return self.kept.count(1)


@dataclass(slots=True)
class Packs:
    """The packs of a mirror, and what the build says of each dataset that was to have one.

    Attributes:
        files: by name in the mirror.
        datasets: what the build says of each.
        blend: [pointer of a dataset, file] each.
        inside: for each row ``packs.LOOSE``, or from 1 the place in ``files`` of the pack that stands for its loose
            sidecar.
        packed_only: what the key says of sources that have no loose sidecar.
        stranded: problems: a dataset has no pack after all, and its tars were not read for loose sidecars.
    """

    inside: array[int]
    files: dict[str, KnownPack] = field(default_factory=dict)
    datasets: list[dict[str, Any]] = field(default_factory=list)
    blend: list[list[Any]] = field(default_factory=list)
    packed_only: list[str] = field(default_factory=list)
    stranded: list[dict[str, Any]] = field(default_factory=list)


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


Tell = Callable[[Judged, int, Known], None]


def _nobody(_judged: Judged, _number: int, _known: Known) -> None:
    """Nobody wants more of a source than is judged."""


def judge(session: Session, build: Build, world: World, tell: Tell = _nobody) -> Judged:
    """Hold every source of a build against what was found in it.

    Args:
        session: of the catalog.
        build: planned and indexed.
        world: of its submission.
        tell: gets each row that is good, in order, and what is known of it.

    Raises:
        ReplanError: something is not known that should be, such as an object that was lost.
    """
    assert build.plan is not None
    assert build.problems is not None
    plan = blobs.get_json(session, build.plan)
    rows = rows_of(session, build.id)
    places = Places(build.options["compat"], world, plan.get("derived", []))
    judged = Judged(rows, places, plan, Contents(len(rows)), kept=bytearray(len(rows)))
    _check_derived(session, judged)
    bad = _bad_rows(session, build, judged, tell)
    bad_leaves: dict[tuple[Any, ...], dict[str, Any]] = {}
    for item in blobs.get_json(session, build.problems):
        judged.problems.append(item)
        if item["pointer"] is not None:
            bad_leaves.setdefault(tuple(item["pointer"]), item)
    leaves = [leaf for dataset in plan["datasets"] for leaf in dataset["leaves"]]
    for leaf in leaves if bad else ():
        for number in packs.numbers_of(leaf["sources"]):
            if (error := bad.get(number)) is not None:
                place = {"blend_file": leaf["file"], "blend_line": leaf["line"], "pointer": leaf["pointer"]}
                problem = place | error | {"scope": "source", "path": judged.rows[number][1]}
                judged.problems.append(problem)
                bad_leaves.setdefault(tuple(leaf["pointer"]), problem)
    for leaf in leaves:
        if tuple(leaf["pointer"]) not in bad_leaves:
            for start, length in leaf["sources"]:
                judged.kept[start : start + length] = b"\1" * length
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


def _bad_rows(session: Session, build: Build, judged: Judged, tell: Tell) -> dict[int, dict[str, Any]]:
    allow = frozenset(build.options["allow"])
    bad: dict[int, dict[str, Any]] = {}
    for number, known in known_rows(session, judged.places, judged.rows, range(len(judged.rows))):
        path = judged.rows[number][1]
        if known is None or (not known.has_content and known.error is None):
            raise ReplanError(path)
        if known.error is not None:
            bad[number] = known.error | {"file": path}
            continue
        if known.findings and (refused := refusing([Finding.from_dict(item) for item in known.findings], allow)):
            bad[number] = _refused(path, refused)
            continue
        judged.contents.put(number, *judged.rows[number], known)
        tell(judged, number, known)
    return bad


def digest_of(item: packs.Asked, judged: Judged) -> str:
    """What a pack that a judged build wants is known by."""
    return packs.digest(item, judged.rows, judged.contents.of, judged.places.compat)


def _stranded(item: packs.Asked, error: dict[str, Any]) -> dict[str, Any]:
    told = f"{item.name} has no pack, and its tars were not read (tars=paths): {error['message']}"
    next_step = f"{error.get('next_step', '')} Or post it with tars=offsets.".strip()
    return {"scope": "entry", "pointer": item.pointer} | error | {"message": told, "next_step": next_step}


def packs_of(session: Session, build: Build, judged: Judged) -> Packs:
    """The packs that were made for a build, and why others were not.

    Raises:
        ReplanError: a pack is not there: an object was lost, or a source became another one.
    """
    made = Packs(packs.no_places(len(judged.rows)))
    names: dict[str, str] = {}
    for item in packs.asked(judged.plan, judged.gone):
        error = item.refusal
        if error is None:
            digest = digest_of(item, judged)
            pack = pack_catalog.known(session, [digest]).get(digest)
            if pack is None:
                raise ReplanError(item.name)
            error = pack.error
        if error is not None:
            made.datasets.append({"dataset": item.name, "reasons": [{"pointer": item.pointer} | error]})
            if any(not KINDS[judged.rows[number][0]].loose for number in item.rows()):
                made.stranded.append(_stranded(item, error))
            continue
        assert pack is not None
        assert pack.layout_hash is not None
        name = packs.file_name(item, judged.rows, pack, names)
        names[name] = pack.layout_hash
        made.files[name] = pack
        made.blend.append([item.pointer, name])
        made.datasets.append({"dataset": item.name, "file": name, "layout_hash": pack.layout_hash} | pack.counts)
        made.datasets[-1] |= packs.environment(pack)
        place = list(made.files).index(name) + 1
        for number in item.rows():
            made.inside[number] = place
    made.datasets += judged.plan.get("packing", {}).get("told", [])
    if build.options.get("sidecars") == "all":
        made.inside = packs.no_places(len(judged.rows))
    elif made.files:
        packed = [pointer for pointer, _ in made.blend]
        again = packs.keep_loose(judged.plan["datasets"], packed, judged.gone, made.inside)
        layouts = {str(pack.layout_hash) for pack in made.files.values()}
        made.packed_only = packs.packed_only(layouts, [judged.rows[number] for number in again])
    return made


def roles_of(judged: Judged) -> list[dict[str, list[list[int]]]]:
    """Which sources the blend puts side by side, as runs of lines of the job, per leaf that is published."""
    everything = judged.count == len(judged.rows)
    line = array("Q")
    for number in range(len(judged.rows) if not everything else 0):
        line.append(line[-1] + judged.kept[number - 1] if number else 0)
    found = []
    for dataset in judged.plan["datasets"]:
        for leaf in dataset["leaves"]:
            roles = leaf.get("roles")
            if not roles:
                continue
            if everything:  # line n is row n
                found.append(roles)
            elif all(all(judged.kept[start : start + length]) for runs in roles.values() for start, length in runs):
                found.append({role: _lines(line, runs) for role, runs in roles.items()})
    return found


def _lines(line: array[int], runs: list[list[int]]) -> list[list[int]]:
    def numbers() -> Iterator[int]:
        for start, length in runs:
            yield from line[start : start + length]

    return runs_of(numbers())
