"""The findings of a build: per class with effect and remedy, and per source; from what is stored, reading nothing."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from typing import Any

import orjson
from sqlalchemy.orm import Session

from blendex.blend.world import World
from blendex.builds.places import Places, known_rows, rows_of
from blendex.builds.site import Site
from blendex.builds.submit import load_submission
from blendex.catalog import blobs, sources
from blendex.catalog.models import Build
from blendex.errors import BlendexError
from blendex.formats.crosscheck import CROSS_FINDINGS
from blendex.formats.findings import FINDINGS, FindingClass, Severity
from blendex.units.receipt import read_sources

FIRST = 5
"""Sources named with each class of findings; all of them are in the list of sources."""
_ORDER = (Severity.REFUSE, Severity.WARN, Severity.NOTE)
_REPACK = "mkdir t && tar -xf {path} -C t && tar --format=gnu --sort=name -cf {path}.new -C t $(ls t)"

_REPACKED = (
    "merged_directories", "stem_group", "sparse_member", "contiguous_member", "pax_size", "link_size", "not_regular",
    "mispaired", "metadata_first", "nul_in_name", "no_end_marker",
)  # fmt: skip
# What a person can type. Nothing is ever run here: sources are never written to.
_COMMANDS = {
    "blank_line": "grep -v '^[[:space:]]*$' {path} > {path}.new",
    "blank_record": "grep -v '^[[:space:]]*$' {path} > {path}.new",
    "bom": "tail -c +4 {path} > {path}.new",
    "crlf": "tr -d '\\r' < {path} > {path}.new",
    "nul_byte": "tr -d '\\000' < {path} > {path}.new",
    "not_utf8": "iconv -f LATIN1 -t UTF-8 {path} > {path}.new",
    "not_an_object": "jq -c 'if type == \"array\" then .[] else . end | objects' {path} > {path}.new",
    "half_line": "head -n -1 {path} > {path}.new",
    "no_final_newline": "sed '$a\\' {path} > {path}.new",
    "skipped_row": "jq -c 'select((._skipme or .custom._skipme) | not)' {path} > {path}.new",
    "data_after_end": "mkdir t && tar -xif {path} -C t && tar --format=gnu -cf {path}.new -C t $(ls t)",
    **dict.fromkeys(_REPACKED, _REPACK),
    "sidecar_beside_disagrees": "rm {path}.idx",
}  # fmt: skip


def _class(name: str) -> FindingClass:
    return FINDINGS[name] if name in FINDINGS else CROSS_FINDINGS[name]


def command(name: str, path: str) -> str:
    """What a person can type to mend a finding in a copy of one source; empty when no command can."""
    return _COMMANDS.get(name, "").format(path=shlex.quote(path))


def report(site: Site, session: Session, build: Build, limit: int = 100) -> dict[str, Any]:
    """All findings of a build, whether it is published or not.

    Args:
        site: the root.
        session: of the catalog.
        build: the build.
        limit: sources told one by one; every one is counted.

    Returns:
        id, state, counts (per severity), findings (per class: name, severity, allowed, effect, remedy, count, sources,
        first), sources (per source: kind, path, findings), more (sources left off), compared, not_compared, warnings
        (of the blend).
    """
    allow = frozenset(build.options.get("allow", ()))
    crossed = _crossed(site, build)
    cross = {(item["kind"], item["path"]): item["findings"] for item in crossed["sources"]}
    classes: dict[str, dict[str, Any]] = {}
    told: list[dict[str, Any]] = []
    more = 0
    for kind, path, own in _sources(site, session, build):
        findings = [*own, *cross.pop((kind, path), ())]
        if not findings:
            continue
        for item in findings:
            _count(classes, item, kind, path, allow)
        if len(told) < limit:
            told.append({"kind": kind, "path": path, "findings": findings})
        else:
            more += 1
    found = sorted(classes.values(), key=lambda item: (_ORDER.index(item["severity"]), item["name"]))
    plan: dict[str, Any] = blobs.get_json(session, build.plan) if build.plan else {"warnings": []}
    return {
        "id": build.id,
        "state": build.state,
        "counts": {str(level): sum(item["severity"] is level for item in found) for level in _ORDER},
        "findings": found,
        "sources": told,
        "more": more,
        "compared": crossed["compared"],
        "not_compared": crossed["not_compared"],
        "warnings": plan["warnings"],
    }


def _count(
    classes: dict[str, dict[str, Any]], item: dict[str, Any], kind: str, path: str, allow: frozenset[str]
) -> None:
    name = item["name"]
    if name not in classes:
        known = _class(name)
        classes[name] = {
            "name": name, "severity": known.severity, "allowed": name in allow, "effect": known.effect,
            "remedy": known.remedy, "count": 0, "sources": 0, "first": [],
        }  # fmt: skip
    about = classes[name]
    about["count"] += item["count"]
    about["sources"] += 1
    if len(about["first"]) < FIRST:
        place = {key: value for key, value in item.items() if key != "name"}
        about["first"].append({"kind": kind, "path": path, "command": command(name, path), **place})


def _sources(site: Site, session: Session, build: Build) -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
    """(kind, path, findings) of every source that was read."""
    if build.plan is None or build.submission is None:
        yield from _adopted(site, session, build)
        return
    plan = blobs.get_json(session, build.plan)
    world = World.from_dict(load_submission(session, build)["world"])
    places = Places(build.options["compat"], world, plan.get("derived", []))
    rows = rows_of(session, build.id)
    for number, known in known_rows(session, places, rows, range(len(rows))):
        yield *rows[number], list(known.findings) if known is not None else []


def _adopted(site: Site, session: Session, build: Build) -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
    """The same of a build whose submission was lost with its catalog: its mirror says what it was made of."""
    if build.mirror is None:
        return
    try:
        for line in read_sources(site.root.mirror(build.mirror)):
            known = next(sources.known(session, line["recipe"], [line["address"]]), None)
            yield line["kind"], line["path"], list(known.findings) if known is not None else []
    except BlendexError:
        return  # the mirror was collected: what is left is what the build folder says


def _crossed(site: Site, build: Build) -> dict[str, Any]:
    """What the cross checks found when the build was published."""
    try:
        with open(os.path.join(site.root.build(build.id), "findings.json"), "rb") as file:
            value: dict[str, Any] = orjson.loads(file.read())
            return value
    except (FileNotFoundError, orjson.JSONDecodeError):
        return {"sources": [], "compared": 0, "not_compared": 0}
