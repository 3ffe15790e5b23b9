"""Large values, stored once under the hash of their bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import orjson
import zstandard
from sqlalchemy import case, select
from sqlalchemy.orm import Session

from blendex.catalog import dialect
from blendex.catalog.models import Blob

# Level 9 packs a list of 100,000 numbered paths about 60:1 in 40 ms; 19 gains a tenth for 50 times the time.
LEVEL = 9


def put(session: Session, data: bytes) -> str:
    """Store ``data`` unless it is there; its SHA-256 in hex."""
    name = hashlib.sha256(data).hexdigest()
    if session.execute(select(Blob.hash).where(Blob.hash == name)).scalar_one_or_none() is None:
        packed = zstandard.ZstdCompressor(level=LEVEL).compress(data)
        session.execute(
            dialect.insert(session, Blob).values(hash=name, size=len(data), data=packed).on_conflict_do_nothing()
        )
    return name


def get(session: Session, name: str) -> bytes:
    """The bytes stored under a hash."""
    row = session.execute(select(Blob.data, Blob.size).where(Blob.hash == name)).one()
    return _unpacked(row.data, row.size)


def _unpacked(data: bytes, size: int) -> bytes:
    return zstandard.ZstdDecompressor().decompress(data, max_output_size=size)


def get_json_up_to(session: Session, name: str, most: int) -> Any:
    """A stored JSON value; None when it has more than ``most`` bytes, and then it is not fetched."""
    small = case((Blob.size <= most, Blob.data))
    row = session.execute(select(small.label("data"), Blob.size).where(Blob.hash == name)).one()
    return None if row.data is None else orjson.loads(_unpacked(row.data, row.size))


def put_json(session: Session, value: Any) -> str:
    """Store a JSON value."""
    return put(session, orjson.dumps(value, option=orjson.OPT_SORT_KEYS))


def get_json(session: Session, name: str) -> Any:
    """A stored JSON value."""
    return orjson.loads(get(session, name))


def pack_list(rows: Iterable[tuple[str, str]]) -> bytes:
    """Sorted (kind, path) rows as JSON lines: the form in which a dataset's list is hashed and stored."""
    # Not joined from pieces kept: orjson begins each with a large buffer, and 400,000 of them took 1.6 GB.
    packed = bytearray()
    for row in rows:
        packed += orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)
    return bytes(packed)


def unpack_list(data: bytes) -> list[tuple[str, str]]:
    """What ``pack_list`` packed."""
    return [tuple(orjson.loads(line)) for line in data.splitlines()]
