"""An AIStore of the tests' own: a proxy and two targets that speak its wire protocol on ports of their own.

What it does is what is known of AIStore 5.0 without running one, from its sources and documents;
``tests/stores/README.md`` lists what was never checked against a real cluster. It knows nothing of what it tests: the
unmodified SDK passes through it. Faults are asked for by operation: ``cluster.faults.add("batch", "fewer", times=1)``.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from typing import Any

from tests.support.aisbatch import Batching, member
from tests.support.aislist import Listing
from tests.support.aisstate import PROPS, Cluster, Item
from tests.support.faults import Fault


class _Node(Listing, Batching):
    """A node; ``server.role`` is ``proxy`` or the number of a target."""

    def _dispatch(self) -> None:
        self._begin()
        if self.cluster.token is not None and self.server.role == "proxy":
            given = self.headers.get("Authorization", "")
            if given != f"Bearer {self.cluster.token}":
                self._error(401 if not given else 403, "not authorized")
                return
        match self.route:
            case ["v1", "health"]:
                self._send(200, b"")
            case ["v1", "daemon"]:
                self._send(200, json.dumps({"tmap": {}, "pmap": {}}).encode())
            case ["v1", "buckets", name]:
                self._bucket(name)
            case ["v1", "objects", name, key]:
                self._object(name, key)
            case ["v1", "ml", "moss", *rest]:
                self._moss("/".join(rest).split("/") if rest else [])
            case _:
                self._error(404, "no such path")

    do_GET = _dispatch  # noqa: N815 -- names of the protocol
    do_HEAD = _dispatch  # noqa: N815
    do_PUT = _dispatch  # noqa: N815
    do_POST = _dispatch  # noqa: N815
    do_DELETE = _dispatch  # noqa: N815

    def _bucket(self, name: str) -> None:
        if self.command == "POST":
            action = json.loads(self.body)["action"]
            if (self.provider, name) in self.cluster.buckets:
                self._error(409, f'bucket "{self.provider}://{name}" already exists')
            elif action == "create-bck":
                self.cluster.bucket(name, self.provider)
                self._send(200, b"")
            else:
                self._error(400, f"unknown action {action}")
            return
        objects = self._objects(name)
        if objects is None:
            return
        if self.command == "HEAD":
            props = {"provider": self.provider, "versioning": {"enabled": True}, "checksum": {"type": "xxhash2"}}
            self._send(200, b"", {"ais-bucket-props": json.dumps(props)})
        elif self.command == "DELETE":
            del self.cluster.buckets[self.provider, name]
            self._send(200, b"")
        else:
            fault = self._seen("list", name)
            if fault is None or fault.kind == "hang":
                self._list(objects)

    def _object(self, name: str, key: str) -> None:
        if self.server.role == "proxy":
            # A GET answers 301, everything else 307.
            self._to_target(301 if self.command == "GET" else 307, f"{name}/{key}")
            return
        objects = self._objects(name)
        if objects is None:
            return
        if self.command == "PUT":
            self.cluster.put(name, key, self.body, self.provider)
            self._send(200, b"")
            return
        operation = "head" if self.command == "HEAD" else "range" if self.headers.get("Range") else "get"
        fault = self._seen(operation, key)
        if fault is not None and fault.kind == "answered":
            return
        item = objects.get(key)
        if item is None:
            self._error(404, f'object "{self.provider}://{name}/{key}" does not exist')
            return
        if self.command == "DELETE":
            del objects[key]
            self._send(204, b"")
            return
        headers = self._headers_of(item, fault)
        if self.command == "HEAD":
            wanted = set(filter(None, self.query.get("props", "").split(",")))
            if wanted - PROPS:
                self._error(400, f"unknown property {sorted(wanted - PROPS)[0]}")
                return
            headers["ais-present"] = "true" if item.present else "false"
            self._send(200, b"", headers, length=len(item.data))
            return
        data = item.data
        if archpath := self.query.get("archpath"):
            if self.headers.get("Range"):
                self._error(416, "range and archpath")
                return
            found = member(data, archpath) if self.cluster.archives else None
            if found is None:
                self._error(404, f'"{archpath}" not found in "{self.provider}://{name}/{key}"')
                return
            self._send(200, found, {"Content-Type": "application/octet-stream"})
            return
        item.present = True  # a cold object comes into the cluster with its first read
        self._get(data, headers, fault)

    def _headers_of(self, item: Item, fault: Fault | None) -> dict[str, str]:
        headers = {
            "ais-checksum-type": item.kind, "ais-checksum-value": item.checksum, "ais-version": str(item.version),
            "ais-atime": str(time.time_ns()), "ais-custom-md": f"source={self.provider}",
        }  # fmt: skip
        if self.cluster.weak:
            headers = {"ais-atime": headers["ais-atime"]}
        if fault is not None and fault.kind == "wrong-checksum":
            headers["ais-checksum-value"] = "00000000deadbeef"
        if fault is not None and fault.kind == "other-version":
            headers |= {"ais-version": str(item.version + 1), "ais-checksum-value": "1111111111111111"}
        return headers

    def _get(self, data: bytes, headers: dict[str, str], fault: Fault | None) -> None:
        status = 200
        asked = self.headers.get("Range")
        if asked and not (fault and fault.kind == "ignore-range"):
            if "," in asked:
                self._error(416, "multi-range", {"Content-Range": f"bytes */{len(data)}"})
                return
            first, _, last = asked.removeprefix("bytes=").partition("-")
            start = int(first) if first else max(0, len(data) - int(last))
            stop = min(int(last) + 1, len(data)) if first and last else len(data)
            if start >= len(data) or start >= stop:
                self._error(416, "range", {"Content-Range": f"bytes */{len(data)}"})
                return
            shown = start + 512 if fault and fault.kind == "wrong-range" else start
            headers |= {"Accept-Ranges": "bytes", "Content-Range": f"bytes {shown}-{stop - 1}/{len(data)}"}
            data, status = data[start:stop], 206
        kind = fault.kind if fault else ""
        if kind == "wrong-bytes" and data:
            middle = len(data) // 2
            data = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
        if kind in ("short", "reset"):
            self.close_connection = True
            self._send(status, data[: int(len(data) * 0.6)], headers, length=len(data))
            if kind == "reset":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                self.connection.close()
            return
        if kind == "slow":
            half = len(data) // 2
            self._send(status, data[:half], headers, length=len(data))
            self.wfile.flush()
            time.sleep(fault.argument if fault else 0)
            self.wfile.write(data[half:])
            return
        self._send(status, data, headers)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, cluster: Cluster, role: str, dead: int) -> None:
        self.cluster, self.role, self.dead = cluster, role, dead
        super().__init__(("127.0.0.1", 0), _Node)

    def handle_error(self, *_: Any) -> None:
        """A client that went away is what many tests are about."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def serve() -> Iterator[Cluster]:
    """A cluster for as long as the tests want it."""
    cluster = Cluster()
    # A port that is bound and never listened on: connections to it are refused.
    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))
        servers = [Server(cluster, role, dead.getsockname()[1]) for role in ("proxy", "t1", "t2")]
        cluster.url, *cluster.targets = (server.url for server in servers)
        threads = [threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True) for server in servers]
        for thread in threads:
            thread.start()
        try:
            yield cluster
        finally:
            for server in servers:
                server.shutdown()
                server.server_close()
