"""What a driver of one kind of store does: single requests, and whose fault it was when one failed.

Tries, limits, checks of ranges and tokens, and the choice of requests are the same for all stores: they are made by
whoever calls a driver.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import quote, unquote

from blendex.storage.interface import Stat
from blendex.storage.profiles import Place


class Body(Protocol):
    """A response to a GET whose bytes are still to come.

    Attributes:
        status: 200 or 206.
        content_range: the header, where there was one.
        length: bytes that the body says it has; None if it does not say.
        total: size of the whole object.
        stat: of the object this response is of.
    """

    status: int
    content_range: str | None
    length: int | None
    total: int
    stat: Stat

    def read(self, count: int) -> bytes:
        """Some bytes, at most ``count``; none at the end that the body itself announced.

        Raises:
            StoreFailure: BROKEN when it ended early or stalled.
        """
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Listed:
    """One page of a listing."""

    stats: list[tuple[str, Stat | None]]  # ascending by key; None where the listing does not tell enough
    folders: list[str]  # common prefixes up to the delimiter
    more: str | None  # continues the listing; None: this was the last page


class Driver(Protocol):
    """One endpoint, by single requests; every method may raise StoreFailure."""

    lists: bool  # whether there are listings at all
    lists_from: bool  # whether a listing can begin after a given key

    def head(self, place: Place) -> Stat: ...
    def get(self, place: Place, start: int, stop: int | None, expect: Stat | None) -> Body: ...
    def page(self, place: Place, after: str, more: str | None, folders: bool) -> Listed: ...
    def close(self) -> None: ...


def token(size: int, kind: str, *fields: str) -> str:
    """The token of an object: its size, 0 where a file has its mtime, the kind, and what the store says of it."""
    return ":".join((str(size), "0", kind, *(quote(field, safe="") for field in fields)))


def differ(one: str, other: str) -> bool:
    """Whether two tokens are of different objects: a field that a response did not carry says nothing."""
    first, second = one.split(":"), other.split(":")
    if first[:3] != second[:3]:
        return first[0] != second[0]
    return any(a and b and a != b for a, b in zip(first[3:], second[3:], strict=False))


def is_weak(token: str) -> bool:
    """Whether a token proves nothing: of a store it is a size and no more, of a web server it has no strong ETag."""
    fields = token.split(":")
    if fields[2:3] == ["http"]:
        return not fields[3]
    return fields[2:3] in (["s3"], ["ais"]) and not any(fields[3:])


def identity(token: str) -> str | None:
    """What upstream's metadata calls the identity of an object; None for a file.

    ``version:…`` where the store numbers versions, else ``etag:…`` or ``checksum:…``.
    """
    fields = token.split(":")
    if fields[2:3] == ["s3"]:
        return f"etag:{unquote(fields[3])}"
    if fields[2:3] == ["ais"] and (fields[3] or fields[4]):
        return f"version:{unquote(fields[3])}" if fields[3] else f"checksum:{unquote(fields[4])}"
    return None


_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


def parse_range(header: str | None) -> tuple[int, int, int] | None:
    """(first, last, total) of a Content-Range."""
    match = _RANGE.fullmatch(header or "")
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def pieces(body: Body, count: int) -> Iterator[bytes]:
    """What is left of a body, a piece at a time."""
    while piece := body.read(count):
        yield piece
