"""Fill an empty catalog from the root: bundles give contents and tokens, receipts mirrors, folders builds and names.

The database is a cache of what the root proves. Losing it loses no bundle and no mirror: the next submission of a
blend is a hit again.
"""

from __future__ import annotations

import os
from typing import Any

import orjson

from blendex.catalog import mirrors, sources
from blendex.catalog.engine import UnitOfWork
from blendex.catalog.models import Build, Name, NameHistory
from blendex.errors import BlendexError
from blendex.formats.bundle import read_directory
from blendex.storage.root import Root
from blendex.units.receipt import read_receipt


def adopt_all(work: UnitOfWork, root: Root) -> dict[str, int]:
    """Adopt everything under the root; how many of each were taken, and how many were damaged."""
    counts = {"objects": 0, "mirrors": 0, "builds": 0, "names": 0, "damaged": 0}
    # Oldest first: where two bundles speak of one source, the later one saw the later token.
    names = sorted(root.objects(), key=lambda name: os.stat(root.object(name)).st_mtime_ns)
    for name in names:
        if name.endswith(".bundle"):
            counts["objects" if _adopt_bundle(work, root, name) else "damaged"] += 1
        elif name.endswith(".idxpack"):
            # What it was made of is not told by a pack: it is made again when it is wanted, under the same name.
            with work.write() as session:
                sources.add_object(session, name, os.stat(root.object(name)).st_size)
            counts["objects"] += 1
    for key in root.mirrors():
        counts["mirrors" if _adopt_mirror(work, root, key) else "damaged"] += 1
    for build in sorted(os.listdir(os.path.join(root.path, "builds"))):
        counts["builds"] += _adopt_build(work, root, build)
    for entry in sorted(os.listdir(os.path.join(root.path, "names"))):
        if entry.endswith(".json") and not entry.startswith("."):
            counts["names"] += _adopt_name(work, os.path.join(root.path, "names", entry))
    return counts


def _adopt_bundle(work: UnitOfWork, root: Root, name: str) -> bool:
    path = root.object(name)
    try:
        entries = read_directory(path)
    except BlendexError:
        return False  # it stays where it is; its sources are read again when somebody needs them
    with work.write() as session:
        seen = os.stat(path)
        sources.record(session, sources.add_object(session, name, seen.st_size), entries, at=seen.st_mtime)
    return True


def _adopt_mirror(work: UnitOfWork, root: Root, key: str) -> bool:
    try:
        receipt = read_receipt(root.mirror(key), key)
    except BlendexError:
        return False
    with work.write() as session:
        mirrors.add(
            session,
            key=key,
            source_set=receipt["source_set"],
            content=receipt["content"],
            counts=receipt["counts"],
            published=receipt["published_ns"] / 1e9,
        )
    return True


def _json(path: str) -> dict[str, Any] | None:
    try:
        with open(path, "rb") as file:
            value = orjson.loads(file.read())
    except (OSError, orjson.JSONDecodeError):
        return None
    return value if isinstance(value, dict) else None


def _adopt_build(work: UnitOfWork, root: Root, build: str) -> bool:
    data = _json(os.path.join(root.build(build), "build.json"))
    if data is None or not os.path.exists(os.path.join(root.build(build), "path")):
        return False
    with work.write() as session:
        if session.get(Build, build) is not None:
            return False
        session.add(
            Build(
                id=build, owner=data["owner"], identity=data["identity"], state="ready", file=data["file"],
                options=data["options"], names=data["names"], created_at=data["created_at"],
                updated_at=data["created_at"], stages={"queued": data["created_at"]}, excluded=data["excluded"],
                packs=data.get("packs"), labels=data.get("labels", {}),
                sources=data["sources"], reused=data["sources"], mirror=data["key"], checked_at=data["checked_at"],
            )
        )  # fmt: skip
    return True


def _adopt_name(work: UnitOfWork, path: str) -> bool:
    data = _json(path)
    if data is None:
        return False
    with work.write() as session:
        if session.get(Name, data["name"]) is not None:
            return False
        newest = data["history"][0]
        session.add(Name(name=data["name"], build=data["build"], version=data["version"], updated_at=newest["at"]))
        for item in data["history"]:
            session.add(NameHistory(name=data["name"], version=item["version"], build=item["build"], at=item["at"]))
    return True
