"""Pack: the sidecars of one dataset, from its bundles, become one pack; what the rows are called becomes its routes.

No source is read. Every row has been decoded when it was indexed, and the bundles say so; one that is no JSON object
keeps the dataset from being packed, as it keeps upstream's converter from it.

The pack is a private file until it is checked, hashed and flushed; it gets its name among the objects by a link, as
bundles do. A stop before leaves a private file that the sweeper takes, a stop after an object that the next attempt
finds.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import orjson
from blake3 import blake3

from blendex.errors import BlendexError, Code
from blendex.formats.kinds import Origin, files_of
from blendex.formats.learned import MAX_RECORDS, Members, Rows, members_of, rows_of
from blendex.formats.pack import Collection, refused
from blendex.formats.packwriter import ChecksumError, PackWriter
from blendex.formats.routes import Tar, ordinals, positions, route_collections, shard_positions
from blendex.storage.root import Root
from blendex.units.facts import Facts

WINDOW = 1 << 19
OPEN_OBJECTS = 32


class Packed(NamedTuple):
    """One source: where its sidecar lies, and how it is proven."""

    kind: str
    path: str
    object: str
    offset: int
    length: int
    digest: str
    size: int
    crc: int | None
    learned: int


class Bundles:
    """Reads sidecars from bundles, neighbours together.

    Args:
        path_of: the file of an object.
    """

    def __init__(self, path_of: Callable[[str], str]) -> None:
        self._path_of = path_of
        self._open: dict[str, int] = {}

    def _descriptor(self, name: str) -> int:
        if name not in self._open:
            if len(self._open) >= OPEN_OBJECTS:
                os.close(self._open.pop(next(iter(self._open))))
            try:
                self._open[name] = os.open(self._path_of(name), os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError as error:
                raise self.damaged(name, "is gone") from error
        return self._open[name]

    def read(self, name: str, offset: int, length: int) -> bytes:
        """Some bytes of a bundle."""
        data = os.pread(self._descriptor(name), length, offset)
        if len(data) != length:
            raise self.damaged(name, f"ends before byte {offset + length}")
        return data

    def damaged(self, name: str, reason: str) -> BlendexError:
        """An object that is not what it was."""
        return BlendexError(
            Code.OBJECT_DAMAGED,
            f"this object {reason}.",
            file=name,
            next_step="Its sources are read once more; look after the disk.",
        )

    def close(self) -> None:
        """Let go of all."""
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()


def _run_of(sources: list[Packed], first: int) -> int:
    """The end of the run of sources from ``first`` on that one window of their bundle holds."""
    start = sources[first]
    name, reach, most = start.object, start.offset + start.length, start.offset + WINDOW
    for end in range(first + 1, len(sources)):
        item = sources[end]
        if item.object != name or item.offset < reach:
            return end
        reach = item.offset + item.length
        if reach > most:
            return end
    return len(sources)


def give_sidecars(writer: PackWriter, sources: list[Packed], bundles: Bundles) -> None:
    """Hand the next segments of a pack their sidecars.

    Args:
        writer: wants exactly these next.
        sources: in the order of the segments.
        bundles: where they lie.

    Raises:
        BlendexError: object_damaged; sidecar_damaged.
    """
    at = 0
    while at < len(sources):
        end = _run_of(sources, at)
        first, last = sources[at], sources[end - 1]
        if end == at + 1 and first.length > WINDOW:
            _give_large(writer, first, bundles)
        else:
            start = first.offset
            window = memoryview(bundles.read(first.object, start, last.offset + last.length - start))
            _give_window(writer, sources[at:end], window, bundles)
        at = end


def _give_window(writer: PackWriter, sources: list[Packed], window: memoryview, bundles: Bundles) -> None:
    """Sidecars that lie in one window; what has a CRC-32 is proven by it when the pack is checked, the rest here."""
    start = sources[0].offset
    parts: list[bytes | memoryview] = []
    crcs: list[int | None] = []
    for kind, path, name, offset, length, digest, size, known, _ in sources:
        crc = None if kind == "wds_tar_v2" else known
        data: bytes | memoryview = window[offset - start : offset - start + length]
        if crc is None:
            if blake3(data).hexdigest() != digest:
                raise bundles.damaged(name, f"holds other bytes at {offset} than were written")
            data = files_of(kind, bytes(data), Origin(path, size, 0))[0]
        parts.append(data)
        crcs.append(crc)
    lengths = [len(part) for part in parts]
    room = writer.room(sum(lengths))
    assert room is not None  # a window is smaller than the buffer
    room[:] = b"".join(parts)
    writer.take_all(lengths, [item.size for item in sources], crcs)


def _give_large(writer: PackWriter, item: Packed, bundles: Bundles) -> None:
    """One sidecar that does not fit a window; read twice, first to prove it."""
    length = item.length
    if item.kind == "wds_tar_v2":
        stored = bundles.read(item.object, item.offset, length)
        data = files_of(item.kind, stored, Origin(item.path, item.size, 0))[0]
        writer.stream(iter([memoryview(data)]), len(data), item.size, item.path)
        return
    proof = blake3()
    for piece in _pieces(bundles, item):
        proof.update(piece)
    if proof.hexdigest() != item.digest:
        raise bundles.damaged(item.object, f"holds other bytes at {item.offset} than were written")
    writer.stream(_pieces(bundles, item), length, item.size, item.path)


def _pieces(bundles: Bundles, item: Packed) -> Iterator[memoryview]:
    for start in range(0, item.length, WINDOW):
        yield memoryview(bundles.read(item.object, item.offset + start, min(WINDOW, item.length - start)))


class _Routes:
    """The arrays of one dataset, one after another."""

    def __init__(self, root: Root, sources: list[Packed]) -> None:
        self._facts = Facts(root)
        self._sources = sources

    def check_rows(self, source: Packed) -> None:
        """Refuse a manifest with a row that is no JSON object."""
        facts = self._facts.of(source.object, source.offset)
        if not facts.get("learnt"):
            raise refused("its rows have not been decoded.", source.path, "Post the blend again: it is read once more.")
        if (bad := facts.get("bad_rows")) is not None:
            count, byte, row = bad
            error = refused(
                f"row {row} (from 0) is no JSON object, and {count - 1} others are none; training fails when one is "
                "drawn.",
                source.path,
                "Correct the manifest.",
            )
            error.byte = byte
            raise error

    def _learned(self, source: Packed, what: str) -> bytes:
        data = self._facts.learned(source.object, source.offset)
        if data is None:
            raise refused(
                f"it has more than {MAX_RECORDS:,} {what}; no route is made of so many.",
                source.path,
                "Split it into shards.",
            )
        return data

    def _rows(self, place: int) -> Rows:
        source = self._sources[place]
        rows = rows_of(self._learned(source, "rows"))
        if len(rows.names) != source.length // 8 - 1:
            raise refused(
                f"{len(rows.names)} of its {source.length // 8 - 1} records are rows.", source.path, "Correct it."
            )
        return rows

    def _tar(self, place: int) -> Tar:
        source = self._sources[place]
        members: Members = members_of(self._learned(source, "members"))
        return Tar(source.path, members)

    def arrays(self, manifests: list[int], tars: list[int]) -> Iterator[bytes]:
        """The shards of the arrays of one pair, in the order of ``route_collections``."""
        if len(manifests) == 1 and len(tars) > 1:
            path = self._sources[manifests[0]].path
            rows = self._rows(manifests[0])
            shards = shard_positions(path, rows, [self._sources[place].path for place in tars])
            yield positions(shards)
            yield ordinals(path, rows, [self._tar(place) for place in tars], shards)
            return
        for manifest, tar in zip(manifests, tars, strict=True):
            yield ordinals(self._sources[manifest].path, self._rows(manifest), [self._tar(tar)], None)


def _read_job(path: str) -> tuple[dict[str, Any], list[Packed]]:
    with open(path, "rb") as file:
        head: dict[str, Any] = orjson.loads(file.readline())
        return head, [Packed(*orjson.loads(line)) for line in file]


def _collections(head: dict[str, Any], sources: list[Packed]) -> list[Collection]:
    """All collections: those that name sources, then the arrays of each pair."""
    made = [
        Collection(role, kind, spec, tuple(sources[place].path for place in places))
        for role, kind, spec, places in head["collections"]
    ]
    for first, second in head["natives"]:
        manifests, tars = made[first], made[second]
        made += route_collections(manifests.spec, tars.spec, len(manifests.paths), len(tars.paths))
    return made


def _write(root: Root, private: str, job: str, report: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    head, sources = _read_job(job)
    routes = _Routes(root, sources)
    for source in sources:
        if source.kind == "jsonl" and source.learned != 1:
            routes.check_rows(source)
    pairs = [[head["collections"][place][3] for place in pair] for pair in head["natives"]]
    descriptor = os.open(private, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o444)
    bundles = Bundles(root.object)
    by_path = {source.path: source for source in sources}
    try:
        writer = PackWriter(descriptor, _collections(head, sources))
        give_sidecars(writer, [by_path[path] for path in writer.paths if path], bundles)
        for manifests, tars in pairs:
            report({"in_hand": sources[manifests[0]].path})
            for data in routes.arrays(manifests, tars):
                writer.array(data)
        written = writer.finish()
        os.fsync(descriptor)
        digest = hashlib.sha256()
        for start in range(0, written.size, 1 << 22):
            digest.update(os.pread(descriptor, 1 << 22, start))
    except ChecksumError as error:
        path = writer.paths[error.segment]
        raise bundles.damaged(by_path[path].object, f"holds another sidecar of {path} than was written") from None
    finally:
        os.close(descriptor)
        bundles.close()
    name = root.publish_object(private, digest.hexdigest(), ".idxpack", written.size)
    counts = {
        "bytes": written.size, "records": written.records, "collections": written.collections,
        "segments": written.segments, "version": written.version, "sources": len(sources),
    }  # fmt: skip
    return {"object": name, "layout_hash": written.layout_hash, "counts": counts}


def run(arguments: dict[str, Any], report: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Make one pack.

    Args:
        arguments: root, attempt (names private files), job: a file whose first line is {"collections": [[role, kind,
            spec, places of sources], …], "natives": [[place of manifests, of tars], …]}, then a line per source:
            [kind, path, object, offset, length, digest, size, crc, learned].
        report: gets {"in_hand": path} now and then.

    Returns:
        object, layout_hash, counts; or {"refused": why there can be no pack}.
    """
    root = Root(arguments["root"])
    private = root.private(arguments["attempt"], ".idxpack")
    try:
        return _write(root, private, arguments["job"], report)
    except BlendexError as error:
        if error.code not in (Code.PACK_REFUSED, Code.SIDECAR_DAMAGED):
            raise
        return {"refused": error.as_dict() | {"code": str(Code.PACK_REFUSED)}}
    finally:
        if os.path.lexists(private):
            os.unlink(private)
        if os.path.lexists(arguments["job"]):
            os.unlink(arguments["job"])
