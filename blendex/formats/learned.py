"""What the records of a source are called and where they lead, learnt in the read that makes its sidecar.

Packed as lines, zlib-compressed: for each manifest row the name of its audio, its ``shard_id`` and whether it is to be
skipped; for each regular member of a tar its name and whether it begins a record. Names are raw bytes, with ``\\``,
newline and tab escaped. They are facts of a bundle: cross checks compare them, and nobody reads the source again.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

from blendex.formats.source import Readable

MAX_RECORDS = 1_000_000
"""More are not kept: half a gigabyte of names helps nobody, and a source this long is checked by the pack."""
_MAX_LINE = 16 << 20
_MAX_FIRST = 1 << 20  # how far to look for the end of a first row

ABSENT, TEXT, BOOLEAN, NEGATIVE, OTHER = -1, -2, -3, -4, -5
"""What ``shard_id`` is when it is no shard number."""
SUB = re.compile(rb"^(.+)-sub\d+(\.\w+)?$", re.DOTALL)
"""A part of a recording: its member is called without the number (``nemo_tar_routing.py``, NeMo Speech main)."""


@dataclass(slots=True)
class Rows:
    """The rows of a manifest.

    Attributes:
        names: of their audio; empty where a row has none.
        shards: their ``shard_id``, or one of the codes above.
        skipped: numbers of the rows that training skips.
    """

    names: list[bytes] = field(default_factory=list)
    shards: list[int] = field(default_factory=list)
    skipped: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Members:
    """The regular members of a tar: their names, and which of them begin a record of the index."""

    names: list[bytes] = field(default_factory=list)
    first: list[bool] = field(default_factory=list)


def _escaped(name: bytes) -> bytes:
    if b"\\" in name or b"\n" in name or b"\t" in name:
        return name.replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\t", b"\\t")
    return name


_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)


def _plain(name: bytes) -> bytes:
    if b"\\" not in name:
        return name
    return _ESCAPE.sub(lambda match: {b"n": b"\n", b"t": b"\t"}.get(match[1], match[1]), name)


class _Lines:
    """Packs lines as they come."""

    def __init__(self) -> None:
        self._packer = zlib.compressobj(1)
        self._parts: list[bytes] = []
        self._waiting: list[bytes] = []
        self.count = 0

    def add(self, line: bytes) -> None:
        self.count += 1
        if self.count <= MAX_RECORDS:
            self._waiting.append(line)
            if len(self._waiting) >= 4096:
                self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self._parts.append(self._packer.compress(b"\n".join(self._waiting) + b"\n"))
            self._waiting.clear()

    def packed(self) -> bytes | None:
        """All lines, or None when there are too many."""
        self._flush()
        return None if self.count > MAX_RECORDS else b"".join([*self._parts, self._packer.flush()])


def _unpacked(data: bytes) -> list[bytes]:
    return zlib.decompress(data).split(b"\n")[:-1]


def rows_of(data: bytes) -> Rows:
    """The rows that ``RowReader`` packed."""
    rows = Rows()
    for number, line in enumerate(_unpacked(data)):
        name, _, rest = line.partition(b"\t")
        shard, _, skip = rest.partition(b"\t")
        rows.names.append(_plain(name))
        rows.shards.append(int(shard) if shard else ABSENT)
        if skip:
            rows.skipped.add(number)
    return rows


def members_of(data: bytes) -> Members:
    """The members that ``MemberReader`` packed."""
    members = Members()
    for line in _unpacked(data):
        name, tab, _ = line.partition(b"\t")
        members.names.append(_plain(name))
        members.first.append(not tab)
    return members


class MemberReader:
    """Takes the members of a tar as they are indexed."""

    def __init__(self) -> None:
        self._lines = _Lines()

    def add(self, name: bytes, *, first: bool) -> None:
        """One more regular member."""
        self._lines.add(_escaped(name) if first else _escaped(name) + b"\t-")

    def packed(self) -> bytes | None:
        """All of them."""
        return self._lines.packed()


class RowReader:
    """A manifest that is learnt from while somebody else reads it from its first byte to its last.

    Args:
        source: the manifest.
        blank_rows: whether blank lines are records of the index.
        names: whether the rows are decoded; without, only the first one is looked at.
    """

    def __init__(self, source: Readable, *, blank_rows: bool, names: bool) -> None:
        self._source = source
        self._blank_rows = blank_rows
        self._lines = _Lines() if names else None
        self._rest: list[bytes] = []
        self._held = self._dropped = 0
        self._next = self._begin = 0
        self._records = 0
        # Of audio, added up row by row, so that no piece of reading shows in it; NaN once a row does not tell.
        self._seconds = 0.0
        self._bad: list[int] | None = None  # count, byte and record of the first row that is no JSON object
        self.first = ""
        self.oddities: dict[str, list[int]] = {}  # count, byte and record of the first

    @property
    def size(self) -> int:
        """Bytes of the manifest."""
        return self._source.size

    def pread(self, length: int, offset: int) -> bytes:
        """Passed through."""
        return self._source.pread(length, offset)

    def pread_into(self, buffer: memoryview, offset: int) -> int:
        """Passed through; the bytes that continue what was read so far are learnt from."""
        count = self._source.pread_into(buffer, offset)
        if offset == self._next and (self._lines is not None or (not self.first and self._next <= _MAX_FIRST)):
            self._feed(bytes(buffer[:count]))
            self._next += count
        return count

    def _feed(self, data: bytes) -> None:
        *whole, rest = data.split(b"\n")
        if whole:
            whole[0] = b"".join((*self._rest, whole[0]))
            self._rest, self._held = [], 0
            if self._lines is not None and self.first and not self._dropped:
                self._plain(self._lines, whole)
            else:
                for line in whole:
                    self._line(line)
                    self._begin += len(line) + 1 + self._dropped
                    self._dropped = 0
        if self._held + len(rest) <= _MAX_LINE:
            self._rest.append(rest)
            self._held += len(rest)
        else:
            self._dropped += len(rest)

    def _plain(self, lines: _Lines, whole: list[bytes]) -> None:
        """What ``_line`` does, line by line; rows with nothing odd about them take a third of its time."""
        loads, add, infinite = orjson.loads, lines.add, float("inf")
        begin, records = self._begin, self._records
        seconds = self._seconds
        for line in whole:
            try:
                row = loads(line)
                name = row["audio_filepath"]
                duration = row["duration"]
                plain = (
                    0 <= duration < infinite
                    and not isinstance(duration, bool)
                    and "\\" not in name
                    and "\n" not in name
                    and "\t" not in name
                    and "shard_id" not in row
                    and "_skipme" not in row
                    and "custom" not in row
                    and line.count(b'"audio_filepath"') == 1
                    and line.count(b'"duration"') == 1
                )
                packed = name.encode() if plain else b""
            except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError, UnicodeEncodeError):
                plain, packed = False, b""
            if plain:
                add(packed)
                records += 1
                seconds += duration
            else:
                self._begin, self._records, self._seconds = begin, records, seconds
                self._line(line)
                records, seconds = self._records, self._seconds
            begin += len(line) + 1
        self._begin, self._records, self._seconds = begin, records, seconds

    def finish(self) -> tuple[dict[str, Any], bytes | None]:
        """Small facts, and the packed rows.

        With names, ``learnt`` says that every row was decoded, ``bad_rows`` how many are no JSON objects, and
        ``seconds`` how much audio those have that training does not skip, when each of them tells.
        """
        if self._held:
            self._line(b"".join(self._rest))
        facts: dict[str, Any] = {"first": self.first} if self.first else {}
        if self.oddities:
            facts["odd"] = self.oddities
        if self._lines is not None:
            facts["learnt"] = True
            if self._records and not math.isnan(self._seconds):
                facts["seconds"] = round(self._seconds, 3)
        if self._bad is not None:
            facts["bad_rows"] = self._bad
        return facts, None if self._lines is None else self._lines.packed()

    def _no_object(self) -> None:
        self._seconds = math.nan
        self._bad = self._bad or [0, self._begin, self._records]
        self._bad[0] += 1

    def _odd(self, name: str) -> None:
        known = self.oddities.setdefault(name, [0, self._begin, self._records])
        known[0] += 1

    def _line(self, line: bytes) -> None:
        if not line.strip():
            if self._blank_rows and self._lines is not None:
                self._no_object()
                self._records += 1
                self._lines.add(b"")
            return
        if self._lines is None:
            if not self.first:
                self.first = _kind(_decode(line, lambda _: None))
            return
        value = _decode(line, self._odd)
        if not self.first:
            self.first = _kind(value)
        self._lines.add(self._packed(value, line))
        self._records += 1

    def _packed(self, row: Any, line: bytes) -> bytes:
        if not isinstance(row, dict):
            self._no_object()
            return b""
        name = row.get("audio_filepath")
        if line.count(b'"audio_filepath"') > 1 or line.count(b'"duration"') > 1:
            self._repeated(line)
        duration = self._duration(row)
        packed = _escaped(name.encode("utf-8", "surrogatepass")) if isinstance(name, str) else b""
        shard = _shard(row)
        skip = _skipped(row)
        if skip:
            self._odd("skipped_row")
        else:
            self._seconds += duration
        if shard != ABSENT or skip:
            packed += b"\t%d" % shard + (b"\ts" if skip else b"")
        return packed

    def _duration(self, row: dict[str, Any]) -> float:
        """Seconds of a row; NaN when it does not tell."""
        value = row.get("duration")
        if value is None:
            return math.nan
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            self._odd("odd_duration")
            return math.nan
        return float(value)

    def _repeated(self, line: bytes) -> None:
        def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
            if len({key for key, _ in items}) < len(items):
                raise KeyError
            return dict(items)

        try:
            json.loads(line, object_pairs_hook=pairs)
        except KeyError:
            self._odd("repeated_key")
        except (ValueError, RecursionError):
            pass


def _decode(line: bytes, odd: Callable[[str], None]) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        pass
    try:
        value = json.loads(line.decode("utf-8"))
    except RecursionError:
        odd("too_deep")
    except ValueError:
        odd("undecodable_row")
    else:
        odd("not_strict_json")
        return value
    return None


def _kind(row: Any) -> str:
    """What a first row looks like."""
    if not isinstance(row, dict):
        return "other"
    if "audio_filepath" in row:
        return "nemo"
    if "conversations" in row:
        return "chat"
    return "cut" if {"id", "start", "duration"} <= set(row) or {"type", "id", "recording"} <= set(row) else "other"


def _shard(row: dict[str, Any]) -> int:
    if "shard_id" not in row:
        return ABSENT
    value = row["shard_id"]
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, str):
        return TEXT
    if not isinstance(value, int) or value > 2**63:
        return OTHER
    return value if value >= 0 else NEGATIVE


def _skipped(row: dict[str, Any]) -> bool:
    custom = row.get("custom")
    return bool(row.get("_skipme")) or (isinstance(custom, dict) and bool(custom.get("_skipme")))
