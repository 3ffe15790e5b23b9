"""Preview: plan a submission now, without making a build; what would it read, and is its mirror there already?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.orm import Session

from blendex.builds import packs
from blendex.builds.places import content_hash
from blendex.builds.planning import Row, chunks_of, fresh, keys_of, look_up, plan_arguments
from blendex.builds.site import Site
from blendex.builds.submission import Submission
from blendex.builds.submit import PLAN_MEMORY, gather
from blendex.catalog import mirrors
from blendex.catalog import packs as pack_catalog
from blendex.catalog.sources import Known
from blendex.errors import BlendexError, Code
from blendex.formats.findings import Finding, refusing
from blendex.mirrors.keys import KeyMaker
from blendex.runtime.slots import Call, Runner

# Bytes per second that one child reads with its hash, about; a slow file server makes it longer, which a preview
# cannot know. From benchmarks/run.py on 2 cores.
READ_BYTES_PER_SECOND = 1.3e9
SECONDS_PER_SOURCE = 0.000_25
# Somebody waits for the answer, and others for the slot.
MOST_SECONDS = 300.0
SIDECAR_SHARE = 40  # a record of about 300 bytes gets 8 bytes


@dataclass(slots=True)
class Preview:
    """What a plan says before anything is built."""

    sources: int
    bytes: int
    reused: int
    read_bytes: int
    requests: int
    inodes: int
    sidecar_bytes: int
    memory_mb: int
    minutes: float
    datasets: list[dict[str, Any]] = field(default_factory=list)
    problems: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[dict[str, Any]] = field(default_factory=list)
    entries: int = 0
    mirror: str | None = None
    path: str | None = None
    missing: list[str] = field(default_factory=list)
    packs: list[dict[str, Any]] = field(default_factory=list)
    read_again: int = 0

    def as_dict(self) -> dict[str, Any]:
        """JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


def _run(site: Site, runner: Runner, submission: Submission) -> tuple[dict[str, Any], Iterator[list[Row]]]:
    arguments = plan_arguments(site, gather(site, submission), submission.file, submission.options)
    if runner.free() < 1:
        raise BlendexError(
            Code.BUSY,
            "every preview slot is taken.",
            next_step="Ask again in a few seconds, or post a build.",
        )
    runner.start(Call("blendex.units.plan:run", arguments, PLAN_MEMORY, MOST_SECONDS))
    outcome = runner.outcomes.get()
    if outcome.error is not None:
        raise BlendexError.from_dict(outcome.error)
    if outcome.result is None:
        raise BlendexError(
            Code.CHILD_DIED, f"planning was stopped ({outcome.cause}).", next_step="Ask again; see the log."
        )
    return outcome.result, chunks_of(outcome)


def preview(site: Site, runner: Runner, submission: Submission) -> Preview:
    """Plan a submission in a child and hold it against the catalog.

    Args:
        site: root and catalog.
        runner: a runner of one slot that nobody else uses meanwhile.
        submission: what would be posted.

    Raises:
        BlendexError: the text cannot be read, or the child died.
    """
    plan, chunks = _run(site, runner, submission)
    learnt = packs.learnt_rows(plan["datasets"], plan["packing"]["wanted"])
    asked = list(packs.asked(plan, set()))
    inside = {number for item in asked for number in item.rows()}
    found: dict[int, Known] = {}
    members: list[tuple[str, str]] = []
    read_again = 0
    keys = KeyMaker()
    reused = 0
    missing: list[str] = []
    read_bytes = 0
    judged_bad: list[str] = []
    count = sidecar_bytes = 0
    folders: set[str] = set()
    with site.work.read() as session:
        for rows in chunks:
            places = keys_of(rows, submission.compat)
            known = look_up(session, places)
            for row, (address, name) in zip(rows, places, strict=True):
                count += 1
                folders.add(os.path.dirname(row.path))
                sidecar_bytes += 8 + row.size // SIDECAR_SHARE if row.kind == "jsonl" else 0
                item = known.get((address, name))
                number = len(members)
                members.append((row.kind, row.path))
                if item is not None and number in inside:
                    found[number] = item
                if item is None or not fresh(row._replace(packed=number in learnt), item):
                    read_again += item is not None and fresh(row, item)
                    missing.append(row.path)
                    read_bytes += row.cost
                    continue
                reused += 1
                if refusing([Finding.from_dict(finding) for finding in item.findings], frozenset(submission.allow)):
                    judged_bad.append(row.path)
                keys.add(row.kind, row.path, name, item.strength, content_hash(row.kind, row.path, item))
        key = None
        if count and not missing and not judged_bad and not plan["problems"]:
            key = _key(session, submission, plan["datasets"], keys, asked, members, found)
        if key is not None and (mirrors.get(session, key) is None or not os.path.isdir(site.root.mirror(key))):
            key = None
    requests = len(missing)
    return Preview(
        sources=count,
        bytes=plan["bytes"],
        reused=reused,
        read_bytes=read_bytes,
        requests=requests,
        inodes=0 if key else count + len(folders) + 4,
        sidecar_bytes=0 if key else sidecar_bytes,
        memory_mb=site.settings.slots * site.settings.unit_memory_mb if missing else PLAN_MEMORY // 2**20,
        minutes=round(
            (read_bytes / READ_BYTES_PER_SECOND + requests * SECONDS_PER_SOURCE) / site.settings.slots / 60, 3
        ),
        datasets=[
            {
                "name": dataset["name"],
                "type": dataset["type"],
                "sources": sum(length for leaf in dataset["leaves"] for _, length in leaf["sources"]),
            }
            for dataset in plan["datasets"]
        ],
        problems=plan["problems"],
        warnings=plan["warnings"],
        entries=plan["entries"],
        mirror=key,
        path=site.root.mirror(key) if key else None,
        missing=missing[:100],
        packs=[{"dataset": item.name, "sources": len(item.rows())} for item in asked] + plan["packing"]["told"],
        read_again=read_again,
    )


def _key(
    session: Session,
    submission: Submission,
    datasets: list[dict[str, Any]],
    keys: KeyMaker,
    asked: list[packs.Asked],
    rows: list[tuple[str, str]],
    found: dict[int, Known],
) -> str | None:
    """The key of the mirror, when what comes of every pack is known."""

    def content(number: int) -> tuple[str, int]:
        return found[number].content_hash, found[number].size

    wanted = [item for item in asked if item.refusal is None]
    digests = [packs.digest(item, rows, content, submission.compat) for item in wanted]
    known = pack_catalog.known(session, digests)
    if len(known) < len(set(digests)):
        return None
    layouts = {pack.layout_hash for pack in known.values() if pack.layout_hash is not None}
    if submission.sidecars == "all":
        return keys.key(layouts)
    packed = [item for item, digest in zip(wanted, digests, strict=True) if known[digest].layout_hash is not None]
    inside = packs.no_places(len(rows))
    for item in packed:
        for number in item.rows():
            inside[number] = 1
    again = packs.keep_loose(datasets, [item.pointer for item in packed], set(), inside)
    return keys.key(layouts, packs.packed_only(layouts, [rows[number] for number in again]))
