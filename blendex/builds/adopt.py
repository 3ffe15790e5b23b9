"""Fill an empty catalog from the root: bundles give contents and tokens, receipts mirrors, folders builds and names.

The database is a cache of what the root proves. Losing it loses no bundle and no mirror: the next submission of a
blend is a hit again.
"""

from __future__ import annotations

import os

from blendex.catalog import mirrors, sources
from blendex.catalog.engine import UnitOfWork
from blendex.catalog.models import Build, Name, NameHistory
from blendex.errors import BlendexError
from blendex.formats.bundle import read_directory
from blendex.mirrors import ondisk
from blendex.mirrors.holds import is_there
from blendex.mirrors.known import adopt_mirror
from blendex.storage.root import Root


def adopt_all(work: UnitOfWork, root: Root) -> dict[str, int]:
    """Adopt everything under the root; how many of each were taken, and how many were damaged."""
    counts = {"objects": 0, "mirrors": 0, "builds": 0, "names": 0, "damaged": 0, "gone": 0}
    counts["gone"] = _forget_gone(work, root)
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
        counts["mirrors" if adopt_mirror(work, root, key) else "damaged"] += 1
    for build in sorted(os.listdir(os.path.join(root.path, "builds"))):
        counts["builds"] += _adopt_build(work, root, build)
    for entry in sorted(os.listdir(os.path.join(root.path, "names"))):
        if entry.endswith(".json") and not entry.startswith("."):
            counts["names"] += _adopt_name(work, os.path.join(root.path, "names", entry))
    return counts


def _forget_gone(work: UnitOfWork, root: Root) -> int:
    """What a backup knows and the root holds no more: mirrors that were collected since, and objects."""
    with work.read() as session:
        mirrors_gone = [key for key in mirrors.standing(session) if not is_there(root, key)]
        objects_gone = [name for name in sources.live_objects(session) if not os.path.exists(root.object(name))]
    with work.write() as session:
        for key in mirrors_gone:
            mirrors.note_gone(session, key)
        for name in objects_gone:
            sources.lose_object(session, name)
    return len(mirrors_gone) + len(objects_gone)


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


def _adopt_build(work: UnitOfWork, root: Root, build: str) -> bool:
    data = ondisk.ready_build(root, build)
    if data is None:
        return False
    with work.write() as session:
        if session.get(Build, build) is not None:
            return False
        session.add(
            Build(
                id=build, owner=data["owner"], team=data.get("team", ""),
                identity=data["identity"], state="ready", file=data["file"],
                options=data["options"], names=data["names"], created_at=data["created_at"],
                updated_at=data["created_at"], stages={"queued": data["created_at"]}, excluded=data["excluded"],
                packs=data.get("packs"), labels=data.get("labels", {}),
                sources=data["sources"], reused=data["sources"], mirror=data["key"], checked_at=data["checked_at"],
            )
        )  # fmt: skip
    return True


def _adopt_name(work: UnitOfWork, path: str) -> bool:
    data = ondisk.read_json(path)
    if data is None:
        return False
    with work.write() as session:
        if session.get(Name, data["name"]) is not None:
            return False
        newest = data["history"][0]
        session.add(
            Name(
                name=data["name"], team=data.get("team", ""), build=data["build"], version=data["version"],
                updated_at=newest["at"],
            )
        )  # fmt: skip
        for item in data["history"]:
            session.add(NameHistory(name=data["name"], version=item["version"], build=item["build"], at=item["at"]))
    return True
