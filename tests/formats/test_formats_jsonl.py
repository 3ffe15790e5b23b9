"""Manifests: any bytes in any chunks against a naive reading, findings, and flat memory."""

from __future__ import annotations

import random
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from blake3 import blake3
from formats_help import Memory, failure, found, run, unpack
from hypothesis import example, given, settings
from hypothesis import strategies as st

from blendex.errors import BlendexError, Code
from blendex.formats.findings import FINDINGS, Finding
from blendex.formats.jsonl import HEAD, build_jsonl
from blendex.formats.kinds import Summary
from blendex.formats.text import newlines, solid_edges

TOKENS = [
    *(
        b"{",
        b"}",
        b'{"a":1}',
        b'{"a":1}\n',
        b"\n",
        b"\r\n",
        b" ",
        b"\t",
        b"\r",
        b"x",
        b"\0",
        b"   ",
        b"\n\n\n",
    ),
    *(b"\xe9", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xf0\x9f", b"\xf4\x90\x80\x80", b"\xc0\x80", b"\x80"),
    *(text.encode() for text in ("é", "中", "\U0001f600", "\u2028", "\x85")),
]


def naive(data: bytes, upstream: bool) -> tuple[list[int], set[Finding]]:
    """Offsets and findings, line by line."""
    offsets: list[int] = []
    hits: dict[str, list[tuple[int, int]]] = {}
    at = 0
    lines = data.split(b"\n")
    for number, line in enumerate(lines):
        last = number == len(lines) - 1
        if last and not line:
            break
        judged = line[3:] if number == 0 and data.startswith(b"\xef\xbb\xbf") else line
        solid = judged.strip(b" \t\r")
        if solid or upstream:
            offsets.append(at)
        if not solid:
            hits.setdefault("blank_record" if upstream else "blank_line", []).append((at, number))
        elif solid[:1] != b"{" or (solid[-1:] != b"}" and not last):
            hits.setdefault("not_an_object", []).append((at, number))
        if last and solid:
            hits["no_final_newline" if solid[-1:] == b"}" else "half_line"] = [(at, number)]
        if line.endswith(b"\r") and not last:
            hits.setdefault("crlf", []).append((at + len(line) - 1, number))
        at += len(line) + 1
    if offsets:
        offsets[0] = 0
    if data.startswith(b"\xef\xbb\xbf"):
        hits["bom"] = [(0, 0)]
    nuls = [place for place, byte in enumerate(data) if byte == 0]
    if nuls:
        hits["nul_byte"] = [(place, data.count(b"\n", 0, place)) for place in nuls]
    try:
        data.decode()
    except UnicodeDecodeError as error:
        count = sum("\udc80" <= char <= "\udcff" for char in data.decode("utf-8", "surrogateescape"))
        hits["not_utf8"] = [(error.start, data.count(b"\n", 0, error.start))] * count
    findings = {Finding(name, len(places), *places[0]) for name, places in hits.items()}
    return [*offsets, len(data)], findings


def scan(data: bytes, upstream: bool, chunk: int, seed: int = 0) -> tuple[list[int], Summary]:
    out = bytearray()
    summary = build_jsonl(Memory(data, short=random.Random(seed)), out.extend, upstream, chunk=chunk)
    return unpack(bytes(out)), summary


@settings(max_examples=1200, deadline=None)
@given(
    tokens=st.lists(st.sampled_from(TOKENS), max_size=60),
    upstream=st.booleans(),
    chunk=st.sampled_from([8, 9, 13, 64, 128, 200]),
)
@example(tokens=[b"\xef\xbb\xbf", b"\n", b"{}"], upstream=False, chunk=8)
@example(tokens=[b"{}\n   ", b"\xf0\x9f", b"{}\n{}\n{}\n{}\n{}\n", "é".encode()], upstream=False, chunk=8)
@example(tokens=[b"{}\r", b"\n" * 8], upstream=False, chunk=8)
@example(tokens=[b"{}\n", b" " * 50, b"{}", b" " * 50, b"\n{}"], upstream=False, chunk=128)
def test_any_bytes_in_any_chunks(tokens: list[bytes], upstream: bool, chunk: int) -> None:
    data = b"".join(tokens)
    offsets, summary = scan(data, upstream, chunk, len(tokens))
    expected, findings = naive(data, upstream)
    assert offsets == expected
    assert set(summary.findings) == findings
    assert summary.content_hash == blake3(data).hexdigest()
    assert summary.facts == {"lines": data.count(b"\n") + (data[-1:] not in (b"\n", b""))}


@settings(max_examples=150, deadline=None)
@given(data=st.binary(max_size=400), chunk=st.integers(8, 300))
def test_binary(data: bytes, chunk: int) -> None:
    offsets, summary = scan(b"{" + data, False, chunk)  # so that it is never some compressor's magic
    assert (offsets, set(summary.findings)) == naive(b"{" + data, False)


@pytest.mark.parametrize("length", [3, 40, 120, 300, 3000, 20000])
def test_lines_of_any_length(length: int) -> None:
    pick = random.Random(length)
    lines = (b'{"t": "' + b"x" * pick.randrange(length) + b'"}\n' for _ in range(600_000 // length + 3))
    data = b"".join(lines)
    for chunk in (4096, 65536, 65537):
        offsets, summary = scan(data, False, chunk)
        assert offsets == naive(data, False)[0]
        assert not summary.findings


@pytest.mark.parametrize("mean", [0.0, 10.0, 300.0, 1e6])
@pytest.mark.parametrize("gap", [1, 5, 63, 64, 65, 900])
def test_newlines_are_found_by_every_search(mean: float, gap: int) -> None:
    for length in (gap * 7, 4096, 4099):
        buffer = bytearray(b"." * (HEAD + length))
        buffer[HEAD::gap] = b"\n" * len(range(HEAD, HEAD + length, gap))
        data = np.frombuffer(buffer, np.uint8)[HEAD:]
        got = newlines(buffer, data, HEAD, np.empty(length, np.bool_), mean)
        assert got.tolist() == list(range(0, length, gap))


def test_edges_of_lines() -> None:
    lines = [b"", b"{}", b" {}", b"        {} \t\r", b"     ", b"a\rb", b" \r \t \r a"]
    data = np.frombuffer(b"\n" + b"\n".join(lines) + b"\n", np.uint8)
    ends = np.flatnonzero(data == 0x0A)
    first, last = solid_edges(data, ends[:-1] + 1, ends[1:])
    for line, start, end, a, b in zip(lines, ends[:-1] + 1, ends[1:], first, last, strict=True):
        solid = line.strip(b" \t\r")
        at = start + line.index(solid) if solid else end
        assert (a, b) == (at, at + len(solid) - 1 if solid else start - 1)


@pytest.mark.parametrize(
    ("name", "data", "place"),
    [
        ("blank_line", b'{"a": 1}\n\n{"b": 2}\n \t\n', (2, 9, 1)),
        ("bom", b"\xef\xbb\xbf{}\n", (1, 0, 0)),
        ("crlf", b"{}\n{}\r\n{}\r\n", (2, 5, 1)),
        ("nul_byte", b'{}\n{"a": "\0\0"}\n', (2, 10, 1)),
        ("not_utf8", b'{}\n{"a": "\xe9"}\n', (1, 10, 1)),
        ("not_an_object", b"{}\nnull\n[]\n", (2, 3, 1)),
        ("half_line", b'{}\n{"a": "b', (1, 3, 1)),
        ("no_final_newline", b"{}\n{}", (1, 3, 1)),
    ],
)
def test_each_finding(name: str, data: bytes, place: tuple[int, int, int]) -> None:
    assert found("jsonl", data) == {name: place}
    assert found("jsonl", b"{}\n") == {}


def test_blank_records_of_upstream() -> None:
    assert found("jsonl", b"\n{}\n", "upstream") == {"blank_record": (1, 0, 0)}
    assert run("jsonl", b"\n{}\n", "upstream")[0] == [0, 1, 4]
    assert run("jsonl", b"\n{}\n")[0] == [0, 4]


def test_every_class_says_what_to_do() -> None:
    assert all(entry.effect and entry.remedy for entry in FINDINGS.values())


@pytest.mark.parametrize("magic", [b"\x1f\x8b\x08", b"BZh9", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"])
def test_compressed_content(magic: bytes) -> None:
    for kind in ("jsonl", "nemo_tar", "wds_tar"):
        for length in (10, 2000):
            assert failure(kind, magic + b"x" * length).code is Code.PATH_COMPRESSED


@pytest.mark.parametrize("claimed", [-7, 5])
def test_a_source_that_changes_is_refused(claimed: int) -> None:
    data = b'{"a": 1}\n' * 100
    with pytest.raises(BlendexError) as caught:
        build_jsonl(Memory(data, len(data) + claimed), lambda _: None, False)
    assert caught.value.code is Code.SOURCE_CHANGED
    assert caught.value.byte == min(len(data), len(data) + claimed)


MIB = 1 << 20
PATHOLOGICAL = {
    "no newline": b"x" * 16 * MIB,
    "blank lines": b"\n" * 8 * MIB,
    "lines of spaces": b"          \n" * (MIB // 2),
    "one line of spaces": b" " * 16 * MIB,
    "indented": b'          {"a": 1}\n' * (MIB // 2),
    "latin-1": b'{"a": "\xe9\xe8"}\n' * MIB,
    "crlf": b'{"a": "1"}\r\n' * MIB,
    "NUL": b"\0" * 16 * MIB,
    "short": b"{}\n" * 4 * MIB,
}


@pytest.mark.parametrize("name", PATHOLOGICAL)
def test_pathological_manifests_stay_fast(name: str) -> None:
    """Less than five empty loops over the bytes take, then and there: no Python object per line or byte."""
    data = PATHOLOGICAL[name]

    def loop() -> float:
        start = time.process_time()
        for _ in range(len(data)):
            pass
        return time.process_time() - start

    before = loop()
    start = time.process_time()
    build_jsonl(Memory(data), lambda _: None, False)
    assert time.process_time() - start < 5 * max(before, loop())


def test_memory_is_flat() -> None:
    """The peak of a process that indexes 1.5 GB is what it is after importing, plus its buffers."""
    code = """
        from pathlib import Path
        from blendex.formats.kinds import build

        class Endless:
            size = 1500 << 20
            row = b'{"audio_filepath": "a.wav", "duration": 1.0, "text": "t"}\\n'
            rows = memoryview(row * 13000)
            def pread(self, length, offset):
                return b""
            def pread_into(self, buffer, offset):
                count = min(len(buffer), self.size - offset)
                start = offset % len(self.row)
                buffer[:count] = self.rows[start:start + count]
                return count

        def peak():  # not ru_maxrss: a child inherits that of the process that started it
            status = Path("/proc/self/status").read_text()
            return int(status.partition("VmHWM:")[2].split()[0])

        before = peak()
        summary = build("jsonl", Endless(), lambda part: None)
        after = peak()
        assert summary.records > 26_000_000, summary
        print(before, after)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True, timeout=60
    )
    before, after = map(int, done.stdout.split())
    assert after < 64 << 10  # KiB
    assert after - before < 12 << 10
