"""Object stores at emulated distances: batches beside individual GETs, and the ways through a tar beside the choice.

    .venv/bin/python benchmarks/stores.py [manifests] [tars] [wire] [--rounds 3] [--count 5000] [--tars 100]

``manifests`` and ``wire``: servers run in processes of their own and wait before each answer (latency) and while they
send (bandwidth); times are medians of alternating rounds and are compared within this run. ``tars``: a hundred tars of
a thousand members by every way are 25 GB each, hours of waiting; the product's code reads them over a link whose time
is computed (``link``), so that all of it is seen, and the same on every machine. Tars are made as they are sent.
"""

from __future__ import annotations

import argparse
import bisect
import itertools
import multiprocessing
import random
import statistics
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from typing import Any

from benchmarks import link
from blendex.errors import BlendexError
from blendex.formats.kinds import build
from blendex.storage import batch
from blendex.storage.endpoints import open_profile
from blendex.storage.interface import Figures
from blendex.storage.profiles import Profile
from blendex.storage.reader import OpenedObject
from tests.support import aistore


@contextmanager
def elsewhere(target: Callable[..., None], *arguments: Any) -> Iterator[str]:
    """A server in its own process; its URL."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=target, args=(theirs, *arguments), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        process.kill()
        process.join()


# Manifests


def cluster(pipe: Connection, count: int, size: int, latency: float, dies_after: int | None) -> None:
    with aistore.serve() as made:
        made.bucket("speech")
        made.latency = latency
        line = b'{"audio_filepath": "a.wav", "duration": 1.0, "text": "some words"}\n'
        data = (line * (size // len(line) + 1))[: size - 1] + b"\n"
        for number in range(count):
            made.put("speech", f"m/{number:05}.jsonl", data)
        if dies_after is not None:
            made.faults.add("moss", "503", 10**6, skip=dies_after)
        pipe.send(made.url)
        threading.Event().wait()


def read(url: str, count: int, **values: Any) -> tuple[float, Figures]:
    batch.forget()
    profile = Profile.from_dict({"name": "lab", "kind": "aistore", "endpoint": url, "buckets": ["*"]} | values)
    figures = Figures()
    store = open_profile(profile, figures)
    began = time.monotonic()
    items = ((f"lab:ais://speech/m/{number:05}.jsonl", True) for number in range(count))
    for opened in store.open_many(items):
        assert not isinstance(opened, BlendexError), opened
        assert opened.pread(1, 0) == b"{"
        opened.close()
    seconds = time.monotonic() - began
    store.close()
    return seconds, figures


def manifests(rounds: int, count: int) -> bool:
    size, latency = 50_000, 0.0025  # a node's wait; a GET goes over two nodes: 5 ms
    print(f"{count} manifests of {size // 1000} KB, 5 ms for a GET over proxy and target")
    print(f"limit: one by one {count * 2 * latency:.1f} s of waiting; 16 at a time {count * 2 * latency / 16:.1f} s")
    times: dict[str, list[float]] = {"one by one": [], "16 at a time": [], "batch": [], "batch dies": []}
    for _ in range(rounds):
        with elsewhere(cluster, count, size, latency, None) as url:
            times["one by one"].append(read(url, count, mode="individual", parallel=1)[0])
            times["16 at a time"].append(read(url, count, mode="individual")[0])
            seconds, figures = read(url, count, mode="batch")
            times["batch"].append(seconds)
        with elsewhere(cluster, count, size, latency, count // 512) as url:
            times["batch dies"].append(read(url, count, mode="batch")[0])
    found = {name: statistics.median(values) for name, values in times.items()}
    for name, seconds in found.items():
        print(f"  {name:<14}{seconds:7.2f} s")
    half = found["batch"] / found["one by one"]
    dying = found["batch dies"] / found["16 at a time"]
    print(f"  batch / one by one        {half:5.2f}   (at most 0.50); {figures.requests} requests")
    print(f"  batch that dies / 16 GETs {dying:5.2f}   (at most 1.20)")
    return half <= 0.5 and dying <= 1.2


# Tars


@dataclass(frozen=True)
class Archive:
    """A tar that is never in memory: its headers by their places, and zeros between them."""

    headers: dict[int, bytes]
    places: list[int]
    size: int

    def piece(self, start: int, stop: int) -> bytearray:
        data = bytearray(stop - start)
        first = max(0, bisect.bisect_right(self.places, start) - 1)
        for at in itertools.islice(self.places, first, None):
            if at >= stop:
                break
            part = self.headers[at][max(0, start - at) : stop - at]
            begin = max(0, at - start)
            data[begin : begin + len(part)] = part
        return data


def archive(members: int, size: int) -> Archive:
    """Members of ``size`` bytes in the mean, from a fifth of it to nine fifths, as recordings are."""
    chance = random.Random(1)
    headers: dict[int, bytes] = {}
    at = 0
    for number in range(members):
        info = tarfile.TarInfo(f"{number:06}.wav")
        info.size = chance.randrange(size // 5, 9 * size // 5)
        headers[at] = info.tobuf(tarfile.USTAR_FORMAT)
        at += 512 + info.size + -info.size % 512
    return Archive(headers, list(headers), at + 1024)


class Link:
    """A line of so many bytes a second, whoever sends."""

    def __init__(self, bandwidth: float) -> None:
        self._bandwidth = bandwidth
        self._free = 0.0
        self._lock = threading.Lock()

    def send(self, count: int) -> None:
        with self._lock:
            self._free = max(self._free, time.monotonic()) + count / self._bandwidth
            ahead = self._free - time.monotonic()
        if ahead > 0.0005:
            time.sleep(ahead)


def ranges(pipe: Connection, data: Archive, latency: float, bandwidth: float, shared: bool) -> None:
    """A server that answers like S3, every key the same object."""
    line = Link(bandwidth)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            time.sleep(latency)
            start, stop, status = 0, data.size, 200
            if asked := self.headers.get("Range"):
                first, _, last = asked.removeprefix("bytes=").partition("-")
                start, stop, status = int(first), min(int(last) + 1 if last else data.size, data.size), 206
            self.send_response(status)
            self.send_header("ETag", '"one"')
            self.send_header("Last-Modified", "Sat, 01 Nov 2025 00:00:00 GMT")
            self.send_header("Content-Length", str(stop - start))
            if status == 206:
                self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{data.size}")
            self.end_headers()
            if self.command == "HEAD":
                return
            link, piece = line if shared else Link(bandwidth), 128 * 1024
            try:
                for at in range(start, stop, piece):
                    count = min(piece, stop - at)
                    link.send(count)
                    self.wfile.write(data.piece(at, at + count))
            except OSError:
                self.close_connection = True

        do_HEAD = do_GET  # noqa: N815

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 64

    server = Server(("127.0.0.1", 0), Handler)
    pipe.send(f"http://127.0.0.1:{server.server_address[1]}")
    server.serve_forever()


def walk(url: str, tars: int, way: str | None) -> tuple[float, int]:
    """Seconds and bytes of a tar, over so many of them; nothing is known of the endpoint before the first."""
    profile = {"name": "lab", "kind": "s3", "endpoint": url, "buckets": ["*"], "addressing": "path"}
    store = open_profile(Profile.from_dict(profile | {"access_key": "a", "secret_key": "b"}), Figures())
    store.stat("lab:s3://b/0.tar")  # boto3 has been loaded, and a connection made
    store = open_profile(Profile.from_dict(profile | {"access_key": "a", "secret_key": "b"}), Figures())
    OpenedObject.forced = way
    began = time.monotonic()
    try:
        for number in range(tars):
            with store.open(f"lab:s3://b/{number}.tar") as source:
                assert build("nemo_tar", source, lambda _: None).records
    finally:
        OpenedObject.forced = None
        store.close()
    return (time.monotonic() - began) / tars, store.figures.bytes_read // tars


WAYS = ("hop", "stream", "windows", "chains")


def computed(data: Archive, line: link.Line, tars: int, way: str | None) -> tuple[float, int]:
    """``walk`` over a link whose time is computed."""
    with link.store(line, data.piece, data.size) as store:
        OpenedObject.forced = way
        began = line.now
        try:
            for number in range(tars):
                line.link.forget(line.now)
                line.core.forget(line.now)
                with store.open(f"lab:s3://b/{number}.tar") as source:
                    assert build("nemo_tar", source, lambda _: None).records
        finally:
            OpenedObject.forced = None
        return (line.now - began) / tars, store.figures.bytes_read // tars


def table(measure: Callable[[float, float, str | None], tuple[float, int]], size: int, rounds: int, only: str) -> bool:
    """Seconds and bytes of a tar in every cell, by each way alone and as chosen."""
    print(f"{'':20}" + "".join(f"{way:>9}" for way in (*WAYS, "chosen")) + "   chosen/best of 3   of 4    read")
    good = True
    for bandwidth in (50e6, 200e6):
        for latency in (0.001, 0.005, 0.020):
            name = f"{latency * 1000:.0f} ms, {bandwidth / 1e6:.0f} MB/s"
            if only and only not in name:
                continue
            times: dict[str, list[float]] = {way: [] for way in (*WAYS, "chosen")}
            for _ in range(rounds):
                for way, taken in times.items():
                    seconds, came = measure(latency, bandwidth, None if way == "chosen" else way)
                    taken.append(seconds)
            found = {way: statistics.median(values) for way, values in times.items()}
            of_three = found["chosen"] / min(found[way] for way in WAYS[:3])
            of_all = found["chosen"] / min(found[way] for way in WAYS)
            good = good and of_three <= 1.2
            row = "".join(f"{found[way]:8.2f}s" for way in times)
            print(f"{name:<20}{row}{of_three:16.2f}{of_all:11.2f}{came / size:8.1%}", flush=True)
    return good


def tars(count: int, members: int, core: float, only: str) -> bool:
    """All cells, in computed time; a way alone learns nothing, so one tar is as good as a hundred."""
    data = archive(members, 250_000)
    print(f"{count} tars of {members} members of 250 KB in the mean ({count * data.size / 1e9:.1f} GB), seconds a tar,")
    print(f"computed: {core * 1000:.1f} ms of one core for a request; chosen with all that is learnt on the way")
    good = True
    for shared in (True, False):
        print("the link is shared" if shared else "each connection has the bandwidth")

        def measure(latency: float, bandwidth: float, way: str | None, shared: bool = shared) -> tuple[float, int]:
            return computed(data, link.Line(latency, bandwidth, shared, core), count if way is None else 1, way)

        good = table(measure, data.size, 1, only) and good
    return good


def wire(rounds: int, count: int, members: int, only: str) -> bool:
    """The same over sockets, in time that is waited for: few tars, since a hundred take hours."""
    data = archive(members, 250_000)
    print(f"{count} tars of {members} members over sockets, the link shared; seconds a tar, {rounds} rounds")

    def measure(latency: float, bandwidth: float, way: str | None) -> tuple[float, int]:
        with elsewhere(ranges, data, latency, bandwidth, True) as url:
            return walk(url, count if way is None else 1, way)

    return table(measure, data.size, rounds, only)


def main() -> None:
    """Run what is asked for; status 1 when a figure is missed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="*", default=["manifests", "tars"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--tars", type=int, default=100, help="in computed time")
    parser.add_argument("--wire-tars", type=int, default=4, help="over sockets")
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--core", type=float, default=0.0015, help="processor seconds of a request, in computed time")
    parser.add_argument("--cell", default="", help="only cells with this in their name, such as '5 ms, 50'")
    asked = parser.parse_args()
    good = True
    if "manifests" in asked.what:
        good = manifests(asked.rounds, asked.count) and good
    if "tars" in asked.what:
        good = tars(asked.tars, asked.members, asked.core, asked.cell) and good
    if "wire" in asked.what:
        good = wire(asked.rounds, asked.wire_tars, asked.members, asked.cell) and good
    raise SystemExit(not good)


if __name__ == "__main__":
    main()
