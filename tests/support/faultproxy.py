"""A proxy before an HTTP server that does to its answers what networks and gateways do.

It repeats each request to the server behind and spoils the answer as asked: ``proxy.faults.add("get", "short")``.
Operations are ``head``, ``get``, ``range`` and ``list``.
"""

from __future__ import annotations

import http.client
import socket
import time
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.support.faults import Faults
from tests.support.loopback import LoopbackServer, serving

_PASSED = ("host", "content-length", "content-type", "range", "if-match", "authorization", "x-amz-checksum-mode")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: FaultProxy

    def log_message(self, *_: object) -> None:
        """Tests read answers, not logs."""

    def _operation(self, parts: Any) -> tuple[str, str]:
        key = unquote(parts.path).lstrip("/").partition("/")[2]
        if self.command == "HEAD":
            return "head", key
        if "list-type" in parts.query:
            return "list", key
        return ("range" if self.headers.get("Range") else "get"), key

    def _answer(self) -> None:
        proxy = self.server
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        operation, key = self._operation(urlsplit(self.path))
        with proxy.lock:
            proxy.requests.append((operation, key))
        fault = proxy.faults.take(operation, key)
        kind = fault.kind if fault else ""
        if proxy.latency:
            time.sleep(proxy.latency)
        if kind.isdigit():
            extra = {"Retry-After": "1"} if fault and fault.argument else {}
            text = b"<Error><Code>Injected</Code></Error>" if kind != "503" else b"<Error><Code>SlowDown</Code></Error>"
            self._send(int(kind), extra, text if self.command != "HEAD" else b"")
            return
        if kind == "drop":
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        if kind == "hang" and fault:
            time.sleep(fault.argument)
        if kind == "html":
            self._send(200, {"Content-Type": "text/html"}, b"<html>welcome</html>")
            return
        headers = {name: value for name, value in self.headers.items() if name.lower() in _PASSED}
        if kind == "ignore-range":
            headers = {name: value for name, value in headers.items() if name.lower() != "range"}
        behind = http.client.HTTPConnection(proxy.host, timeout=30)
        behind.request(self.command, self.path, body or None, headers)
        answer = behind.getresponse()
        data = answer.read()
        found = {name: value for name, value in answer.getheaders() if name.lower() not in _DROPPED}
        length = int(answer.headers.get("Content-Length") or 0) if self.command == "HEAD" else len(data)
        behind.close()
        if kind == "other-version":
            found = {name: value for name, value in found.items() if name.lower() != "etag"} | {"ETag": '"other"'}
        if kind == "wrong-range":
            (name,) = (name for name in found if name.lower() == "content-range")
            first, _, rest = found[name].removeprefix("bytes ").partition("-")
            found[name] = f"bytes {int(first) + 512}-{rest}"
        if kind == "wrong-bytes" and data:
            middle = len(data) // 2
            data = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
        if kind in ("short", "reset"):
            self.close_connection = True
            self._send(answer.status, found, data[: int(len(data) * 0.6)], length)
            if kind == "reset":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                self.connection.close()
            return
        if kind == "slow" and fault:
            self._send(answer.status, found, data[: len(data) // 2], length)
            self.wfile.flush()
            time.sleep(fault.argument)
            self.wfile.write(data[len(data) // 2 :])
            return
        self._send(answer.status, found, data, length)

    def _send(self, status: int, headers: dict[str, str], data: bytes, length: int | None = None) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
            with self.server.lock:
                self.server.sent += len(data)

    do_GET = _answer  # noqa: N815 -- names of the protocol
    do_HEAD = _answer  # noqa: N815
    do_PUT = _answer  # noqa: N815


_DROPPED = ("content-length", "connection", "transfer-encoding", "date", "server")


class FaultProxy(LoopbackServer):
    """The proxy. ``url`` is what clients talk to."""

    def __init__(self, behind: str) -> None:
        self.host = urlsplit(behind).netloc
        self.faults = Faults()
        self.latency = 0.0
        self.sent = 0
        self.requests: list[tuple[str, str]] = []
        super().__init__(_Handler)


def serve(behind: str) -> AbstractContextManager[FaultProxy]:
    """A proxy for as long as a test wants it."""
    return serving(FaultProxy(behind))
