"""What a store of sources must do. Tokens and guards belong here; what the bytes mean does not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

from blendex.errors import BlendexError

# A token this young at the start of a read is racy: the file may change again without the token changing,
# because kernels stamp files with a clock of a few milliseconds and some servers with one of a second or two.
RACY_NS = 2_000_000_000


@dataclass(frozen=True, slots=True)
class Stat:
    """What a store says of one source without reading it."""

    address: str
    size: int
    token: str
    mtime_ns: int
    changed_ns: int  # the youngest of the times in the token
    device: int | None = None  # of a local file; for what upstream ties to a machine, and for nothing else
    inode: int | None = None
    weak: bool = False  # the token is a size and no more: it proves nothing
    checksum: tuple[str, str] | None = None  # of the whole object, as its store tells it: type and value
    present: bool | None = None  # of an object behind a cache: whether it lies in the cache

    def racy(self, now_ns: int) -> bool:
        """True when the token is too young, at ``now_ns`` of the file server's clock, or too weak to prove anything."""
        return self.weak or now_ns - self.changed_ns < RACY_NS


@dataclass(slots=True)
class Figures:
    """What a store did, for the observer that handed this object in."""

    stats: int = 0
    opens: int = 0
    bytes_read: int = 0
    reads: int = 0
    requests: int = 0  # to object stores
    retries: int = 0
    opened: list[str] = field(default_factory=list)
    notes: dict[str, int] = field(default_factory=dict)  # what people should know of a store, and how often it was

    def note(self, text: str, count: int = 1) -> None:
        """Remember a sentence for people; it never holds more than names of profiles and counts."""
        self.notes[text] = self.notes.get(text, 0) + count

    def as_dict(self) -> dict[str, int]:
        """The counts, without the addresses."""
        return {
            "stats": self.stats, "opens": self.opens, "bytes_read": self.bytes_read, "reads": self.reads,
            "requests": self.requests, "retries": self.retries,
        }  # fmt: skip


class Opened(Protocol):
    """A source opened for reading, with the stat of the very object that is read."""

    size: int
    stat: Stat

    def pread(self, length: int, offset: int) -> bytes: ...
    def pread_into(self, buffer: memoryview, offset: int) -> int: ...
    def unchanged(self) -> bool: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Storage(Protocol):
    """A store of sources, reached by address.

    ``open`` is how a range or a stream is read: what it returns reads the very object whose stat it carries, and
    ``unchanged`` is the guard after the last read. ``whole`` says that all of it will be read, in order. ``open_many``
    opens in order and may read ahead what is small and wanted whole. ``stat_many`` answers in order, as many at a time
    as pays for the store: a store that can list need not ask for each.
    """

    figures: Figures

    def stat(self, address: str) -> Stat: ...
    def stat_many(self, addresses: Iterable[str]) -> Iterator[Stat | BlendexError]: ...
    def open(self, address: str, *, whole: bool = False) -> Opened: ...
    def open_many(self, items: Iterable[tuple[str, bool]]) -> Iterator[Opened | BlendexError]: ...
    def list(self, address: str) -> list[tuple[str, bool]]: ...
    def read(self, address: str, limit: int) -> bytes: ...
    def now_ns(self) -> int: ...
    def paces(self) -> dict[str, dict[str, float]]: ...
    def close(self) -> None: ...
