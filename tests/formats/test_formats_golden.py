"""Sidecars against those that upstream wrote for the same sources (tests/data/golden/record.py)."""

from __future__ import annotations

import hashlib

import pytest
from formats_help import EXPECTED, failure, gen, run

from blendex.errors import Code

SOURCES = dict(gen.sources())

# Where our bytes differ from upstream's, unless compat=upstream is asked for
DEVIATIONS: dict[tuple[str, str], tuple[list[int], str]] = {
    ("jsonl", "jsonl/blank.jsonl"): ([0, 61, 123], "blank lines are no records"),
    ("jsonl", "jsonl/blank_first.jsonl"): ([0, 64, 124], "blank lines are no records"),
    ("jsonl", "jsonl/blank_last.jsonl"): ([0, 60, 123], "blank lines are no records"),
    ("jsonl", "jsonl/only_newline.jsonl"): ([1], "blank lines are no records"),
    ("wds_tar", "tar/zeros_after_end.tar"): ([0, 30720], "the sentinel is the size of the file"),
    ("wds_tar", "tar/text_after_end.tar"): ([0, 22240], "the sentinel is the size of the file"),
    ("wds_tar", "tar/glued.tar"): ([0, 20480], "the sentinel is the size of the file"),
}

# Where upstream writes a short index in silence and we refuse, whatever is asked for
REFUSED = {
    ("nemo_tar", "tar/corrupt_later.tar"): (Code.TAR_BAD_HEADER, 1024),
    ("nemo_tar", "tar/cut_second_header.tar"): (Code.TAR_TRUNCATED, 1024),
    ("nemo_tar", "tar/cut_third_header.tar"): (Code.TAR_TRUNCATED, 2048),
    ("wds_tar", "tar/cut_third_header.tar"): (Code.TAR_TRUNCATED, 2048),
}

# Upstream's refusals, by how its message begins
ERRORS = {
    "RuntimeError: Expected an even number": {Code.TAR_ODD_MEMBERS, Code.TAR_BAD_HEADER, Code.TAR_TRUNCATED},
    "RuntimeError: Cannot create an index for a compressed": {Code.PATH_COMPRESSED},
    "ReadError: empty file": {Code.TAR_EMPTY},
    "ReadError: bad checksum": {Code.TAR_BAD_HEADER},
    "ReadError: unexpected end of data": {Code.TAR_TRUNCATED},
}

CASES = [(kind, name) for name, case in EXPECTED.items() for kind in case if kind != "sha256"]


def test_the_sources_are_those_that_upstream_read() -> None:
    assert {name: hashlib.sha256(data).hexdigest() for name, data in SOURCES.items()} == {
        name: case["sha256"] for name, case in EXPECTED.items()
    }


@pytest.mark.parametrize("compat", ["", "upstream"])
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_as_upstream(kind: str, name: str, compat: str) -> None:
    expected = EXPECTED[name][kind]
    if (kind, name) in REFUSED:
        error = failure(kind, SOURCES[name], compat)
        assert (error.code, error.byte) == REFUSED[kind, name]
    elif isinstance(expected, str):
        codes = next(codes for start, codes in ERRORS.items() if expected.startswith(start))
        assert failure(kind, SOURCES[name], compat).code in codes
    elif compat == "" and (kind, name) in DEVIATIONS:
        assert expected != DEVIATIONS[kind, name][0]
        assert run(kind, SOURCES[name])[0] == DEVIATIONS[kind, name][0]
    else:
        assert run(kind, SOURCES[name], compat)[0] == expected


def test_every_deviation_is_a_case() -> None:
    assert {*DEVIATIONS, *REFUSED} <= set(CASES)
    assert len(CASES) > 100
