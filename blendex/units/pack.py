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
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator
from sys import intern
from typing import Any, NamedTuple

import numpy as np
import orjson
from blake3 import blake3

from blendex.errors import BlendexError, Code
from blendex.formats.kinds import KINDS, Origin, files_of
from blendex.formats.learned import MAX_RECORDS, Members, Rows, members_of, rows_of
from blendex.formats.pack import OFFSETS, PATHS, Collection, refused
from blendex.formats.packwriter import PackWriter
from blendex.formats.routes import Tar, ordinals, positions, route_collections, shard_positions
from blendex.storage.root import Root
from blendex.units.facts import Facts

WINDOW = 1 << 20
OPEN_OBJECTS = 32
_UNKNOWN = -1  # no CRC-32 is known: the digest proves the sidecar


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


class Sources:
    """The sources of one pack, column by column: about 160 bytes each, most of it the path.

    Args:
        sources: in the order of the segments that they become.
    """

    def __init__(self, sources: Iterable[Packed]) -> None:
        self.kinds: list[str] = []
        self.paths: list[str] = []
        self.objects: list[str] = []
        numbers: dict[str, int] = {}
        bundles = array("q")
        self._digests = bytearray()
        self._known: list[array[int]] = [array("q") for _ in range(4)]
        self.learned = bytearray()
        offsets, lengths, sizes, crcs = self._known
        for kind, path, name, offset, length, digest, size, crc, learned in sources:
            self.kinds.append(intern(kind))
            self.paths.append(path)
            self.objects.append(intern(name))
            bundles.append(numbers.setdefault(name, len(numbers)))
            self._digests += bytes.fromhex(digest)
            offsets.append(offset)
            lengths.append(length)
            sizes.append(size)
            crcs.append(_UNKNOWN if crc is None else crc)
            self.learned.append(learned)
        self.offsets, self.lengths, self.sizes, self.crcs = (np.frombuffer(column, np.int64) for column in self._known)
        self._bundles = np.frombuffer(bundles, np.int64)
        self.by_path = np.array([not KINDS[kind].loose for kind in self.kinds], np.bool_)

    def __len__(self) -> int:
        return len(self.paths)

    def digest(self, place: int) -> str:
        """BLAKE3 of a stored sidecar, in hex."""
        return self._digests[32 * place : 32 * place + 32].hex()

    def origin(self, place: int) -> Origin:
        """What a sidecar of a bound kind is made for; of its first file only the index goes into a pack."""
        return Origin(self.paths[place], int(self.sizes[place]), 0)

    def windows(self) -> Iterator[tuple[int, int]]:
        """Runs of sources that one window of their bundle holds, in the order of their sidecars there."""
        if not len(self):
            return
        ends = self.offsets + self.lengths
        apart = (self._bundles[1:] != self._bundles[:-1]) | (self.offsets[1:] < ends[:-1])
        breaks = np.flatnonzero(apart | (self.by_path[1:] != self.by_path[:-1])) + 1
        at = 0
        for stop in (*breaks.tolist(), len(self)):
            while at < stop:
                most = int(self.offsets[at]) + WINDOW
                end = max(at + 1, at + int(np.searchsorted(ends[at:stop], most, side="right")))
                yield at, end
                at = end


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


def give_sidecars(writer: PackWriter, sources: Sources, bundles: Bundles) -> None:
    """Hand the next segments of a pack their sidecars.

    Args:
        writer: wants exactly these next.
        sources: in the order of the segments.
        bundles: where they lie.

    Raises:
        BlendexError: object_damaged; sidecar_damaged.
    """
    for at, end in sources.windows():
        if sources.by_path[at]:
            for size in sources.sizes[at:end].tolist():
                writer.path(size)
        elif end == at + 1 and sources.lengths[at] > WINDOW:
            _give_large(writer, sources, at, bundles)
        else:
            _give_window(writer, sources, at, end, bundles)


def _give_window(writer: PackWriter, sources: Sources, at: int, end: int, bundles: Bundles) -> None:
    """Sidecars that lie in one window, each proven by its CRC-32 as it is packed, or by its digest."""
    name = sources.objects[at]
    start = int(sources.offsets[at])
    lengths = sources.lengths[at:end]
    starts = sources.offsets[at:end] - start
    ends = starts + lengths
    window = memoryview(bundles.read(name, start, int(ends[-1])))
    parts = [window[first:last] for first, last in zip(starts.tolist(), ends.tolist(), strict=True)]
    crcs = np.fromiter(map(zlib.crc32, parts), np.int64, len(parts))
    differ = np.flatnonzero(crcs != sources.crcs[at:end]).tolist()
    bound = [place for place, kind in enumerate(sources.kinds[at:end]) if KINDS[kind].bound]
    for place in {*differ, *bound}:
        if blake3(parts[place]).hexdigest() != sources.digest(at + place):
            raise bundles.damaged(name, f"holds another sidecar of {sources.paths[at + place]} than was written")
    for place in bound:
        made = files_of(sources.kinds[at + place], bytes(parts[place]), sources.origin(at + place))[0]
        parts[place] = memoryview(made)
        crcs[place] = zlib.crc32(made)
    if bound:
        lengths = np.array(list(map(len, parts)))
    writer.put(b"".join(parts), lengths, sources.sizes[at:end], crcs)


def _give_large(writer: PackWriter, sources: Sources, place: int, bundles: Bundles) -> None:
    """One sidecar that does not fit a window; read twice, first to prove it."""
    name, path = sources.objects[place], sources.paths[place]
    offset, length, size = int(sources.offsets[place]), int(sources.lengths[place]), int(sources.sizes[place])

    def pieces() -> Iterator[memoryview]:
        for start in range(0, length, WINDOW):
            yield memoryview(bundles.read(name, offset + start, min(WINDOW, length - start)))

    if KINDS[sources.kinds[place]].bound:
        stored = bundles.read(name, offset, length)
        data = files_of(sources.kinds[place], stored, sources.origin(place))[0]
        writer.stream(iter([memoryview(data)]), len(data), size, path)
        return
    proof = blake3()
    for piece in pieces():
        proof.update(piece)
    if proof.hexdigest() != sources.digest(place):
        raise bundles.damaged(name, f"holds another sidecar of {path} than was written")
    writer.stream(pieces(), length, size, path)


class _Routes:
    """The arrays of one dataset, one after another."""

    def __init__(self, root: Root, sources: Sources) -> None:
        self._facts = Facts(root)
        self._sources = sources

    def check_rows(self, place: int) -> None:
        """Refuse a manifest with a row that is no JSON object."""
        path = self._sources.paths[place]
        facts = self._facts.of(self._sources.objects[place], int(self._sources.offsets[place]))
        if not facts.get("learnt"):
            raise refused("its rows have not been decoded.", path, "Post the blend again: it is read once more.")
        if (bad := facts.get("bad_rows")) is not None:
            count, byte, row = bad
            error = refused(
                f"row {row} (from 0) is no JSON object, and {count - 1} others are none; training fails when one is "
                "drawn.",
                path,
                "Correct the manifest.",
            )
            error.byte = byte
            raise error

    def _learned(self, place: int, what: str) -> bytes:
        data = self._facts.learned(self._sources.objects[place], int(self._sources.offsets[place]))
        if data is None:
            raise refused(
                f"it has more than {MAX_RECORDS:,} {what}; no route is made of so many.",
                self._sources.paths[place],
                "Split it into shards.",
            )
        return data

    def _rows(self, place: int) -> Rows:
        rows = rows_of(self._learned(place, "rows"))
        records = int(self._sources.lengths[place]) // 8 - 1
        if len(rows.names) != records:
            raise refused(
                f"{len(rows.names)} of its {records} records are rows.", self._sources.paths[place], "Correct it."
            )
        return rows

    def _tar(self, place: int) -> Tar:
        members: Members = members_of(self._learned(place, "members"))
        return Tar(self._sources.paths[place], members)

    def arrays(self, manifests: list[int], tars: list[int]) -> Iterator[bytes]:
        """The shards of the arrays of one pair, in the order of ``route_collections``."""
        if len(manifests) == 1 and len(tars) > 1:
            path = self._sources.paths[manifests[0]]
            rows = self._rows(manifests[0])
            shards = shard_positions(path, rows, [self._sources.paths[place] for place in tars])
            yield positions(shards)
            if self._sources.by_path[tars[0]]:
                return
            yield ordinals(path, rows, [self._tar(place) for place in tars], shards)
            return
        for manifest, tar in zip(manifests, tars, strict=True):
            yield ordinals(self._sources.paths[manifest], self._rows(manifest), [self._tar(tar)], None)


def _read_job(path: str) -> tuple[dict[str, Any], Sources]:
    with open(path, "rb") as file:
        head: dict[str, Any] = orjson.loads(file.readline())
        return head, Sources(Packed(*orjson.loads(line)) for line in file)


def _collections(head: dict[str, Any], sources: Sources) -> list[Collection]:
    """All collections: those that name sources, then the arrays of each pair."""
    made = [
        Collection(
            role, kind, spec, tuple(sources.paths[place] for place in places),
            PATHS if sources.by_path[places[0]] else OFFSETS,
        )
        for role, kind, spec, places in head["collections"]
    ]  # fmt: skip
    for first, second in head["natives"]:
        manifests, tars = made[first], made[second]
        made += route_collections(
            manifests.spec, tars.spec, len(manifests.paths), len(tars.paths), ordinal=tars.holds == OFFSETS
        )
    return made


def _write(root: Root, private: str, job: str, report: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    head, sources = _read_job(job)
    routes = _Routes(root, sources)
    for place, kind in enumerate(sources.kinds):
        if kind == "jsonl" and sources.learned[place] != 1:
            routes.check_rows(place)
    pairs = [[head["collections"][place][3] for place in pair] for pair in head["natives"]]
    descriptor = os.open(private, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o444)
    bundles = Bundles(root.object)
    try:
        writer = PackWriter(descriptor, _collections(head, sources))
        # A job names its sources in the order of their first use, each once: as segments are numbered.
        assert writer.paths[: len(sources)] == sources.paths
        give_sidecars(writer, sources, bundles)
        for manifests, tars in pairs:
            report({"in_hand": sources.paths[manifests[0]]})
            for data in routes.arrays(manifests, tars):
                writer.array(data)
        written = writer.finish()
        os.fsync(descriptor)
        digest = hashlib.sha256()
        for start in range(0, written.size, 1 << 22):
            digest.update(os.pread(descriptor, 1 << 22, start))
    finally:
        os.close(descriptor)
        bundles.close()
    name = root.publish_object(private, digest.hexdigest(), ".idxpack", written.size)
    counts = {
        "bytes": written.size, "records": written.records, "collections": written.collections,
        "segments": written.segments, "version": written.version, "sources": len(sources),
    }  # fmt: skip
    if by_path := int(sources.by_path.sum()):
        counts["paths"] = by_path
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
