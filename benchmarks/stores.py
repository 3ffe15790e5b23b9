"""Object stores at emulated distances: batches beside individual GETs, and the ways through a tar beside the choice.

    .venv/bin/python benchmarks/stores.py [manifests] [tars] [--rounds 3] [--count 5000]

Servers run in processes of their own and wait before each answer (latency) and while they send (bandwidth of one
connection). Times are medians of alternating rounds and are compared within this run; the physical limit is printed.
"""

from __future__ import annotations

import argparse
import io
import multiprocessing
import statistics
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from typing import Any

from blendex.errors import BlendexError
from blendex.formats.kinds import build
from blendex.storage import batch
from blendex.storage.interface import Figures
from blendex.storage.profiles import Profile
from blendex.storage.reader import OpenedObject
from blendex.storage.stores import open_profile
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


def tar_of(members: int, size: int) -> bytes:
    stream = io.BytesIO()
    block = bytes(size + -size % 512)
    for number in range(members):
        info = tarfile.TarInfo(f"{number:06}.wav")
        info.size = size
        stream.write(info.tobuf(tarfile.USTAR_FORMAT) + block)
    return stream.getvalue() + bytes(1024)


def ranges(pipe: Connection, data: bytes, latency: float, bandwidth: float) -> None:
    """A server that answers like S3, every key the same object."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            time.sleep(latency)
            start, stop, status = 0, len(data), 200
            if asked := self.headers.get("Range"):
                first, _, last = asked.removeprefix("bytes=").partition("-")
                start, stop, status = int(first), min(int(last) + 1 if last else len(data), len(data)), 206
            self.send_response(status)
            self.send_header("ETag", '"one"')
            self.send_header("Last-Modified", "Sat, 01 Nov 2025 00:00:00 GMT")
            self.send_header("Content-Length", str(stop - start))
            if status == 206:
                self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}")
            self.end_headers()
            if self.command == "HEAD":
                return
            view, began, piece = memoryview(data)[start:stop], time.monotonic(), 64 * 1024
            try:
                for at in range(0, len(view), piece):
                    self.wfile.write(view[at : at + piece])
                    ahead = (at + piece) / bandwidth - (time.monotonic() - began)
                    if ahead > 0.0005:
                        time.sleep(ahead)
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
    profile = {"name": "lab", "kind": "s3", "endpoint": url, "buckets": ["*"], "addressing": "path"}
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
    return time.monotonic() - began, store.figures.bytes_read


def tars(rounds: int, count: int, members: int) -> bool:
    size = 250_000
    data = tar_of(members, size)
    print(f"{count} tars of {members} members of {size // 1000} KB ({count * len(data) / 1e6:.0f} MB)")
    print(f"{'':22}{'hop':>9}{'stream':>9}{'windows':>9}{'chosen':>9}   chosen/best   read")
    good = True
    for bandwidth in (50e6, 200e6):
        for latency in (0.001, 0.005, 0.020):
            times: dict[str, list[float]] = {"hop": [], "stream": [], "windows": [], "chosen": []}
            read_bytes = 0
            with elsewhere(ranges, data, latency, bandwidth) as url:
                for _ in range(rounds):
                    for way, taken in times.items():
                        seconds, came = walk(url, count, None if way == "chosen" else way)
                        taken.append(seconds)
                        read_bytes = came if way == "chosen" else read_bytes
            found = {way: statistics.median(values) for way, values in times.items()}
            ratio = found["chosen"] / min(found[way] for way in ("hop", "stream", "windows"))
            good = good and ratio <= 1.2
            row = "".join(f"{found[way]:8.2f}s" for way in times)
            share = read_bytes / (count * len(data))
            print(f"{latency * 1000:4.0f} ms, {bandwidth / 1e6:4.0f} MB/s    {row}{ratio:11.2f}   {share:7.1%}")
    return good


def main() -> None:
    """Run what is asked for; status 1 when a figure is missed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="*", default=["manifests", "tars"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--tars", type=int, default=4)
    parser.add_argument("--members", type=int, default=400)
    asked = parser.parse_args()
    good = True
    if "manifests" in asked.what:
        good = manifests(asked.rounds, asked.count) and good
    if "tars" in asked.what:
        good = tars(asked.rounds, asked.tars, asked.members) and good
    raise SystemExit(not good)


if __name__ == "__main__":
    main()
