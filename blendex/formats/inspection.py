"""What lies in an index file: described for people and programs, and proven as far as the file itself can prove it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from blendex.errors import BlendexError, Code
from blendex.formats import pack as packs
from blendex.formats import sgroute
from blendex.formats.packreader import PackReader, computed_layout, verify

PIECE = 4 << 20
_HOLDS = {packs.OFFSETS: "offsets", packs.PATHS: "paths", packs.ARRAY: "array"}


def inspect(path: str, source: str | None = None) -> dict[str, Any]:
    """Describe a ``.idx``, ``.idxpack`` or ``.sgroute``.

    Args:
        path: the file; what it is shows in its first bytes and its name.
        source: for a sidecar, the source it belongs to.

    Returns:
        format, size, faults (each a sentence; empty when all is proven), and what the format has.

    Raises:
        BlendexError: not_found, pack_version, bad_request.
    """
    try:
        with open(path, "rb") as file:
            magic = file.read(8)
    except OSError as error:
        raise BlendexError(
            Code.NOT_FOUND, f"cannot be read ({error.strerror}).", file=path, next_step="Check the path."
        ) from error
    if magic == packs.MAGIC or path.endswith(".idxpack"):
        return _pack(path)
    if magic == sgroute.MAGIC or path.endswith(".sgroute"):
        return _route(path)
    if path.endswith(".idx"):
        return _sidecar(path, source)
    raise BlendexError(
        Code.BAD_REQUEST,
        "this is no index file that is known.",
        file=path,
        next_step="Give a .idx, .idxpack or .sgroute.",
    )


def _pack(path: str) -> dict[str, Any]:
    found: dict[str, Any] = {"format": "idxpack", "size": os.stat(path).st_size, "faults": []}
    try:
        reader = PackReader(path)
    except BlendexError as error:
        if error.code is not Code.PACK_DAMAGED:
            raise
        return found | {"faults": [error.message]}
    with reader as pack:
        found |= {
            "version": pack.version,
            "layout_hash": pack.layout_hash,
            "computed_layout_hash": computed_layout(pack),
            "segments": len(pack.table),
            "sequences": len(pack.sequences),
            "collections": [
                {
                    "key": collection.key.hex(),
                    "kind": collection.kind,
                    "holds": _HOLDS[collection.holds],
                    "sources": collection.shards,
                    "records": len(collection),
                    "first": collection.path(0) if collection.shards else None,
                    "last": collection.path(collection.shards - 1) if collection.shards else None,
                }
                for collection in pack.collections.values()
            ],
        }
        try:
            verify(pack)
        except BlendexError as error:
            found["faults"].append(error.message)
        found |= _sources(pack, found["faults"])
    return found


def _sources(pack: PackReader, faults: list[str]) -> dict[str, int]:
    """Hold the sizes in a pack against the sources that lie here."""
    here = elsewhere = 0
    for collection in pack.collections.values():
        for shard in range(collection.shards if collection.holds != packs.ARRAY else 0):
            size = collection.source_size(shard)
            path = collection.path(shard)
            try:
                real = os.stat(path).st_size
            except (OSError, ValueError):
                elsewhere += 1
                continue
            here += 1
            if size is not None and real != size:
                faults.append(f"{path} has {real} bytes, the pack was made of {size}.")
    return {"sources_here": here, "sources_elsewhere": elsewhere}


def _pieces(path: str) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while piece := file.read(PIECE):
            yield piece


def _sidecar(path: str, source: str | None) -> dict[str, Any]:
    size = os.stat(path).st_size
    found: dict[str, Any] = {"format": "idx", "size": size, "faults": []}
    if size < 8 or size % 8:
        found["faults"].append(f"{size} bytes are no 64-bit offsets.")
        return found
    last = at = 0
    first: int | None = None
    longest = 0
    for piece in _pieces(path):
        words = np.frombuffer(piece, "<u8")
        steps = np.diff(words.astype(np.int64), prepend=np.int64(last if first is not None else int(words[0])))
        if (steps < 0).any() and not found["faults"]:
            number = int((steps < 0).argmax())
            found["faults"].append(f"Offset {at + number} is less than the one before it.")
        longest = max(longest, int(steps.max()))
        first = int(words[0]) if first is None else first
        last = int(words[-1])
        at += len(words)
    found |= {"records": at - 1, "first": first, "sentinel": last, "longest_record": longest}
    if source is not None:
        try:
            real = os.stat(source).st_size
        except OSError as error:
            raise BlendexError(
                Code.SOURCE_MISSING,
                f"cannot be read ({error.strerror}).",
                file=source,
                next_step="Check the path of the source.",
            ) from error
        found["source_size"] = real
        if real != last:
            found["faults"].append(f"The source has {real} bytes, the sidecar ends at {last}.")
    return found


def _route(path: str) -> dict[str, Any]:
    size = os.stat(path).st_size
    found: dict[str, Any] = {"format": "sgroute", "size": size, "faults": []}
    faults: list[str] = found["faults"]
    with open(path, "rb") as file:
        header = file.read(sgroute.HEADER_SIZE)
        if len(header) < sgroute.HEADER_SIZE:
            faults.append(f"{size} bytes are less than a header.")
            return found
        (
            magic, version, header_size, _, _, rows, records, tars, rows_at, records_at, end, record_size, _,
            specs, content, manifests, catalog, prefixes, digest, _,
        ) = sgroute.HEADER.unpack(header)  # fmt: skip
        found |= {
            "version": version, "rows": rows, "records": records, "tars": tars,
            "digests": {
                "specs": specs.hex(), "content": content.hex(), "manifests": manifests.hex(),
                "tars": catalog.hex(), "prefixes": prefixes.hex(),
            },
        }  # fmt: skip
        if magic != sgroute.MAGIC or version != 2 or header_size != sgroute.HEADER_SIZE or record_size != 8:
            faults.append("The header is none of a route of version 2.")
            return found
        if rows_at != sgroute.HEADER_SIZE or records_at != rows_at + 8 * (rows + 1):
            faults.append("The parts do not follow each other.")
        if end != size or records_at + 8 * records != size:
            faults.append(f"The file has {size} bytes, the header says {end}.")
        if faults:
            return found
        sha256 = hashlib.sha256()
        while piece := file.read(PIECE):
            sha256.update(piece)
        if sha256.digest() != digest:
            faults.append("The content has another checksum than the header says.")
        file.seek(rows_at)
        offsets = np.fromfile(file, "<u8", rows + 1)
        if int(offsets[0]) != 0 or int(offsets[-1]) != records or (offsets[1:] < offsets[:-1]).any():
            faults.append("The row offsets do not ascend from 0 to the number of records.")
        pairs = np.fromfile(file, "<u4", 2 * records).reshape(-1, 2)
        if records and int(pairs[:, 0].max()) >= tars:
            faults.append("A record names a tar that the collection does not have.")
    return found
