"""An AIStore of the tests' own: a proxy and two targets that speak its wire protocol on ports of their own.

What it does is what is known of AIStore 5.0 without running one, from its sources and documents;
``tests/stores/README.md`` lists what was never checked against a real cluster. It knows nothing of what it tests: the
unmodified SDK passes through it. Faults are asked for by operation: ``cluster.faults.add("batch", "fewer", times=1)``.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import random
import socket
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

import msgspec
import xxhash

MAX_SOFT_ERRORS = 8
PROVIDERS = {"ais": "ais", "aws": "aws", "s3": "aws", "gcp": "gcp", "gs": "gcp", "azure": "azure", "az": "azure",
             "oci": "oci"}  # fmt: skip
PROPS = {"name", "size", "version", "checksum", "atime", "copies", "ec", "custom", "location", "chunked",
         "last-modified", "etag", "cached", "status", "target_url", "present"}  # fmt: skip


@dataclass
class Item:
    """One object."""

    data: bytes
    version: int = 1
    present: bool = True
    checksum: str = ""

    def __post_init__(self) -> None:
        self.checksum = self.checksum or xxhash.xxh64(self.data).hexdigest()


@dataclass
class Fault:
    """One thing that goes wrong, so many times."""

    kind: str
    times: int = 1
    argument: float = 0.0
    key: str | None = None
    skip: int = 0


class Faults:
    """What shall go wrong, by operation: list, head, get, range, batch (proxy step), moss (target step)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, list[Fault]] = {}
        self.met: list[tuple[str, str]] = []

    def add(
        self, operation: str, kind: str, times: int = 1, argument: float = 0.0, key: str | None = None, skip: int = 0
    ) -> None:
        """Let it go wrong, after ``skip`` requests that go right."""
        with self._lock:
            self._waiting.setdefault(operation, []).append(Fault(kind, times, argument, key, skip))

    def take(self, operation: str, key: str = "") -> Fault | None:
        """The fault of this request."""
        with self._lock:
            waiting = self._waiting.get(operation, [])
            for fault in waiting:
                if fault.key is None or fault.key == key:
                    if fault.skip > 0:
                        fault.skip -= 1
                        continue
                    fault.times -= 1
                    if fault.times <= 0:
                        waiting.remove(fault)
                    self.met.append((operation, fault.kind))
                    return fault
        return None


@dataclass
class Cluster:
    """State that proxy and targets share.

    Attributes:
        url: of the proxy.
        token: what clients must send as Bearer, when set.
        weak: a bucket without versions and checksums.
        batch, archives: whether it knows GetBatch, and members of archives.
        latency: seconds before each answer of a node.
        bandwidth: bytes per second of one response; 0: unlimited.
    """

    url: str = ""
    targets: list[str] = field(default_factory=list)
    buckets: dict[tuple[str, str], dict[str, Item]] = field(default_factory=dict)
    faults: Faults = field(default_factory=Faults)
    token: str | None = None
    latency: float = 0.0
    bandwidth: float = 0.0
    batch: bool = True
    weak: bool = False
    archives: bool = True
    page: int = 1000
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    sent: int = 0
    works: dict[str, dict[str, Any]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def bucket(self, name: str, provider: str = "ais") -> str:
        """Make a bucket."""
        self.buckets.setdefault((PROVIDERS[provider], name), {})
        return name

    def put(self, bucket: str, key: str, data: bytes, provider: str = "ais", present: bool = True) -> None:
        """Put an object; ``present`` False: it lies in the backend of a remote bucket only."""
        objects = self.buckets[PROVIDERS[provider], bucket]
        version = objects[key].version + 1 if key in objects else 1
        objects[key] = Item(data, version, present)

    def put_tree(self, bucket: str, folder: Any, prefix: str = "", provider: str = "ais") -> None:
        """Put every file below a folder."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.put(bucket, prefix + str(path.relative_to(folder)), path.read_bytes(), provider)

    def profile(self, **values: object) -> dict[str, object]:
        """The settings of an endpoint profile that reads here, as a user writes them."""
        return {"kind": "aistore", "endpoint": self.url, "buckets": ["*"], "token": self.token} | values

    def count(self, operation: str) -> int:
        """How many requests of an operation came to a node that answers them."""
        return sum(seen == operation for seen, _, _ in self.requests)


class _Node(BaseHTTPRequestHandler):
    """A node; ``server.role`` is ``proxy`` or the number of a target."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, *_: object) -> None:
        """Tests read answers, not logs."""

    # Frames

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
            self._redirect(307, self._own_url())
            self.cluster.faults.add(operation, "loop", key=fault.key)
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

    # Requests

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

    def _objects(self, name: str, provider: str | None = None) -> dict[str, Item] | None:
        found = self.cluster.buckets.get((provider or self.provider, name))
        if found is None:
            self._error(404, f'bucket "{provider or self.provider}://{name}" does not exist')
        return found

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

    def _list(self, objects: dict[str, Item]) -> None:
        value = json.loads(self.body)["value"]
        prefix, props = value.get("prefix", ""), set(filter(None, value.get("props", "").split(",")))
        if props - PROPS:
            self._error(400, f"unknown property {sorted(props - PROPS)[0]}")
            return
        flags = int(value.get("flags") or 0)
        after = value.get("continuation_token") or value.get("start_after") or ""
        size = min(int(value.get("pagesize") or value.get("page_size") or 0) or self.cluster.page, self.cluster.page)
        entries: list[dict[str, Any]] = []
        seen: set[str] = set()
        for key in sorted(objects):
            if not key.startswith(prefix):
                continue
            name, folder = key, False
            if flags & (1 << 11):
                head, slash, _ = key[len(prefix) :].partition("/")
                if slash:
                    name, folder = prefix + head + "/", True
            if name <= after or name in seen:
                continue
            seen.add(name)
            item = objects[key]
            entry: dict[str, Any] = {"n": name}
            if folder:
                entry["f"] = 1 << 7
            else:
                entry |= {"s": len(item.data), "f": (1 << 6) if item.present else 0}
                if "checksum" in props and item.present and not self.cluster.weak:
                    entry["cs"] = item.checksum
                if "version" in props and not self.cluster.weak:
                    entry["v"] = str(item.version)
            entries.append(entry)
            if len(entries) > size:
                break
        more = len(entries) > size
        entries = entries[:size]
        answer = {
            "UUID": "uuid-1", "ContinuationToken": entries[-1]["n"] if more else "", "Flags": 0, "Entries": entries,
        }  # fmt: skip
        self._send(200, msgspec.msgpack.encode(answer), {"Content-Type": "application/msgpack"})

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
            member = _member(data, archpath) if self.cluster.archives else None
            if member is None:
                self._error(404, f'"{archpath}" not found in "{self.provider}://{name}/{key}"')
                return
            self._send(200, member, {"Content-Type": "application/octet-stream"})
            return
        item.present = True  # a cold object comes into the cluster with its first read
        self._get(data, headers, fault)

    def _headers_of(self, item: Item, fault: Fault | None) -> dict[str, str]:
        headers = {
            "ais-checksum-type": "xxhash2", "ais-checksum-value": item.checksum, "ais-version": str(item.version),
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

    # GetBatch

    def _moss(self, rest: list[str]) -> None:
        if self.server.role == "proxy":
            fault = self._seen("batch")
            if fault is not None and fault.kind == "answered":
                return
            if not self.cluster.batch:
                self._error(404, "unknown path /v1/ml/moss")
                return
            request = json.loads(self.body)
            if not request.get("in"):
                self._error(400, "empty batch")
                return
            for entry in request["in"]:
                bucket = entry.get("bucket") or (rest[0] if rest else "")
                if self._objects(bucket, PROVIDERS.get(entry.get("provider") or self.provider, "ais")) is None:
                    return
            work = f"w{next(_works)}"
            self.cluster.works[work] = request
            bucket = rest[0] if rest else "_"
            path = f"/v1/ml/moss/{quote(bucket)}/x1/{work}/{len(self.cluster.targets)}"
            self._to_target(307, work, path, tid="t1")
            return
        fault = self._seen("moss")
        if fault is not None and fault.kind == "answered":
            return
        request = self.cluster.works.pop(rest[2], None) if len(rest) == 4 else None
        if request is None:
            self._error(404, "prep-rx not done")
            return
        self._answer_batch(request, rest[0], fault)

    def _answer_batch(self, request: dict[str, Any], default: str, fault: Fault | None) -> None:
        members: list[tuple[str, bytes]] = []
        outs: list[dict[str, Any]] = []
        soft = 0
        complete = True
        for entry in request["in"]:
            bucket = entry.get("bucket") or default
            provider = PROVIDERS[entry.get("provider") or self.provider]
            key, archpath = entry["objname"], entry.get("archpath")
            name = key if request.get("onob") else f"{bucket}/{key}"
            name += f"/{archpath}" if archpath else ""
            item = self.cluster.buckets[provider, bucket].get(key)
            data: bytes | None = item.data if item is not None and item.present else None
            if data is not None and archpath:
                data = _member(data, archpath)
            if data is not None and (entry.get("start") or entry.get("length")):
                start, length = entry.get("start", 0), entry.get("length", -1)
                if start >= len(data) or (length > 0 and start + length > len(data)):
                    complete = False
                    break
                data = data[start:] if length < 0 else data[start : start + length]
            out = {"objname": key, "bucket": bucket, "provider": entry.get("provider", ""), "size": len(data or b"")}
            if entry.get("opaque"):
                out["opaque"] = entry["opaque"]
            if data is None or (fault and fault.kind == "missing"):
                soft += 1
                if not request.get("coer"):
                    complete = False
                    break
                full = f"{bucket}/{key}" + (f"/{archpath}" if archpath else "")
                members.append((f"__404__/{full}", b""))
                outs.append(out | {"size": 0, "err_msg": "not found"})
                if soft > MAX_SOFT_ERRORS:
                    break
                continue
            members.append((name, data))
            outs.append(out)
        members, trailer, cut = _spoil(members, fault)
        if not request.get("strm", False):
            if not complete:
                self._error(416, "bad entry")
                return
            self._multipart(outs, _tar(members, True))
            return
        stream = _tar(members, trailer)
        if cut:
            stream = stream[: int(len(stream) * cut)]
        self._chunked(stream, fault)

    def _chunked(self, stream: bytes, fault: Fault | None) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/x-tar")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        kind = fault.kind if fault else ""
        for start in range(0, len(stream), 1 << 16):
            piece = stream[start : start + (1 << 16)]
            self.wfile.write(b"%x\r\n" % len(piece))
            self._write(piece)
            self.wfile.write(b"\r\n")
            if kind == "slow" and start >= len(stream) // 2 - (1 << 16):
                self.wfile.flush()
                time.sleep(fault.argument if fault else 0)
                kind = ""
        if kind == "cut-reset":
            self.close_connection = True
            self.wfile.flush()
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            self.connection.close()
            return
        self.wfile.write(b"0\r\n\r\n")

    def _multipart(self, outs: list[dict[str, Any]], archive: bytes) -> None:
        mark = b"b0undary"
        parts = [
            b'--%s\r\nContent-Disposition: form-data; name="metadata"\r\nContent-Type: application/json\r\n\r\n' % mark,
            json.dumps({"uuid": "u1", "out": outs}).encode(),
            b'\r\n--%s\r\nContent-Disposition: form-data; name="archive"; filename="b.tar"\r\n' % mark,
            b"Content-Type: application/octet-stream\r\n\r\n", archive, b"\r\n--%s--\r\n" % mark,
        ]  # fmt: skip
        self._send(200, b"".join(parts), {"Content-Type": f"multipart/mixed; boundary={mark.decode()}"})


_works = itertools.count(1)


def _spoil(members: list[tuple[str, bytes]], fault: Fault | None) -> tuple[list[tuple[str, bytes]], bool, float]:
    """The members as a fault leaves them, whether the archive has its end, and how much of it is sent."""
    kind = fault.kind if fault else ""
    if not members:
        return members, True, 0.0
    middle = len(members) // 2
    if kind == "empty":
        members[middle] = (members[middle][0], b"")
    elif kind in ("fewer", "fewer-no-trailer"):
        return members[:middle], kind == "fewer", 0.0
    elif kind == "swap" and len(members) > 1:
        members[0], members[-1] = members[-1], members[0]
    elif kind == "wrong-name":
        members[middle] = ("other/name", members[middle][1])
    elif kind == "wrong-bytes" and members[middle][1]:
        data = members[middle][1]
        members[middle] = (members[middle][0], bytes([data[0] ^ 1]) + data[1:])
    elif kind in ("cut-clean", "cut-reset"):
        return members, True, 0.6
    elif kind == "nothing":
        return [], False, 0.0
    elif kind == "not-a-tar":
        return [("x" * 90, random.Random(1).randbytes(1000))], True, 0.3
    return members, True, 0.0


def _tar(members: list[tuple[str, bytes]], trailer: bool) -> bytes:
    stream = io.BytesIO()
    for name, data in members:
        info = tarfile.TarInfo(name)
        info.size, info.mode = len(data), 0o644
        stream.write(info.tobuf(tarfile.PAX_FORMAT))
        stream.write(data)
        stream.write(bytes(-len(data) % 512))
    return stream.getvalue() + (bytes(1024) if trailer else b"")


def _member(archive: bytes, path: str) -> bytes | None:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for info in tar:
            if info.name == path.lstrip("/"):
                file = tar.extractfile(info)
                return file.read() if file else None
    return None


class _Server(ThreadingHTTPServer):
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
        servers = [_Server(cluster, role, dead.getsockname()[1]) for role in ("proxy", "t1", "t2")]
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
