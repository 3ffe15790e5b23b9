"""Receipts: what a mirror holds and what it was made from, and whether a folder is a whole mirror.

``READY`` is written last inside staging: ``{"key", "receipt"}`` with the SHA-256 of ``receipt.json``, which in
turn names the SHA-256 of ``sources.jsonl``. A folder under ``mirrors/`` came there by one rename, so it is whole;
the digests tell whether it still is.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson

from blendex.errors import BlendexError, Code
from blendex.storage.root import flush_file, flush_folder

FORMAT = 1
# What is read of an archive at one time.
ARCHIVE_PIECE = 1 << 18


def dumps(value: Any) -> bytes:
    """JSON for people: sorted keys, two spaces, a final newline."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)


def _damaged(path: str, reason: str) -> BlendexError:
    return BlendexError(
        Code.MIRROR_DAMAGED,
        f"{reason}.",
        file=path,
        next_step="Do not train on it: move the folder away and post the blend again.",
    )


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise _damaged(path, f"cannot be read ({error.strerror})") from error


def file_digest(path: str) -> str:
    """SHA-256 of a file, in hex."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _damaged(path, f"cannot be read ({error.strerror})") from error


def read_receipt(mirror: str, key: str | None = None) -> dict[str, Any]:
    """The receipt of a mirror, after READY and its digest have been checked.

    Args:
        mirror: the folder.
        key: the key it must have; None takes the one in READY.

    Raises:
        BlendexError: mirror_damaged.
    """
    ready = _json(os.path.join(mirror, "READY"))
    path = os.path.join(mirror, "receipt.json")
    data = _read(path)
    if hashlib.sha256(data).hexdigest() != ready.get("receipt"):
        raise _damaged(path, "the receipt is not the one that READY names")
    receipt = _json(path)
    if receipt.get("key") != ready.get("key") or (key is not None and receipt.get("key") != key):
        raise _damaged(path, "the receipt belongs to another mirror")
    return receipt


def _json(path: str) -> dict[str, Any]:
    try:
        value = orjson.loads(_read(path))
    except orjson.JSONDecodeError as error:
        raise _damaged(path, "is not JSON") from error
    if not isinstance(value, dict):
        raise _damaged(path, "is not a JSON object")
    return value


@contextmanager
def open_archive(path: str) -> Iterator[io.BufferedReader]:
    """What ``archive`` wrote, to be read: the receipt on its first line, then a line for each source."""
    import zstandard

    with open(path, "rb") as packed, zstandard.ZstdDecompressor().stream_reader(packed) as raw:
        yield io.BufferedReader(raw, ARCHIVE_PIECE)


def archive(mirror: str, target: str, private: str) -> None:
    """Keep receipt and sources of a mirror outside of it, compressed, unless that was done: they outlive it.

    Args:
        mirror: the folder.
        target: of the archive: the receipt on its first line, the sources on the others.
        private: a name that nobody else uses, on the same filesystem.
    """
    import zstandard

    if os.path.exists(target):
        return
    compressor = zstandard.ZstdCompressor(level=3)
    with open(private, "xb") as file, compressor.stream_writer(file, closefd=False) as stream:
        stream.write(orjson.dumps(_json(os.path.join(mirror, "receipt.json")), option=orjson.OPT_APPEND_NEWLINE))
        with open(os.path.join(mirror, "sources.jsonl"), "rb") as part:
            while piece := part.read(1 << 20):
                stream.write(piece)
    flush_file(private)
    os.rename(private, target)
    flush_folder(os.path.dirname(target))


def find_source(mirror: str, kind: str, path: str) -> dict[str, Any] | None:
    """The line of one source in ``sources.jsonl``; None when it is not there.

    Lines stand in the order of (kind, path), so a list of 400,000 is 27 places to look at.

    Raises:
        BlendexError: mirror_damaged.
    """
    name = os.path.join(mirror, "sources.jsonl")
    try:
        with open(name, "rb") as file:
            low, high = 0, os.fstat(file.fileno()).st_size
            while low < high:
                middle = (low + high) // 2
                # The first line that begins at or after the middle.
                file.seek(max(0, middle - 1))
                if middle:
                    file.readline()
                start = file.tell()
                line = orjson.loads(file.readline()) if start < high else None
                if line is None or (line["kind"], line["path"]) > (kind, path):
                    high = middle
                elif (line["kind"], line["path"]) == (kind, path):
                    found: dict[str, Any] = line
                    return found
                else:
                    low = file.tell()
    except OSError as error:
        raise _damaged(name, f"cannot be read ({error.strerror})") from error
    except orjson.JSONDecodeError as error:
        raise _damaged(name, "holds a line that is not JSON") from error
    return None


def read_sources(mirror: str) -> Iterator[dict[str, Any]]:
    """The lines of ``sources.jsonl``, in order."""
    path = os.path.join(mirror, "sources.jsonl")
    try:
        with open(path, "rb") as file:
            for line in file:
                yield orjson.loads(line)
    except OSError as error:
        raise _damaged(path, f"cannot be read ({error.strerror})") from error
    except orjson.JSONDecodeError as error:
        raise _damaged(path, "holds a line that is not JSON") from error
