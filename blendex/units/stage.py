"""Stage and publish a mirror, or renew what is already there.

The publish protocol: everything is written under ``staging/<build>.<unit>-<fence>/``, opened by path and never kept by
descriptor. Whoever claimed the unit made that folder, and whoever claims it after a lost lease takes it away before
anything else; all that is published is renamed out of it, so an attempt that lost its lease fails at its next
rename, however long it was stopped before. The mirror grows in ``mirror/`` inside. Sidecars are hard-linked from the
mirror that first wrote them where the content is the same, else written from their bundle, unless a pack stands for
them; packs are links to their objects. Any error of a link
(EXDEV, EMLINK, EPERM, a mirror collected meanwhile) means write. Then ``sources.jsonl`` and the receipt, then
``READY``, last inside staging; all is flushed; the tokens of all sources are compared once more; and one rename to
``mirrors/<key>`` is the commit. If the target exists, its READY and receipt are verified and ours is dropped: same
key, same bytes. A stop at any point before the rename leaves a folder in staging that nobody serves and the sweeper
takes; a stop after it leaves a whole mirror, which the next attempt finds. The build's folder (ready blend,
build.json, then the pointer) follows the rename and precedes the transaction that says ``ready``, so a job can
start while the service is down; its files come by renames, too.

A sidecar's mtime is metadata: upstream refuses one that is older than its source, so it is raised to the source's
where that lies in the future, and again on a hit after a touch.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from itertools import tee
from typing import Any

import orjson
from blake3 import blake3

from blendex.blend.diff import unified
from blendex.blend.index_path import sidecar_files
from blendex.blend.rewrite import ready_blend
from blendex.blend.world import World
from blendex.errors import BlendexError, Code
from blendex.formats.kinds import KINDS, Origin, files_of
from blendex.storage.driver import identity, is_weak
from blendex.storage.local import token_mtime_ns
from blendex.storage.root import Root, create, flush_file, flush_filesystem, flush_folder, write_all
from blendex.storage.stores import open_stores
from blendex.units.cross import check
from blendex.units.facts import Facts
from blendex.units.job import read_job
from blendex.units.plan import FolderReader, limits_of
from blendex.units.receipt import FORMAT, archive, dumps, read_receipt

# A sidecar that need not be linked is written from its bundle; open bundles are few, sources are sorted by path.
OPEN_OBJECTS = 32
# Up to here an fsync per file (about 0.5 ms each) beats flushing whatever else is dirty on the filesystem.
FSYNC_FILES = 64

RECEIPT_FIELDS = (
    "path", "kind", "address", "token", "recipe", "strength", "content_hash", "size", "records", "length", "digest",
)  # fmt: skip


def _damaged(name: str, reason: str) -> BlendexError:
    return BlendexError(
        Code.OBJECT_DAMAGED,
        f"this object {reason}.",
        file=name,
        next_step="Its sources are read once more; look after the disk.",
    )


def _copy(source: str, target: str) -> None:
    with open(source, "rb") as file:
        create(target, b"", 0o644)
        descriptor = os.open(target, os.O_WRONLY | os.O_CLOEXEC)
        try:
            while piece := file.read(1 << 22):
                write_all(descriptor, piece)
            os.fchmod(descriptor, 0o444)
        finally:
            os.close(descriptor)


class _Objects:
    """The bundles that sidecars are copied from, a few open at a time."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._open: dict[str, int] = {}

    def read(self, name: str, offset: int, length: int, digest: str) -> bytes:
        if name not in self._open:
            if len(self._open) >= OPEN_OBJECTS:
                os.close(self._open.pop(next(iter(self._open))))
            try:
                self._open[name] = os.open(self._root.object(name), os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError as error:
                raise _damaged(name, "is gone") from error
        data = os.pread(self._open[name], length, offset)
        if len(data) != length or blake3(data).hexdigest() != digest:
            raise _damaged(name, f"holds other bytes at {offset} than were written")
        return data

    def close(self) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()


class _Stage:
    """One staging folder under construction."""

    def __init__(self, root: Root, path: str) -> None:
        self.root = root
        self.path = path
        self.linked = 0
        self.written = 0
        self.oldest_ns = time.time_ns()
        self._folders: set[str] = set()
        self._objects = _Objects(root)
        self._facts = Facts(root)

    def _folder(self, relative: str) -> None:
        if relative in self._folders or not relative:
            return
        parent = os.path.dirname(relative)
        self._folder(parent)
        os.mkdir(os.path.join(self.path, relative))
        self._folders.add(relative)

    def _link(self, item: dict[str, Any], relative: str, target: str, length: int) -> bool:
        if not item["link"]:
            return False
        source = os.path.join(self.root.mirror(item["link"]), relative)
        try:
            os.link(source, target, follow_symlinks=False)
        except OSError:
            return False
        result = os.lstat(target)
        if result.st_size != length:
            os.unlink(target)
            return False
        self.linked += 1
        self._raise(target, result.st_mtime_ns, item)
        self.oldest_ns = min(self.oldest_ns, max(result.st_mtime_ns, token_mtime_ns(item["token"])))
        return True

    def _raise(self, target: str, mtime_ns: int, item: dict[str, Any]) -> None:
        source_ns = token_mtime_ns(item["token"])
        if mtime_ns < source_ns:
            moment = max(time.time_ns(), source_ns)
            os.utime(target, ns=(moment, moment))

    def add(self, item: dict[str, Any]) -> dict[str, Any]:
        """Put the sidecar of one source in its place; what the receipt says of it beside what the job does."""
        first, *others = (os.path.join("idx", file) for file in sidecar_files(item["kind"], item["path"]))
        self._folder(os.path.dirname(first))
        target = os.path.join(self.path, first)
        if not KINDS[item["kind"]].bound:
            if not self._link(item, first, target, item["length"]):
                self._write(target, self._stored(item), item)
            return self._validity(item)
        # Offsets may be the same as before a touch, and are linked then; what speaks of the source itself is written.
        origin = Origin(item["path"], item["size"], token_mtime_ns(item["token"]), identity(item["token"]))
        files = files_of(item["kind"], self._stored(item), origin)
        if not self._link(item, first, target, len(files[0])):
            self._write(target, files[0], item)
        more = []
        for relative, data in zip(others, files[1:], strict=True):
            create(os.path.join(self.path, relative), data, 0o444)
            more.append([relative.removeprefix("idx/"), len(data), blake3(data).hexdigest()])
        return {"length": len(files[0]), "digest": blake3(files[0]).hexdigest(), "more": more}

    def _validity(self, item: dict[str, Any]) -> dict[str, Any]:
        """A route holds device and inode numbers: it is valid where those are seen."""
        if not KINDS[item["kind"]].derived:
            return {}
        return {"valid_on": self._facts.of(item["object"], item["offset"]).get("valid_on")}

    def _stored(self, item: dict[str, Any]) -> bytes:
        return self._objects.read(item["object"], item["offset"], item["length"], item["digest"])

    def _write(self, target: str, data: bytes, item: dict[str, Any]) -> None:
        try:
            create(target, data, 0o444)
        except FileExistsError:
            # One file under two spellings has one sidecar. Nothing else may come to one place: the plan refuses it.
            with open(target, "rb") as file:
                if file.read() != data:
                    raise
            return
        self.written += 1
        self._raise(target, self.oldest_ns, item)

    def add_pack(self, pack: dict[str, Any]) -> None:
        """Put a pack in its place: a link to its object, so that all mirrors with the same dataset share the file."""
        self._folder("packs")
        source = self.root.object(pack["object"])
        target = os.path.join(self.path, "packs", pack["file"])
        try:
            os.link(source, target, follow_symlinks=False)
        except FileNotFoundError:
            raise _damaged(pack["object"], "is gone") from None
        except OSError:
            _copy(source, target)
            self.written += 1
        else:
            self.linked += 1
        if os.lstat(target).st_size != pack["bytes"]:
            raise _damaged(pack["object"], f"has another size than {pack['bytes']}")

    def close(self) -> None:
        self._objects.close()

    def lock_folders(self) -> None:
        """Make all folders but the top one read-only; the top one must be renamed first."""
        for relative in sorted(self._folders, reverse=True):
            os.chmod(os.path.join(self.path, relative), 0o555)

    def flush(self) -> None:
        """Make the whole folder durable."""
        if self.written + self.linked > FSYNC_FILES:
            flush_filesystem(self.path)
            return
        for folder, _, files in os.walk(self.path):
            for name in files:
                flush_file(os.path.join(folder, name))
            flush_folder(folder)


def _write_sources(stage: _Stage, job: str) -> tuple[str, dict[str, int]]:
    """Stage every sidecar and ``sources.jsonl``; its SHA-256 and the counts."""
    digest = hashlib.sha256()
    counts = {"sources": 0, "records": 0, "bytes": 0, "sidecar_bytes": 0}
    path = os.path.join(stage.path, "sources.jsonl")
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o444)
    buffer = bytearray()
    try:
        for item in read_job(job):
            line = {name: item[name] for name in RECEIPT_FIELDS}
            line |= stage.add(item) if item["pack"] is None else {"pack": item["pack"]}
            buffer += orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)
            counts["sources"] += 1
            counts["records"] += item["records"]
            counts["bytes"] += item["size"]
            if is_weak(item["token"]):
                counts["weak_tokens"] = counts.get("weak_tokens", 0) + 1
            if item["pack"] is None:
                counts["sidecar_bytes"] += line["length"] + sum(length for _, length, _ in line.get("more", ()))
            else:
                counts["packed"] = counts.get("packed", 0) + 1
            if len(buffer) > 1 << 18:
                digest.update(buffer)
                write_all(descriptor, buffer)
                buffer.clear()
        digest.update(buffer)
        write_all(descriptor, buffer)
    finally:
        os.close(descriptor)
        stage.close()
    return digest.hexdigest(), counts


def _job(arguments: dict[str, Any]) -> str:
    return os.path.join(Root(arguments["root"]).staging(arguments["attempt"]), "job")


def _changed(arguments: dict[str, Any]) -> list[str]:
    """Paths of sources that are not what was read any more.

    What is derived has no file of its own: it changes with its inputs, which are in the job too.
    """
    storage = open_stores(arguments)
    # The job is read once: stat_many asks for a few thousand addresses ahead of its answers, tee keeps these.
    asked, seen = tee(item for item in read_job(_job(arguments)) if not KINDS[item["kind"]].derived)
    answers = storage.stat_many(item["address"] for item in asked)
    changed = []
    for item, answer in zip(seen, answers, strict=True):
        if isinstance(answer, BlendexError):
            if answer.code in (Code.STORE_UNREACHABLE, Code.STORE_BUSY):
                raise answer  # nobody knows, so nothing is said of the sources
            changed.append(item["path"])
        elif answer.token != item["token"]:
            changed.append(item["path"])
    storage.close()
    return changed


def _publish(root: Root, arguments: dict[str, Any]) -> dict[str, Any]:
    key = arguments["key"]
    staging = os.path.join(root.staging(arguments["attempt"]), "mirror")
    os.mkdir(staging, 0o755)
    stage = _Stage(root, staging)
    stage._folder("idx")
    for pack in arguments["packs"]:
        stage.add_pack(pack)
    sources_sha256, counts = _write_sources(stage, _job(arguments))
    receipt = arguments["receipt"] | {
        "format": FORMAT,
        "key": key,
        "counts": counts,
        "packs": [
            {name: value for name, value in pack.items() if name != "object"}
            | {"sha256": pack["object"].removesuffix(".idxpack")}
            for pack in arguments["packs"]
        ],
        "sources_sha256": sources_sha256,
        "sidecar_mtime_ns": stage.oldest_ns,
        "published_ns": time.time_ns(),
    }
    data = dumps(receipt)
    create(os.path.join(staging, "receipt.json"), data, 0o444)
    ready = {"key": key, "receipt": hashlib.sha256(data).hexdigest()}
    create(os.path.join(staging, "READY"), dumps(ready), 0o444)
    stage.lock_folders()
    stage.flush()
    if changed := _changed(arguments):
        root.discard(staging)
        return {"changed": changed[:100], "changed_count": len(changed)}
    target = root.mirror(key)
    try:
        os.rename(staging, target)
    except OSError:
        if not os.path.isdir(target):
            raise
        receipt = read_receipt(target, key)
        root.discard(staging)
    else:
        os.chmod(target, 0o555)
        flush_folder(os.path.dirname(target))
    return {"receipt": receipt, "linked": stage.linked, "written": stage.written}


def _renew(root: Root, arguments: dict[str, Any]) -> dict[str, Any]:
    """A hit: the mirror is there. Raise the times of sidecars whose source was touched since."""
    mirror = root.mirror(arguments["key"])
    receipt = read_receipt(mirror, arguments["key"])
    if os.stat(mirror).st_mode & 0o777 != 0o555:
        os.chmod(mirror, 0o555)
    floor = receipt["sidecar_mtime_ns"]
    raised = 0
    for item in read_job(_job(arguments)):
        source_ns = token_mtime_ns(item["token"])
        if source_ns <= floor or item["pack"] is not None:
            continue
        path = os.path.join(mirror, "idx", sidecar_files(item["kind"], item["path"])[0])
        if os.stat(path).st_mtime_ns < source_ns:
            moment = max(time.time_ns(), source_ns)
            os.utime(path, ns=(moment, moment))
            raised += 1
    if changed := _changed(arguments):
        return {"changed": changed[:100], "changed_count": len(changed)}
    return {"receipt": receipt, "linked": 0, "written": 0, "raised": raised}


def run(arguments: dict[str, Any], report: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Publish the mirror of a build, or renew it, and write the build's folder.

    Args:
        arguments: root, roots, build, attempt (whose folder holds the job), key, receipt (what goes into it beside
            what is counted here), text, file, nested, world, max_sources, stat_threads, exclude (pointers), roles
            (which sources stand side by side, per leaf), access (what the access check shall try), packs (file, object,
            layout_hash and counts each), index_packs ([pointer of a dataset, file] each), build_json (what
            ``build.json`` says beside the mirror).

    Returns:
        {"changed", "changed_count"} when sources changed since they were read (nothing was published), else
        mirror, receipt, linked, written.
    """
    root = Root(arguments["root"])
    key = arguments["key"]
    mirror = root.mirror(key)
    world = World.from_dict(arguments["world"])
    nested = {path: text.encode() for path, text in arguments["nested"].items()}
    limits = limits_of(arguments)
    reader = FolderReader(open_stores(arguments), nested, limits.bytes)
    blend = ready_blend(
        arguments["text"].encode(),
        arguments["file"],
        world,
        reader,
        indexes_root=os.path.join(mirror, "idx"),
        index_pack_root=os.path.join(mirror, "packs"),
        index_packs={tuple(pointer): file for pointer, file in arguments["index_packs"]},
        exclude=[tuple(pointer) for pointer in arguments["exclude"]],
        limits=limits,
    )
    result = _renew(root, arguments) if os.path.isdir(mirror) else _publish(root, arguments)
    if "changed" in result:
        return result
    archive(mirror, root.receipt(key), root.private(arguments["attempt"], ".receipt"))
    _write_build(root, arguments, blend, mirror)
    return result | {"mirror": mirror}


def _access(root: Root, arguments: dict[str, Any]) -> dict[str, Any]:
    """How training can fetch what lies on AIStore; nothing where nothing does."""
    needed = {name: value for pack in arguments["packs"] for name, value in pack.get("environment", {}).items()}
    if not arguments.get("access"):
        return {"datasets": [], "environment": needed}
    storage = open_stores(arguments)
    try:
        from blendex.units import access  # and what reads objects, 1.3 MB, for builds that have something to try

        found = access.check(root, arguments, storage) or {}
    finally:
        storage.close()
    return found | {"environment": found.get("environment", {}) | needed}


def _write_build(root: Root, arguments: dict[str, Any], blend: str, mirror: str) -> None:
    """The build's folder: ready blend, build.json, and last the pointer."""
    private = root.staging(arguments["attempt"])
    folder = root.build(arguments["build"])
    files = {
        "findings.json": dumps(check(root, arguments, _job(arguments))),
        "access.json": dumps(_access(root, arguments)),
        "blend.diff": unified(arguments["text"], blend, arguments["file"]).encode(),
        "blend.yaml": blend.encode(),
        "build.json": dumps(arguments["build_json"] | {"mirror": mirror, "key": arguments["key"]}),
        "path": (mirror + "\n").encode(),
    }
    for name, data in files.items():
        create(os.path.join(private, name), data)
        flush_file(os.path.join(private, name))
    os.makedirs(folder, exist_ok=True)
    for name in files:
        os.rename(os.path.join(private, name), os.path.join(folder, name))
        flush_folder(folder)  # in this order on the disk, too
    flush_folder(os.path.dirname(folder))
