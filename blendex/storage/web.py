"""Web servers as stores: files at URLs that begin as a profile says, read whole or in ranges.

Nothing is asked of a server but HEAD and GET. Redirects are followed as far as the profile reads, at most a few. The
token is the strong ETag with Last-Modified; a weak ETag or a time alone tell a change but prove none, since a file may
be written twice within its second, so such a token is weak. There are no listings: pages of links mean nothing certain.
"""

from __future__ import annotations

import threading
from http.client import HTTPException, HTTPResponse
from urllib.parse import quote, unquote, urljoin

from blendex.blend.urls import parts
from blendex.storage.driver import Body, Listed, parse_range, token
from blendex.storage.failures import StoreFailure, Trouble, of_status
from blendex.storage.hosts import Connection, context_of
from blendex.storage.interface import Stat
from blendex.storage.profiles import Place, Profile
from blendex.version import __version__

MOST_REDIRECTS = 5
_REDIRECTS = (301, 302, 303, 307, 308)
# A path is sent as it is written; what no path may hold is escaped.
_LETTERS = "/%:@!$&'()*+,;=~-._"


class WebDriver:
    """The web servers of one profile."""

    lists = lists_from = False

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._context = context_of(profile)
        self._idle: dict[tuple[str, str], list[Connection]] = {}
        self._lock = threading.Lock()

    def head(self, place: Place) -> Stat:
        """One HEAD; where a server knows none, or tells no length, a GET of one byte."""
        connection, answer = self._ask("HEAD", place, {})
        if answer.status == 200 and answer.getheader("Content-Length") is not None:
            self._check(answer)
            found = _stat(place, _length(answer) or 0, answer)
            answer.read()
            self.back(connection, answer)
            return found
        connection.close()
        if answer.status not in (200, 405, 501):
            raise _failure(answer)
        connection, answer = self._ask("GET", place, {"Range": "bytes=0-0"})
        connection.close()
        if answer.status == 416 and answer.getheader("Content-Range", "").endswith("*/0"):
            return _stat(place, 0, answer)
        self._check(answer)
        found_range = parse_range(answer.getheader("Content-Range")) if answer.status == 206 else None
        size = found_range[2] if found_range else _length(answer) if answer.status == 200 else None
        if size is None:
            raise StoreFailure(Trouble.WRONG, "an answer that does not tell the length of the file")
        return _stat(place, size, answer)

    def get(self, place: Place, start: int, stop: int | None, expect: Stat | None) -> Body:
        """One GET, of a range where less than all is wanted."""
        headers = {}
        if start or stop is not None:
            headers["Range"] = f"bytes={start}-" if stop is None else f"bytes={start}-{stop - 1}"
        if expect is not None and (etag := _etag(expect)):
            headers["If-Match"] = etag
        connection, answer = self._ask("GET", place, headers)
        try:
            self._check(answer)
            return _WebBody(place, self, connection, answer)
        except BaseException:
            connection.close()
            raise

    def page(self, place: Place, after: str, more: str | None, folders: bool) -> Listed:
        """There is none."""
        raise StoreFailure(Trouble.UNABLE, "a web server has no listings")

    def close(self) -> None:
        """End the connections."""
        with self._lock:
            for connections in self._idle.values():
                for connection in connections:
                    connection.close()
            self._idle.clear()

    def back(self, connection: Connection, answer: HTTPResponse) -> None:
        """Keep a connection whose answer was read to its end."""
        if not answer.isclosed() or answer.will_close:
            connection.close()
            return
        connection.used = True
        with self._lock:
            idle = self._idle.setdefault(connection.place, [])
            if len(idle) < self._profile.parallel:
                idle.append(connection)
                return
        connection.close()

    def _connection(self, scheme: str, authority: str) -> Connection:
        with self._lock:
            idle = self._idle.get((scheme, authority))
            if idle:
                return idle.pop()
        return Connection(self._profile, scheme, authority, self._context)

    def _ask(self, method: str, place: Place, headers: dict[str, str]) -> tuple[Connection, HTTPResponse]:
        """The answer that is no redirect."""
        scheme, authority = place.scheme, place.bucket
        target = "/" + quote(place.key, safe=_LETTERS)
        for _ in range(MOST_REDIRECTS + 1):
            own = (scheme, authority) == (place.scheme, place.bucket)
            connection, answer = self._send(method, scheme, authority, target, self._headers(headers, own))
            if answer.status not in _REDIRECTS:
                return connection, answer
            location = answer.getheader("Location", "")
            connection.close()
            scheme, authority, target = self._onward(urljoin(f"{scheme}://{authority}{target}", location))
        raise StoreFailure(Trouble.SETTINGS, "it redirects in a circle")

    def _onward(self, url: str) -> tuple[str, str, str]:
        """Where a redirect leads, which may carry a query of the server's own; no one is shown it."""
        path, mark, query = url.partition("#")[0].partition("?")
        found = parts(path)
        if found is None or "@" in found[1] or not self._profile.serves(*found):
            raise StoreFailure(Trouble.SETTINGS, "it redirects to where the profile has no prefix")
        return found[0], found[1], "/" + quote(found[2], safe=_LETTERS) + mark + quote(query, safe=_LETTERS + "?")

    def _headers(self, headers: dict[str, str], own: bool) -> dict[str, str]:
        made = {"Accept-Encoding": "identity", "User-Agent": f"blendex/{__version__}"} | headers
        if own and self._profile.token:
            made["Authorization"] = f"Bearer {self._profile.token}"
        return made

    def _send(
        self, method: str, scheme: str, authority: str, target: str, headers: dict[str, str]
    ) -> tuple[Connection, HTTPResponse]:
        while True:
            connection = self._connection(scheme, authority)
            try:
                connection.request(method, target, headers=headers | {"Host": authority})
                return connection, connection.getresponse()
            except StoreFailure:
                connection.close()
                raise
            except (HTTPException, OSError, ValueError) as error:
                connection.close()
                if connection.used and not isinstance(error, TimeoutError):
                    continue  # the server had ended it while it was idle
                raise StoreFailure(Trouble.BROKEN, type(error).__name__) from None

    def _check(self, answer: HTTPResponse) -> None:
        if answer.status not in (200, 206):
            raise _failure(answer)
        if answer.getheader("Content-Encoding", "identity").lower() != "identity":
            raise StoreFailure(Trouble.WRONG, "a compressed body, though a plain one was asked for")
        if answer.getheader("Content-Type", "").lower().startswith("text/html"):
            raise StoreFailure(Trouble.WRONG, "a page instead of a file")


def _failure(answer: HTTPResponse) -> StoreFailure:
    after = answer.getheader("Retry-After", "")
    return of_status(answer.status, float(after) if after.isdigit() else None)


def _length(answer: HTTPResponse) -> int | None:
    value = answer.getheader("Content-Length", "")
    return int(value) if value.isdigit() else None


def _etag(stat: Stat) -> str:
    return unquote(stat.token.split(":")[3])


def _stat(place: Place, size: int, answer: HTTPResponse) -> Stat:
    etag = answer.getheader("ETag", "")
    strong = etag if etag.startswith('"') else ""
    return Stat(
        address=place.address,
        size=size,
        token=token(size, "http", strong, answer.getheader("Last-Modified", ""), "" if strong else etag),
        mtime_ns=0,
        changed_ns=0,
        weak=not strong,
    )


class _WebBody:
    def __init__(self, place: Place, driver: WebDriver, connection: Connection, answer: HTTPResponse) -> None:
        self._driver = driver
        self._connection = connection
        self._answer = answer
        self.status = answer.status
        self.content_range = answer.getheader("Content-Range")
        self.length = _length(answer)
        found = parse_range(self.content_range) if self.status == 206 else None
        if found is None and self.length is None:
            raise StoreFailure(Trouble.WRONG, "an answer that does not tell the length of the file")
        self.total = found[2] if found else self.length or 0
        self.stat = _stat(place, self.total, answer)

    def read(self, count: int) -> bytes:
        """Some bytes; raises StoreFailure when the body broke."""
        try:
            return self._answer.read(count)
        except (HTTPException, OSError, ValueError) as error:
            raise StoreFailure(Trouble.BROKEN, type(error).__name__) from None

    def close(self) -> None:
        """Let the connection go; one whose body is not read to its end is of no further use."""
        self._driver.back(self._connection, self._answer)
