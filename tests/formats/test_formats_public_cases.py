"""Faults that people reported in public, as small inputs: right offsets, or a refusal that names the place.

The addresses are ``owner/repository#number`` of issues and pull requests.
"""

from __future__ import annotations

import gzip
import json

import pytest
from formats_help import END, extended, failure, found, header, member, padded, pax, run

from blendex.errors import Code


def row(name: str, text: str = "hello", **more: object) -> bytes:
    return json.dumps({"audio_filepath": name, "duration": 1.5, "text": text, **more}, ensure_ascii=False).encode()


NUL = (
    row("a")
    + b"\n"
    + row("b", "he\0lo").replace(b"\\u0000", b"\0")
    + b"\n"
    + b"\0" * 64
    + b"\n"
    + row("c")
    + b"\n"
    + b"\0" * 4096
)
PRETTY = json.dumps([json.loads(row("a")), json.loads(row("b"))], indent=2).encode()
LATIN = row("a") + b"\n" + row("caf\u00e9").decode().encode("latin-1") + b"\n"


@pytest.mark.parametrize(
    "rows",
    [
        [
            row("å.wav", "smörgåsbord"),
            row("zh.wav", "你好，世界"),
            row("emoji.wav", "🎧🎙️"),
            row("nfd.wav", "e\u0301te\u0301"),
        ],
        [row("a", "one\u2028two"), row("b", "one\u2029two"), row("c", "one\u0085two"), row("d", "cr\rcr")],
        [row("a"), row("b", "x" * 1_000_000), row("c")],
        [row("a", _skipme=True), row("b", _skipme="low char. rate"), row("c", custom={"_skipme": 1})],
        [b'{"duration": NaN}', b'{"duration": Infinity}', b'{"duration": -1.0}', b'{"duration": "3.5"}'],
        [b'{"x": ' + b"[" * 50_000 + b"]" * 50_000 + b"}"],
    ],
    ids=["metaseq#728", "datalad#3523", "NeMo#2718", "NeMo#16000", "eureka-ml-insights#127", "deep nesting"],
)
def test_manifests_that_are_fine(rows: list[bytes]) -> None:
    data = b"\n".join(rows) + b"\n"
    lengths = [len(line) + 1 for line in rows]
    offsets, summary = run("jsonl", data)
    assert offsets == [sum(lengths[:i]) for i in range(len(rows) + 1)]
    assert not summary.findings


def test_blank_lines_are_told_and_skipped() -> None:
    """graphrag#2424, lhotse#1573"""
    data = row("a") + b"\n\n" + row("b") + b"\n   \n" + row("c")
    size = len(row("a"))
    assert run("jsonl", data)[0] == [0, size + 2, 2 * size + 7, 3 * size + 7]
    assert found("jsonl", data) == {"blank_line": (2, size + 1, 1), "no_final_newline": (1, 2 * size + 7, 4)}


@pytest.mark.parametrize(
    ("data", "finding", "place"),
    [
        (PRETTY, "not_an_object", (12, 0, 0)),  # NVIDIA-NeMo/Speech#14287
        (NUL, "nul_byte", (1 + 64 + 4096, NUL.index(0), 1)),  # a hole after a crash
        (b'null\n[]\n"text"\n1\n{}\n', "not_an_object", (4, 0, 0)),
        (LATIN, "not_utf8", (1, LATIN.index(0xE9), 1)),  # ultrajson#691
    ],
    ids=["array", "NUL", "not objects", "latin-1"],
)
def test_manifests_that_are_refused(data: bytes, finding: str, place: tuple[int, int, int]) -> None:
    assert found("jsonl", data)[finding] == place


W = b"x" * 444
J = b'{"x": 1}'
SPARSE = {
    "GNU.sparse.major": "1",
    "GNU.sparse.minor": "0",
    "GNU.sparse.name": "h.wav",
    "GNU.sparse.realsize": "4096",
}
FRAGMENTS = member("GNUSparseFile.0/h.wav", padded(b"2\n0\n512\n3584\n512\n") + b"A" * 1024)
OLD_SPARSE = {386: b"%011o\0%011o\0" % (0, 512), 410: b"%011o\0%011o\0" % (3584, 512), 483: b"%011o\0" % 4096}
PREFIX = b"very/long/folder/" + b"d" * 100
FOLDERS = header(b"data/", kind=b"5"), header(b"data/s/", kind=b"5")
STRAYS = FOLDERS[0] + member("data/a.wav", W) + member("data/README", b"hi")
STRAYS += FOLDERS[1] + member("data/s/b.wav", W) + member("data/.DS_Store", b"\0\1") + END
NEIGHBOURS = b"".join(member(name, W) for name in ("x/a.wav", "y/a.wav", "b.wav", "b.flac", "c.wav")) + END
DOTTED = [stem + end for stem in ("235342 Track 2.0 (Clean)", "v1.2/a", "v1.2/b.c") for end in (".json", ".mp3")]

CASES: dict[str, tuple[bytes, list[int], set[str]]] = {
    "webdataset#140": (
        b"".join(member(n, W) for n in ("a.wav", "b.wav", "a.json", "b.json")) + END,
        [0, 1024, 2048, 3072, 5120],
        set(),
    ),
    "webdataset#237": (b"".join(member(n, W) for n in DOTTED) + END, [0, 2048, 4096, 7168], {"stem_group"}),
    "webdataset#428": (STRAYS, [512, 1536, 3072, 4096, 6144], set()),
    "ratarmount#156": (
        pax(**SPARSE) + FRAGMENTS + member("next.wav", W) + END,
        [0, 3072, 5120],
        {"sparse_member"},
    ),
    "cpython#83869": (
        header(b"o.wav", 1024, b"S", patches=OLD_SPARSE) + b"A" * 1024 + member("next.wav", W) + END,
        [0, 1536, 3584],
        {"sparse_member"},
    ),
    "cpython#153636": (
        pax(size="444") + header(b"a.wav") + padded(W) + member("b.wav", W) + END,
        [0, 2048, 4096],
        {"pax_size"},
    ),
    "mpifileutils#443": (member("a.wav", W) + END + member("b.wav", W) + END, [0, 4096], {"data_after_end"}),
    "midgard#99": (
        member("a.wav", W) + END + b"#!/bin/sh\necho trailing text\n",
        [0, 2077],
        {"data_after_end"},
    ),
    "nanotar#75": (
        member("a.wav", W, patches={345: PREFIX}) + member("a.wav", W, patches={345: PREFIX + b"2"}) + END,
        [0, 3072],
        {"merged_directories"},
    ),
    "lean-zip#1871": (
        member(b"a.wav\0evil.wav", W) + member("b.wav", W) + END,
        [0, 1024, 3072],
        {"nul_in_name"},
    ),
    "NVIDIA-NeMo/Speech#15410": (NEIGHBOURS, [0, 2048, 4096, 6144], {"merged_directories", "stem_group"}),
    "empty members": (
        member("e.wav") + member("a.wav", W) + member("f.wav") + END,
        [0, 512, 1536, 3072],
        {"empty_member"},
    ),
    "empty archive": (END, [1024], {"empty_archive"}),
    "dotnet/runtime#75902": (
        member("café.wav".encode("latin-1"), W) + member("cafe\u0301.wav", W) + END,
        [0, 1024, 3072],
        set(),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_nemo_tars(name: str) -> None:
    data, offsets, findings = CASES[name]
    assert run("nemo_tar", data)[0] == offsets
    assert set(found("nemo_tar", data)) == findings


def test_pairs() -> None:
    assert found("wds_tar", CASES["webdataset#140"][0]) == {"mispaired": (2, 0, 0)}
    assert found("wds_tar", STRAYS)["not_regular"] == (2, 0, 0)
    first = member("a.json", J) + member("a.wav", W) + member("b.json", J) + member("b.wav", W) + END
    assert run("wds_tar", first)[0] == [0, 2048, 5120]
    assert found("wds_tar", first) == {"metadata_first": (2, 0, 0)}
    lone = member("u0.wav", W) + member("u0.json", J) + member("u1.wav", W) + END
    error = failure("wds_tar", lone)  # lhotse#1570
    assert (error.code, error.byte) == (Code.TAR_ODD_MEMBERS, 2048)


@pytest.mark.parametrize(
    ("data", "code", "byte"),
    [
        (pax(**SPARSE, size="1536") + FRAGMENTS + member("next.wav", W) + END, Code.TAR_BAD_HEADER, 1024),
        (pax(**{"GNU.sparse.size": "x"}) + member("a.wav", W) + END, Code.TAR_BAD_HEADER, 0),
        (extended(b"0 path=a.wav\n") + member("a.wav", W) + END, Code.TAR_BAD_HEADER, 0),
        (extended(b"9999 path=a.wav\n") + member("a.wav", W) + END, Code.TAR_BAD_HEADER, 0),
        (pax(size="abc") + member("a.wav", W) + END, Code.TAR_BAD_HEADER, 0),
        (gzip.compress(member("a.wav", W) + END), Code.PATH_COMPRESSED, 0),
        (b"<!DOCTYPE html><html><body>403 Forbidden</body></html>\n" * 12, Code.TAR_BAD_HEADER, 0),
        (pax(b"g", comment="nothing here") + END, Code.TAR_BAD_HEADER, 0),
        (b"", Code.TAR_EMPTY, 0),
    ],
    ids=[
        "cpython#136602",
        "cpython#153636",
        "bpo-39017",
        "bounds",
        "size",
        "gzip",
        "html",
        "cpython#149578",
        "empty",
    ],
)
def test_tars_that_are_refused(data: bytes, code: Code, byte: int) -> None:
    for kind in ("nemo_tar", "wds_tar"):
        error = failure(kind, data)
        assert (error.code, error.byte) == (code, byte)
