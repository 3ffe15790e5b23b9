"""Publishing: judge what was read, make the key, hand the job to a child, and tell that the mirror is there."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from typing import Any

import orjson
from sqlalchemy.orm import Session

from blendex.blend.index_path import sidecar_files
from blendex.blend.world import World
from blendex.builds import access, causes, packs, rebinding
from blendex.builds.attempts import attempt
from blendex.builds.judging import Judged, Packs, ReplanError, judge, packs_of, roles_of
from blendex.builds.site import Site
from blendex.builds.submit import load_submission, queue_plan
from blendex.builds.teams import site_of
from blendex.catalog import audit, blobs, builds, mirrors, sources, states, units
from blendex.catalog.models import Build, Unit
from blendex.catalog.sources import Known
from blendex.errors import BlendexError, Code
from blendex.mirrors.holds import keep_for_build
from blendex.mirrors.keys import KeyMaker
from blendex.mirrors.pointers import write_pointer
from blendex.observability import logs
from blendex.runtime.slots import Call, Outcome
from blendex.units.job import read_job
from blendex.version import __version__

logger = logs.get_logger("blendex.builds")

# A blend whose sources change while they are read is planned again; one that never comes to rest is given up.
MOST_REPLANS = 5
MOST_ATTEMPTS = 3
# Rows of one transaction that notes where sidecars lie: well under a second.
LINKS = 20_000


def _same_place(kind: str, known: str | None, path: str) -> bool:
    """Whether a sidecar that was written for one spelling of a source lies where another spelling wants it."""
    return known is not None and (known == path or sidecar_files(kind, known) == sidecar_files(kind, path))


class _Draft:
    """What the child is told of each source, written while the source is in hand: what goes in is known afterwards.

    Args:
        path: of a file to be made.
    """

    def __init__(self, path: str) -> None:
        self._file = open(path, "x+b")  # noqa: SIM115 -- closed by close
        self._next = 0
        self._keys = KeyMaker()  # of all rows that are good: mostly all of them are kept

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def add(self, judged: Judged, number: int, known: Known) -> None:
        """A row that is good; a row that is left out gets an empty line."""
        kind, path = judged.rows[number]
        recipe = judged.places.recipe(kind, path)
        strength, content = judged.contents.in_key(number)
        self._keys.add(kind, path, recipe, strength, content)
        line = (
            kind, path, known.address, known.token, recipe, strength, content, known.size,
            known.records, known.digest, known.object, known.offset, known.length,
            known.mirror if _same_place(kind, known.mirror_path, path) else None,
        )  # fmt: skip
        self._file.write(b"\n" * (number - self._next) + orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
        self._next = number + 1

    def keys(self, judged: Judged) -> KeyMaker:
        """What the key is made of: the rows that are kept."""
        if judged.count == self._next == len(judged.rows):
            return self._keys
        keys = KeyMaker()
        for number, (kind, path) in enumerate(judged.rows):
            if judged.kept[number]:
                keys.add(kind, path, judged.places.recipe(kind, path), *judged.contents.in_key(number))
        return keys

    def job(self, judged: Judged, made: Packs) -> Iterator[bytes]:
        """The lines of the job: what is kept, each with the pack that stands for its loose sidecar."""
        self._file.seek(0)
        ends = [b"," + orjson.dumps(name) + b"]\n" for name in (None, *made.files)]
        for line, kept, place in zip(self._file, judged.kept, made.inside, strict=False):
            if kept:
                yield line[:-2] + ends[place]


def _amounts_of(judged: Judged) -> list[dict[str, Any]]:
    """Records, bytes, seconds and local of what is published of each dataset, in their order.

    Seconds are those of its manifests, when each of them is known to tell; ``local``: it has sources, and all of
    them lie on a filesystem.
    """
    contents, found = judged.contents, []
    for dataset in judged.plan["datasets"]:
        named = {number for leaf in dataset["leaves"] for number in packs.numbers_of(leaf["sources"])}
        rows = [number for number in named if judged.kept[number]]
        seconds = _seconds_of(judged, dataset["leaves"])
        found.append(
            {
                "records": sum(contents.records[row] for row in rows),
                "bytes": sum(contents.sizes[row] for row in rows),
                "seconds": None if math.isnan(seconds) else round(seconds, 3),
                "local": bool(rows) and not any(contents.remote[row] for row in rows),
            }
        )
    return found


def _seconds_of(judged: Judged, leaves: list[dict[str, Any]]) -> float:
    """Seconds of audio that the manifests of some leaves tell of; NaN when one of them does not."""
    telling: set[int] = set()
    for leaf in leaves:
        if not any(judged.kept[row] for row in packs.numbers_of(leaf["sources"])):
            continue
        runs = [run for name in ("manifests", "cuts") for run in leaf.get("roles", {}).get(name, ())]
        if not runs:
            return math.nan
        telling.update(packs.numbers_of(runs))
    return math.fsum(judged.contents.seconds[row] for row in telling if judged.kept[row]) if telling else math.nan


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
        # Held from before the child looks whether it is there: what it finds stays, whoever collects meanwhile.
        with site.work.write() as session:
            keep_for_build(session, site.root, verdict.arguments["key"], unit.build)
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
    draft = _Draft(_job_path(site, unit) + ".draft")
    try:
        with site.work.read() as session:
            build = builds.get(session, unit.build)
            if build is None or build.state != "publishing":
                return []
            submission = load_submission(session, build)
            world = World.from_dict(submission["world"])
            judged = judge(session, build, world, draft.add)
            # The problems of the plan are stored: a retry starts from them; those of the sources are judged anew.
            if judged.problems and build.options["on_bad"] == "fail":
                return judged.problems
            if not judged.count:
                error = BlendexError(
                    Code.EMPTY_BUILD,
                    "nothing is left to index in this blend.",
                    file=build.file,
                    next_step="See the problems: every entry needs no index, or was refused.",
                )
                return [error.as_dict() | {"scope": "entry", "pointer": None}, *judged.problems]
            if (rebind := build.options.get("rebind")) is not None and (
                differ := rebinding.differences(site, session, rebind, judged)
            ):
                return differ
            made = packs_of(session, build, judged)
            if made.stranded:
                return made.stranded
            asked = access.samples(site_of(site, build.team), session, build, world)
            checked_at = round(states.now(session), 3)
    except ReplanError:
        return []
    else:
        with open(_job_path(site, unit), "xb") as file:
            file.writelines(draft.job(judged, made))
    finally:
        draft.close()
    return _call(site, unit, build, submission, judged, made, draft.keys(judged), asked, checked_at)


def _call(
    site: Site,
    unit: Unit,
    build: Build,
    submission: dict[str, Any],
    judged: Judged,
    made: Packs,
    keys: KeyMaker,
    asked: list[dict[str, Any]],
    checked_at: float,
) -> Call:
    excluded = judged.excluded if build.options["on_bad"] == "exclude" else []
    layouts = {str(pack.layout_hash) for pack in made.files.values()}
    arguments = submission | {
        "root": site.root.path,
        **site_of(site, build.team).reading(),
        "access": asked,
        "build": build.id,
        "attempt": attempt(unit),
        "key": keys.key(layouts, made.packed_only),
        "file": build.file,
        "max_sources": site.settings.max_sources,
        "stat_threads": site.settings.stat_threads,
        "exclude": [item["pointer"] for item in excluded],
        "roles": roles_of(judged),
        "packs": [
            {"file": name, "object": pack.object, "layout_hash": pack.layout_hash}
            | pack.counts
            | packs.environment(pack)
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
            "labels": build.labels,
            "created_at": build.created_at,
            "checked_at": checked_at,
            "sources": judged.count,
            "excluded": excluded,
            "packs": made.datasets,
            "amounts": _amounts_of(judged),
        }
        | ({"team": build.team} if build.team else {}),
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
        written, linked = result["written"], result["linked"]
        if written:
            share = written / (written + linked)
            mirrors.note_own(session, mirror, files=written, size=int(receipt["counts"]["sidecar_bytes"] * share))
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
        builds.set_amounts(session, build.id, _amounts(site, session, build.id, build_json))
        # Read after the move: a submission that joined this build while it ran may have brought a name.
        build = builds.get(session, unit.build)
        assert build is not None
        names = list(build.names)
        for name in sorted(names):
            if mirrors.point(session, name, build.id, build.team) is None:
                # Another team was faster. It was told nobody that this one wants it.
                names.remove(name)
                build.names = list(names)
                logger.warning("name_taken", build=build.id)
                continue
            audit.note(session, audit.Actor(build.owner, build.team), "name.set", name)
        units.unsubscribe(session, build.id)
    for name in names:
        write_pointer(site.work, site.root, name)
    if result["written"]:
        _remember_links(site, unit, mirror)
    return True


def _amounts(site: Site, session: Session, build: str, build_json: dict[str, Any]) -> list[dict[str, Any]]:
    """What the catalog keeps of each dataset of a build: its amounts, and how training can fetch its audio."""
    tried = access.report(site, build) or {"datasets": []}
    verdicts = {item["dataset"]: item["verdict"] for item in tried["datasets"]}
    names = [item.name for item in builds.datasets(session, build)]
    return [
        {name: item[name] for name in ("records", "bytes", "seconds")}
        | {"access": verdicts.get(dataset) or ("local" if item["local"] else None)}
        for dataset, item in zip(names, build_json.get("amounts", ()), strict=False)
    ]


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
        patience = site.settings.store_patience
        if (again := causes.again(session, unit, outcome, MOST_ATTEMPTS, patience)) is not None:
            return again
        if not states.end_unit(session, unit.id, unit.fence, "failed", error):
            return False
        states.move_build(session, build.id, "failed", build.fence, error=error)
        units.unsubscribe(session, build.id)
    return True
