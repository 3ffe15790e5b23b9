"""The frames of AIStore's protocol: requests as they come, answers, error bodies and redirects, and faults in these."""

from __future__ import annotations

import hashlib
import json
import socket
import time
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from tests.support.aisstate import PROVIDERS, Item
from tests.support.faults import Fault

if TYPE_CHECKING:
    from tests.support.aistore import Server


class Wire(BaseHTTPRequestHandler):
    """A node; ``server.role`` is ``proxy`` or the number of a target."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def log_message(self, *_: object) -> None:
        """Tests read answers, not logs."""

    def _begin(self) -> None:
        self.cluster = self.server.cluster
        parts = urlsplit(self.path)
        self.route = [unquote(part) for part in parts.path.split("/", 4)[1:]]
        self.raw_path, self.raw_query = parts.path, parts.query
        self.query = {key: values[-1] for key, values in parse_qs(parts.query, keep_blank_values=True).items()}
        self.provider = PROVIDERS.get(self.query.get("provider", "ais") or "ais", "ais")
        length = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(length) if length else b""
        if self.cluster.latency:
            time.sleep(self.cluster.latency)

    def _seen(self, operation: str, key: str = "") -> Fault | None:
        with self.cluster.lock:
            self.cluster.requests.append((operation, key, self.headers.get("Range") or ""))
        fault = self.cluster.faults.take(operation, key)
        if fault is None:
            return None
        if fault.kind.isdigit():
            self._error(int(fault.kind), "injected", {"Retry-After": f"{fault.argument:.0f}"} if fault.argument else {})
            return Fault("answered")
        if fault.kind == "html":
            self._send(200, b"<html><body>welcome</body></html>", {"Content-Type": "text/html"})
            return Fault("answered")
        if fault.kind == "loop":
            self.cluster.faults.add(operation, "loop", key=fault.key)  # before the client can come again
            self._redirect(307, self._own_url())
            return Fault("answered")
        if fault.kind == "dead":
            self._redirect(307, f"http://127.0.0.1:{self.server.dead}{self.path}")
            return Fault("answered")
        if fault.kind == "drop":
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return Fault("answered")
        if fault.kind == "hang":
            time.sleep(fault.argument)
        return fault

    def _own_url(self) -> str:
        host, port = self.server.server_address[:2]
        return f"http://{host}:{port}{self.path}"

    def _send(self, status: int, data: bytes, headers: dict[str, str] | None = None, length: int | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self._write(data)

    def _write(self, data: bytes) -> None:
        bandwidth = self.cluster.bandwidth
        if not bandwidth:
            self.wfile.write(data)
        else:
            began = time.monotonic()
            for start in range(0, len(data), 1 << 16):
                self.wfile.write(data[start : start + (1 << 16)])
                ahead = (start + (1 << 16)) / bandwidth - (time.monotonic() - began)
                if ahead > 0.001:
                    time.sleep(ahead)
        with self.cluster.lock:
            self.cluster.sent += len(data)

    def _error(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        text = json.dumps(
            {"message": message, "method": self.command, "url_path": self.raw_path, "remote_addr": "127.0.0.1",
             "node": str(self.server.role), "status": status}
        )  # fmt: skip
        if self.command == "HEAD":
            self._send(status, b"", (headers or {}) | {"Hdr-Error": text})
        else:
            self._send(status, text.encode(), (headers or {}) | {"Content-Type": "application/json"})

    def _redirect(self, status: int, url: str) -> None:
        self._send(status, b"", {"Location": url})

    def _to_target(self, status: int, key: str, path: str | None = None, **extra: str) -> None:
        target = self.cluster.targets[int(hashlib.md5(key.encode()).hexdigest(), 16) % len(self.cluster.targets)]
        # Clusters that sign their redirects put the proof into the query: nobody else may see it.
        signed = {"pid": "p1", "utm": str(time.time_ns()), "sig": "canary-signature"} | extra
        query = "&".join(filter(None, (self.raw_query, urlencode(signed))))
        self._redirect(status, f"{target}{path or self.raw_path}?{query}")

    def _objects(self, name: str, provider: str | None = None) -> dict[str, Item] | None:
        found = self.cluster.buckets.get((provider or self.provider, name))
        if found is None:
            self._error(404, f'bucket "{provider or self.provider}://{name}" does not exist')
        return found
