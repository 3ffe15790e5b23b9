"""Object stores at emulated distances: batches beside individual GETs, and the ways through a tar beside the choice.

    PYTHONPATH=. .venv/bin/python benchmarks/stores.py [manifests] [tars] [wire] [--rounds 3] [--count 5000]
        [--tars 100] [--wire-tars 8] [--slower 6] [--cell '5 ms, 50']

``manifests`` and ``wire``: servers run in processes of their own and wait before each answer (latency) and while they
send (bandwidth); times are medians of alternating rounds and are compared within this run. ``tars``: a hundred tars of
a thousand members by every way are 25 GB each, hours of waiting; the product's code reads them over a link whose time
is computed (``link``), so that all of it is seen, and the same on every machine. ``wire`` reads fewer over a line that
is shaped (``shaped``), and shows what the computed time leaves out. Tars are made as they are sent.
"""

from __future__ import annotations

import argparse
import bisect
import itertools
import os
import random
import statistics
import tarfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from benchmarks import link
from benchmarks.shaped import core_waits, elsewhere, ranges
from blendex.errors import BlendexError
from blendex.formats.kinds import build
from blendex.storage import batch
from blendex.storage.endpoints import open_profile
from blendex.storage.interface import Figures
from blendex.storage.profiles import Profile
from blendex.storage.reader import FLIGHT, OpenedObject
from tests.support import aistore

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
        with elsewhere(cluster, count, size, latency, None) as (url, _):
            times["one by one"].append(read(url, count, mode="individual", parallel=1)[0])
            times["16 at a time"].append(read(url, count, mode="individual")[0])
            seconds, figures = read(url, count, mode="batch")
            times["batch"].append(seconds)
        with elsewhere(cluster, count, size, latency, count // 512) as (url, _):
            times["batch dies"].append(read(url, count, mode="batch")[0])
        print("  " + ", ".join(f"{name} {values[-1]:.2f} s" for name, values in times.items()), flush=True)
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


WAYS = ("hop", "stream", "windows", "lookahead")


class Taken(NamedTuple):
    """What one tar took, over so many of them: seconds, bytes read, seconds in which threads waited for a core."""

    seconds: float
    read: int
    waits: float = 0.0


def limit(data: Archive, latency: float, bandwidth: float, shared: bool) -> float:
    """The least that hops, one stream or windows can take by the line alone: waits, or bytes, one after the other."""
    streams = 1 if shared else FLIGHT
    return min(len(data.places) * latency, data.size / bandwidth / streams)


def walk(url: str, server: int, tars: int, way: str | None) -> Taken:
    """Tars over sockets; nothing is known of the endpoint before the first."""
    profile = {"name": "lab", "kind": "s3", "endpoint": url, "buckets": ["*"], "addressing": "path"}
    store = open_profile(Profile.from_dict(profile | {"access_key": "a", "secret_key": "b"}), Figures())
    store.stat("lab:s3://b/0.tar")  # boto3 has been loaded, and a connection made
    store = open_profile(Profile.from_dict(profile | {"access_key": "a", "secret_key": "b"}), Figures())
    OpenedObject.forced = way
    waited = core_waits(os.getpid(), server)
    began = time.monotonic()
    try:
        for number in range(tars):
            with store.open(f"lab:s3://b/{number}.tar") as source:
                assert build("nemo_tar", source, lambda _: None).records
        seconds = time.monotonic() - began
        waited = core_waits(os.getpid(), server) - waited  # before the threads of the store end
    finally:
        OpenedObject.forced = None
        store.close()
    return Taken(seconds / tars, store.figures.bytes_read // tars, waited / tars)


def computed(data: Archive, line: link.Line, tars: int, way: str | None) -> Taken:
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
        return Taken((line.now - began) / tars, store.figures.bytes_read // tars)


Measure = Callable[[float, float, str | None], Taken]


def cell(measure: Measure, latency: float, bandwidth: float, rounds: int) -> dict[str, Taken]:
    """Medians of alternating rounds, by each way alone and as chosen."""
    taken: dict[str, list[Taken]] = {way: [] for way in (*WAYS, "chosen")}
    for _ in range(rounds):
        for way, values in taken.items():
            values.append(measure(latency, bandwidth, None if way == "chosen" else way))
    return {
        way: Taken(
            statistics.median(value.seconds for value in values),
            values[-1].read,
            statistics.median(value.waits for value in values),
        )
        for way, values in taken.items()
    }


def of_three(found: dict[str, Taken]) -> float:
    """What the choice takes beside the best of hop, stream and windows."""
    return found["chosen"].seconds / min(found[way].seconds for way in WAYS[:3])


def table(
    measure: Measure, data: Archive, shared: bool, rounds: int, only: str, slower: float = 1.0,
    beside: Measure | None = None,
) -> bool:  # fmt: skip
    """Seconds and bytes of a tar in every cell.

    Args:
        measure: one tar by a way, at a latency and a bandwidth.
        data: the tar.
        shared: whether the bandwidth is that of all connections.
        rounds: of which the medians are taken.
        only: cells with this in their name.
        slower: so many times, in latency and bandwidth: what the processor adds counts for less.
        beside: what else the same cells are measured by, once.
    """
    more = "  computed  core waits" if beside else ""
    ways = "".join(f"{way:>9}" for way in ("limit", *WAYS, "chosen"))
    print(f"{'':20}{ways}   chosen/best of 3   of 4    read{more}")
    good = True
    for bandwidth in (50e6, 200e6):
        for latency in (0.001, 0.005, 0.020):
            name = f"{latency * 1000:.0f} ms, {bandwidth / 1e6:.0f} MB/s"
            if only and only not in name:
                continue
            line = latency * slower, bandwidth / slower
            found = cell(measure, *line, rounds)
            chosen = found["chosen"]
            of_all = chosen.seconds / min(found[way].seconds for way in WAYS)
            good = good and of_three(found) <= 1.2
            row = f"{limit(data, *line, shared):8.2f}s"
            row += "".join(f"{value.seconds:8.2f}s" for value in found.values())
            row += f"{of_three(found):16.2f}{of_all:11.2f}{chosen.read / data.size:8.1%}"
            if beside:
                row += f"{of_three(cell(beside, *line, 1)):10.2f}{chosen.waits / chosen.seconds:12.0%}"
            print(f"{name:<20}{row}", flush=True)
    return good


KINDS = {True: "the link is shared", False: "each connection has the bandwidth"}


def over_link(data: Archive, shared: bool, count: int, core: float) -> Measure:
    """Measured in computed time; a way alone learns nothing, so one tar is as good as a hundred."""

    def measure(latency: float, bandwidth: float, way: str | None) -> Taken:
        return computed(data, link.Line(latency, bandwidth, shared, core), count if way is None else 1, way)

    return measure


def tars(count: int, members: int, core: float, only: str) -> bool:
    """All cells, in computed time."""
    data = archive(members, 250_000)
    print(f"{count} tars of {members} members of 250 KB in the mean ({count * data.size / 1e9:.1f} GB), seconds a tar,")
    print(f"computed: {core * 1000:.1f} ms of one core for a request; chosen with all that is learnt on the way")
    good = True
    for shared, kind in KINDS.items():
        print(kind)
        good = table(over_link(data, shared, count, core), data, shared, 1, only) and good
    return good


def wire(rounds: int, count: int, members: int, core: float, only: str, slower: float) -> bool:
    """The same over sockets, in time that is waited for: few tars, since a hundred take hours."""
    data = archive(members, 250_000)
    print(f"{count} tars of {members} members over sockets, a way alone over one; seconds a tar, {rounds} rounds;")
    print("beside them the ratio in computed time, and how long threads waited for a core while the choice read,")
    print("all together, in parts of its time: much of it, and the processor was the bottleneck and not the line")
    if slower != 1:
        print(f"in slow motion: latencies {slower:g} times, bandwidths 1/{slower:g} of what cells are called by")
    good = True
    for shared, kind in KINDS.items():
        print(kind)

        def measure(latency: float, bandwidth: float, way: str | None, shared: bool = shared) -> Taken:
            with elsewhere(ranges, data.piece, data.size, latency, bandwidth, shared) as (url, server):
                return walk(url, server, count if way is None else 1, way)

        good = table(measure, data, shared, rounds, only, slower, over_link(data, shared, count, core)) and good
    return good


def main() -> None:
    """Run what is asked for; status 1 when a figure is missed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="*", default=["manifests", "tars"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--tars", type=int, default=100, help="in computed time")
    parser.add_argument("--wire-tars", type=int, default=8, help="over sockets")
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--core", type=float, default=0.0015, help="processor seconds of a request, in computed time")
    parser.add_argument("--slower", type=float, default=1.0, help="over sockets: slow motion, for busy machines")
    parser.add_argument("--cell", default="", help="only cells with this in their name, such as '5 ms, 50'")
    asked = parser.parse_args()
    good = True
    if "manifests" in asked.what:
        good = manifests(asked.rounds, asked.count) and good
    if "tars" in asked.what:
        good = tars(asked.tars, asked.members, asked.core, asked.cell) and good
    if "wire" in asked.what:
        good = wire(asked.rounds, asked.wire_tars, asked.members, asked.core, asked.cell, asked.slower) and good
    raise SystemExit(not good)


if __name__ == "__main__":
    main()
