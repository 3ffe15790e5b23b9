"""A web server of the tests' own: files by path, with ETags, ranges and redirects as told."""

from __future__ import annotations

import hashlib
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler
from urllib.parse import unquote

from tests.support.loopback import LoopbackServer, serving

MODIFIED = "Sat, 01 Nov 2025 00:00:00 GMT"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: FileServer

    def log_message(self, *_: object) -> None:
        """Tests read answers, not logs."""

    def _answer(self) -> None:
        server = self.server
        with server.lock:
            server.requests.append((self.command, self.path, dict(self.headers.items())))
        if self.path in server.redirects:
            self._send(302, {"Location": server.redirects[self.path]}, b"")
            return
        data = server.files.get(unquote(self.path))
        if data is None:
            self._send(404, {}, b"no such file")
            return
        if self.command == "HEAD" and not server.knows_head:
            self._send(405, {}, b"")
            return
        etag = '"' + hashlib.md5(data).hexdigest() + '"'
        headers = {"Last-Modified": MODIFIED, "Content-Type": server.kind}
        if server.etags != "none":
            headers["ETag"] = ("W/" if server.etags == "weak" else "") + etag
        if self.headers.get("If-Match") not in (None, etag):
            self._send(412, {}, b"")
            return
        status = 200
        asked = self.headers.get("Range")
        if asked and server.ranges:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            start, stop = int(first), min(int(last) + 1 if last else len(data), len(data))
            if start >= stop:
                self._send(416, {"Content-Range": f"bytes */{len(data)}"}, b"")
                return
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
            data, status = data[start:stop], 206
        self._send(status, headers, data)

    def _send(self, status: int, headers: dict[str, str], data: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = _answer  # noqa: N815 -- names of the protocol
    do_HEAD = _answer  # noqa: N815


class FileServer(LoopbackServer):
    """The server. ``url`` is what clients talk to; ``etags`` is strong, weak or none."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}
        self.etags = "strong"
        self.knows_head = True
        self.ranges = True
        self.kind = "application/octet-stream"
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        super().__init__(_Handler)

    def profile(self, **values: object) -> dict[str, object]:
        """The settings of a profile that reads here, as a user writes them."""
        return {"kind": "http", "prefixes": [f"{self.url}/speech/"], "networks": ["127.0.0.0/8"]} | values


def serve() -> AbstractContextManager[FileServer]:
    """A server for as long as a test wants it."""
    return serving(FileServer())
