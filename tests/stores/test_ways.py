"""Ways through a tar: each brings the same index, and the one that is chosen is about as quick as the quickest.

Time is computed (``benchmarks/link.py``): nothing here waits, and figures are the same on every machine.
"""

from __future__ import annotations

import io
import random
import tarfile
from dataclasses import dataclass
from typing import Any

import pytest

from benchmarks import link
from benchmarks.stores import archive, computed
from blendex.errors import BlendexError
from blendex.formats.kinds import build
from blendex.formats.tarheader import BLOCK, first_header, to_next
from blendex.storage.meter import LATENCY, Meter
from blendex.storage.reader import OpenedObject
from tests.support.corpus import manifest, tar

WAYS = ["hop", "stream", "windows", "lookahead", None]


@dataclass
class InMemory:
    """A source as builders read it."""

    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)

    def pread(self, length: int, offset: int) -> bytes:
        return self.data[offset : offset + length]

    def pread_into(self, buffer: memoryview, offset: int) -> int:
        part = self.data[offset : offset + len(buffer)]
        buffer[: len(part)] = part
        return len(part)


def mixed(form: int, members: int = 160) -> bytes:
    """Members of many sizes and types, some with long names, some that are tars themselves."""
    chance = random.Random(form)
    inner = tar([f"{number}.wav" for number in range(30)], 3000)
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=form) as made:
        for number in range(members):
            info = tarfile.TarInfo(f"{number:05}" + ("x" * 120 if number % 17 == 0 else "") + ".wav")
            data = inner if number % 5 == 0 else chance.randbytes(chance.randrange(120_000))
            if number % 29 == 0:
                info.type, data = tarfile.DIRTYPE, b""
            info.size = len(data)
            made.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def read(data: bytes, way: str | None, monkeypatch: pytest.MonkeyPatch, tars: int = 1) -> tuple[Any, link.Line, Any]:
    line = link.Line(0.005, 50e6, True, 0.0)
    monkeypatch.setattr(OpenedObject, "forced", way)
    written: list[bytes] = []
    with link.store(line, lambda start, stop: data[start:stop], len(data)) as store:
        for number in range(tars):
            written.clear()
            with store.open(f"lab:s3://b/{number}") as source:
                summary = build("nemo_tar", source, lambda part: written.append(bytes(part)))
    return (summary.content_hash, b"".join(written)), line, store.figures


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_way_brings_the_same_index(form: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if form == tarfile.USTAR_FORMAT:
        data = archive(120, 60_000)
        whole = bytes(data.piece(0, data.size))
    else:
        whole = mixed(form)
    written: list[bytes] = []
    summary = build("nemo_tar", InMemory(whole), lambda part: written.append(bytes(part)))
    for way in WAYS:
        assert read(whole, way, monkeypatch)[0] == (summary.content_hash, b"".join(written)), way


def test_walks_read_little(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = mixed(tarfile.GNU_FORMAT)
    _, hops, alone = read(whole, "hop", monkeypatch)
    _, ahead, figures = read(whole, "lookahead", monkeypatch)
    assert ahead.now < 0.8 * hops.now
    assert figures.bytes_read < 0.7 * len(whole)
    assert figures.requests < 2 * alone.requests


def test_an_archive_that_no_walk_can_follow_is_read_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = bytearray(mixed(tarfile.GNU_FORMAT))
    at = 0
    while at + BLOCK <= len(whole) and (step := to_next(bytes(whole[at : at + BLOCK]))) is not None:
        header = whole[at : at + BLOCK]
        header[257:265] = bytes(8)  # as archives were before ustar
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)
        whole[at : at + BLOCK] = header
        at += step
    right = build("nemo_tar", InMemory(bytes(whole)), lambda _: None)
    found, _, figures = read(bytes(whole), "lookahead", monkeypatch)
    assert found[0] == right.content_hash
    assert figures.bytes_read < 2 * len(whole)


def test_a_store_that_fails_in_a_walk_fails_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = mixed(tarfile.GNU_FORMAT)
    line = link.Line(0.005, 50e6, True, 0.0)
    monkeypatch.setattr(OpenedObject, "forced", "lookahead")
    with link.store(line, lambda start, stop: whole[start:stop], len(whole)) as store:
        get = store.endpoint.driver.get

        def changed(place: Any, start: int, stop: int | None, expect: Any) -> Any:
            body = get(place, start, stop, expect)
            body.total += start > len(whole) // 2
            return body

        monkeypatch.setattr(store.endpoint.driver, "get", changed)
        with store.open("lab:s3://b/a") as source, pytest.raises(BlendexError) as caught:
            build("nemo_tar", source, lambda _: None)
    assert "changed" in caught.value.message


def test_an_endpoint_that_ignores_ranges_is_read_in_one_body(monkeypatch: pytest.MonkeyPatch) -> None:
    data = archive(150, 60_000)
    whole = bytes(data.piece(0, data.size))
    line = link.Line(0.005, 50e6, True, 0.0)
    with link.store(line, lambda start, stop: whole[start:stop], len(whole)) as store:
        get = store.endpoint.driver.get
        monkeypatch.setattr(store.endpoint.driver, "get", lambda place, *_: get(place, 0, None, None))
        for number in range(3):
            with store.open(f"lab:s3://b/{number}") as source:
                assert build("nemo_tar", source, lambda _: None).records == 150
    assert store.figures.bytes_read < 3 * 2 * len(whole)


@pytest.mark.parametrize(
    ("latency", "bandwidth", "shared"), [(0.001, 200e6, True), (0.005, 50e6, True), (0.020, 200e6, False)]
)
def test_the_choice_is_about_as_quick_as_the_quickest(latency: float, bandwidth: float, shared: bool) -> None:
    data = archive(150, 250_000)

    def seconds(way: str | None, tars: int) -> float:
        return computed(data, link.Line(latency, bandwidth, shared, 0.0015), tars, way)[0]

    best = min(seconds(way, 1) for way in ("hop", "stream", "windows"))
    assert seconds(None, 12) <= 1.2 * best


def test_what_was_measured_before_is_used_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OpenedObject, "forced", None)
    meter = Meter({"latency": 0.02, "stream": 1e8, "together": 0.0, "lookahead": 0.003})
    assert (meter.latency, meter.stream, meter.streamed_once, meter.together) == (0.02, 1e8, True, 0.0)
    assert meter.as_dict() == {"latency": 0.02, "stream": 1e8, "together": 0.0, "lookahead": 0.003}


def test_one_slow_answer_is_no_latency() -> None:
    meter = Meter()
    assert meter.latency == LATENCY
    assert meter.as_dict()["latency"] == 0.0
    for seconds in (3.0, 0.02, 0.021, 0.019, 0.02):
        meter.answered(seconds)
    assert meter.latency == 0.02


def test_a_way_that_is_passed_over_is_tried_again_and_then_known() -> None:
    meter = Meter({"lookahead": 0.010})
    for _ in range(500):
        meter.passed("lookahead")
    assert meter.lookahead < 0.001
    meter.hopped(100, 1.2)
    assert meter.lookahead == pytest.approx(0.012)


def test_headers_are_known_by_their_look() -> None:
    data = tar(["a.wav", "b.wav"], 700)
    assert to_next(data) == 512 + 1024
    assert to_next(bytes(BLOCK)) is None
    assert to_next(data[:100]) is None
    assert first_header(b"x" * 1024 + data) == 1024
    assert first_header(b"x" * 100) is None
    assert first_header(manifest(200)) is None
    broken = bytearray(data)
    broken[0] ^= 1  # the checksum is wrong now
    assert first_header(bytes(broken)) == 512 + 1024
