"""What is in sources: from the catalog where it has read them, else by a look of our own, which has an end.

A look reads the first sources of every entry before the second ones: small ones whole, of large JSON lines both ends,
of a tar its headers. What it leaves out is told as not checked: a build reads everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import orjson

from blendex.blend.model import Source
from blendex.errors import BlendexError, Code
from blendex.formats.findings import Finding
from blendex.formats.source import Readable
from blendex.lint.ground import Ground, Knowledge, Seen
from blendex.lint.lookups import Lookups
from blendex.lint.scopes import Entry

# About a second altogether on a local disk.
MOST_SOURCES = 256
MOST_BYTES = 256 * 2**20
END_BYTES = 2**20
# Of a tar only headers are read, each by itself: 2 GiB of 275 KB members are 8,000 round trips to a file server.
TAR_SHARE = 8
_ROWS = 2000
# What a read ends with when the file is not to blame.
_NOT_CONTENT = frozenset((Code.SOURCE_MISSING, Code.SOURCE_UNREADABLE, Code.PATH_OUTSIDE_ROOTS, Code.SOURCE_CHANGED))


@dataclass(slots=True)
class Rows:
    """How many rows were looked at, and how many of them lack what reading by batch needs."""

    seen: int = 0
    lacking: dict[str, int] = field(default_factory=dict)

    def add(self, line: bytes) -> None:
        """Look at one row; one that is no object is told by its content."""
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError:
            return
        if not isinstance(row, dict):
            return
        self.seen += 1
        for key in ("duration", "sampling_rate"):
            if row.get(key) is None:
                self.lacking[key] = self.lacking.get(key, 0) + 1


class Part:
    """Some bytes of an opened source, as a source.

    Args:
        source: the whole.
        start: where the part begins.
        end: where it ends.
    """

    def __init__(self, source: Readable, start: int, end: int) -> None:
        self._source, self._start = source, start
        self.size = end - start

    def pread(self, length: int, offset: int) -> bytes:
        """As of a source."""
        return self._source.pread(max(0, min(length, self.size - offset)), self._start + offset)

    def pread_into(self, buffer: memoryview, offset: int) -> int:
        """As of a source."""
        return self._source.pread_into(buffer[: max(0, self.size - offset)], self._start + offset)


class Looks:
    """What is known of the content of a blend's sources.

    Args:
        knowledge: what has read them before.
        ground: what may be looked at.
        lookups: where they lie.
    """

    def __init__(self, knowledge: Knowledge | None, ground: Ground, lookups: Lookups) -> None:
        self._knowledge = knowledge
        self._ground = ground
        self._lookups = lookups
        self._seen: dict[Source, Seen | None] = {}
        self._rows: dict[Source, Rows] = {}
        self._left = MOST_SOURCES
        self._left_bytes = MOST_BYTES

    def content(self, entries: Iterable[Entry]) -> dict[Source, Seen]:
        """What is in the sources of these entries, as far as it is known."""
        sources = list(dict.fromkeys(_by_turns(entries)))
        new = [source for source in sources if source not in self._seen]
        known = self._known(new)
        for source in new:
            self._seen[source] = known[source] if source in known else self._look(source)
        found = ((source, self._seen[source]) for source in sources)
        return {source: seen for source, seen in found if seen is not None}

    def rows(self, source: Source) -> Rows | None:
        """What rows of a manifest lack: those that were looked at, else the first; None where none can be seen."""
        if source not in self._rows and (address := self._lookups.address(source.path)) is not None:
            try:
                with self._ground.open(address) as opened:
                    self._add_rows(source, opened, min(END_BYTES // 4, opened.size), 1)
            except (BlendexError, OSError):
                return None
        rows = self._rows.get(source)
        return rows if rows is not None and rows.seen else None

    def _known(self, sources: list[Source]) -> dict[Source, Seen]:
        if self._knowledge is None:
            return {}
        pairs = ((source, self._lookups.address(source.path)) for source in sources)
        return dict(self._knowledge.seen([(source, address) for source, address in pairs if address is not None]))

    def _look(self, source: Source) -> Seen | None:
        address = self._lookups.address(source.path)
        if address is None or source.kind == "sharegpt_route" or self._left <= 0 or self._left_bytes <= 0:
            return None
        self._left -= 1
        try:
            with self._ground.open(address) as opened:
                return self._lines(source, opened) if source.kind == "jsonl" else self._tar(source, opened)
        except OSError:
            return None  # the file server failed, not the file
        except BlendexError as error:
            return None if error.code in _NOT_CONTENT else Seen((), error, True)

    def _tar(self, source: Source, opened: Readable) -> Seen | None:
        cost = opened.size // TAR_SHARE
        if cost > self._left_bytes:
            return None
        self._left_bytes -= cost
        return Seen(_findings(source.kind, opened), None, True)

    def _lines(self, source: Source, opened: Readable) -> Seen:
        size = opened.size
        parts: list[Readable] = [opened]
        whole = size <= 2 * END_BYTES
        if not whole:
            head, tail = opened.pread(END_BYTES, 0), opened.pread(END_BYTES, size - END_BYTES)
            # To the last line that ends in the first part, and from the first one that begins in the last.
            parts = [
                Part(opened, 0, head.rfind(b"\n") + 1),
                Part(opened, size - END_BYTES + tail.find(b"\n") + 1, size),
            ]
        self._left_bytes -= sum(part.size for part in parts)
        self._add_rows(source, opened, parts[0].size, _ROWS)
        findings = [item for part in parts if part.size for item in _findings("jsonl", part)]
        return Seen(tuple(findings), None, whole)

    def _add_rows(self, source: Source, opened: Readable, length: int, most: int) -> None:
        rows = self._rows[source] = Rows()
        for line in _first(opened.pread(length, 0), most):
            rows.add(line)


def _by_turns(entries: Iterable[Entry]) -> Iterator[Source]:
    """The first source of each entry, then the second of each, and so on."""
    waiting = [entry.sources for entry in entries]
    turn = 0
    while waiting := [sources for sources in waiting if len(sources) > turn]:
        yield from (sources[turn] for sources in waiting)
        turn += 1


def _first(text: bytes, most: int) -> Iterator[bytes]:
    start = 0
    for _ in range(most):
        end = text.find(b"\n", start)
        if end < 0:
            if start < len(text):
                yield text[start:]
            return
        yield text[start:end]
        start = end + 1


def _findings(kind: str, source: Readable) -> tuple[Finding, ...]:
    from blendex.formats.kinds import build  # numpy takes a tenth of a second, and often nothing can be looked at

    return build(kind, source, lambda _: None).findings
