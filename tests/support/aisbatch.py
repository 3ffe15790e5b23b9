"""GetBatch of the tests' AIStore: both steps, streaming and multipart, and what can go wrong with an archive."""

from __future__ import annotations

import io
import itertools
import json
import random
import socket
import tarfile
import time
from typing import Any
from urllib.parse import quote

from tests.support.aisstate import PROVIDERS
from tests.support.aiswire import Wire
from tests.support.faults import Fault

MAX_SOFT_ERRORS = 8


class Batching(Wire):
    """A node that knows GetBatch."""

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
                data = member(data, archpath)
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


def member(archive: bytes, path: str) -> bytes | None:
    """A member of an archive, by its first name."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for info in tar:
            if info.name == path.lstrip("/"):
                file = tar.extractfile(info)
                return file.read() if file else None
    return None
