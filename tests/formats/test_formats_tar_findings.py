"""What is noticed in tars: each class of finding, its place, and what refuses a source."""

from __future__ import annotations

import pytest
from formats_help import END, extended, found, gen, header, member, padded, pax

from blendex.formats.findings import FINDINGS, Finding, Severity, refusing

W = b"x" * 600
M = b"{}"
LONG = "n" * 150
S = header(b"s.wav", 512, b"S", patches={386: b"%011o\0%011o\0" % (0, 512), 483: b"%011o\0" % 9000}) + W[:512]
SPARSE_1_0 = pax(**{"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "9000"})
MAP = member("s.wav", padded(b"1\n0\n512\n") + W[:512])


def pair(stem: str) -> bytes:
    return member(f"{stem}.wav", W) + member(f"{stem}.json", M)


P = len(pair("a"))

NEMO = {
    "plain": (member("a.wav", W) + member("d/b.wav", W) + END, {}),
    "folders": (member("d/a.wav", W) + member("e/a.wav", W) + END, {"merged_directories": (1, 1536, 1)}),
    "same name": (member("a.wav", W) * 3 + END, {"merged_directories": (2, 1536, 1)}),
    "companions": (pair("d/a") + pair("d/b") + END, {"stem_group": (2, 1536, 1)}),
    "no suffix": (member("a", W) + member("a.wav", W) + END, {"stem_group": (1, 1536, 1)}),
    "over a folder": (
        member("a.wav", W) + header(b"d", kind=b"5") + member("d/a.wav", W) + END,
        {"merged_directories": (1, 2048, 2)},
    ),
    "old sparse": (member("a.wav", W) + S + END, {"sparse_member": (1, 1536, 1)}),
    "pax sparse": (SPARSE_1_0 + MAP + END, {"sparse_member": (1, 0, 0)}),
    "contiguous": (member("a.wav", W, b"7") + END, {"contiguous_member": (1, 0, 0)}),
    "pax size": (pax(size="600") + header(b"a.wav") + padded(W) + END, {"pax_size": (1, 0, 0)}),
    "pax size agrees": (pax(size="600") + member("a.wav", W) + END, {}),
    "hard link": (header(b"l", 9, b"1") + member("a.wav", W) + END, {"link_size": (1, 0, 0)}),
    "unknown type": (member("l", W, b"Z") + member("a.wav", W) + END, {"link_size": (1, 0, 0)}),
    "empty": (member("a.wav") + member("b.wav", W) + member("c.wav") + END, {"empty_member": (2, 0, 0)}),
    "NUL in header": (member("a.wav", W) + member(b"b.wav\0c", W) + END, {"nul_in_name": (1, 1536, None)}),
    "NUL in record": (pax(path="b.wav\0c") + member("b", W) + END, {"nul_in_name": (1, 0, 0)}),
    "glued": (member("a.wav", W) + END + member("b.wav", W) + END, {"data_after_end": (1, 2560, None)}),
    "far behind": (member("a.wav", W) + END + b"\0" * 300_000 + b"x", {"data_after_end": (1, 302_560, None)}),
    "zeros behind": (member("a.wav", W) + END + b"\0" * 300_000, {}),
    "no end": (member("a.wav", W), {"no_end_marker": (1, 1536, None)}),
    "nothing": (END, {"empty_archive": (1, 0, None)}),
}

WDS = {
    "plain": (pair("a") + pair("d/b.c") + END, {}),
    "placeholders": (member("a.nodata") + member("a.nometa") + pair("b") + END, {}),
    "placeholder data": (member("a.nodata") + member("a.json", M) + END, {}),
    "folder": (
        header(b"d", kind=b"5") + pair("d/a") + header(b"e", kind=b"5") + END,
        {"not_regular": (2, 0, 0)},
    ),
    "interleaved": (
        member("a.wav", W) + member("b.wav", W) + member("a.json", M) + member("b.json", M) + END,
        {"mispaired": (2, 0, 0)},
    ),
    "other name": (pair("a") + member("b.wav", W) + member("c.json", M) + END, {"mispaired": (1, P, 2)}),
    "other folder": (member("d/a.wav", W) + member("e/a.json", M) + END, {"mispaired": (1, 0, 0)}),
    "dots in folder": (member("v1.2/a", W) + member("v1.2/a.json", M) + END, {}),
    "two metadata": (member("a.json", M) + member("a.nometa") + END, {"mispaired": (1, 0, 0)}),
    "no metadata": (member("a.wav", W) + member("a.flac", W) + END, {"mispaired": (1, 0, 0)}),
    "metadata first": (
        pair("a") + member("b.json", M) + member("b.wav", W) + END,
        {"metadata_first": (1, P, 2)},
    ),
    "empty": (member("a.wav") + member("a.json", M) + END, {"empty_member": (1, 0, 0)}),
    "empty metadata": (member("a.wav", W) + member("a.json") + END, {"empty_member": (1, 1536, 1)}),
    "long pax": (
        pax(path=LONG + ".wav") + member("n", W) + pax(path=LONG + ".json") + member("n", M) + END,
        {"long_name": (2, 0, 0)},
    ),
    "long gnu": (
        pair("a") + extended(b"b.wav\0", b"L") + member("n", W) + member("b.json", M) + END,
        {"long_name": (1, P, 2)},
    ),
    "global": (pax(b"g", comment="c") + pair("a") + END, {}),
    "contiguous": (member("a.wav", W, b"7") + member("a.json", M) + END, {}),
}


@pytest.mark.parametrize("case", NEMO)
def test_nemo_tar(case: str) -> None:
    data, expected = NEMO[case]
    assert found("nemo_tar", data) == expected


@pytest.mark.parametrize("case", WDS)
def test_wds_tar(case: str) -> None:
    data, expected = WDS[case]
    assert found("wds_tar", data) == expected


def test_findings_keep_their_place_over_batches() -> None:
    stems = [f"u{i}" for i in range(1500)]
    data = b"".join(pair(stem) for stem in stems) + member("v.wav", W) + member("w.json", M) + END
    assert found("wds_tar", data) == {"mispaired": (1, 1500 * P, 3000)}
    # A megabyte of extended header ends a batch, here between the members of a pair
    split = pair("a") + member("b.wav", W) + pax(note="n" * 1_100_000) + member("c.json", M) + END
    assert found("wds_tar", split) == {"mispaired": (1, P, 2), "long_name": (1, P + 1536, 3)}
    split = pair("a") + pax(note="n" * 1_100_000) + member("b.wav", W) + member("c.json", M) + END
    assert found("wds_tar", split) == {"mispaired": (1, P, 2), "long_name": (1, P, 2)}
    shifted = pair("a") + member("b.wav", W) * 1025 + member("b.json", M) + END
    assert found("wds_tar", shifted) == {"mispaired": (512, P, 2)}


def test_what_refuses() -> None:
    findings = [Finding(name, 1, 0) for name in FINDINGS]
    refused = {finding.name for finding in refusing(findings, ())}
    assert refused == {
        *("bom", "nul_byte", "not_utf8", "not_an_object", "half_line"),
        *("merged_directories", "sparse_member", "contiguous_member", "pax_size", "not_regular", "mispaired"),
        "data_after_end",
    }
    assert refused == {name for name, entry in FINDINGS.items() if entry.severity is Severity.REFUSE}
    allowed = refusing(findings, {"bom", "mispaired", "crlf"})
    assert {finding.name for finding in allowed} == refused - {"bom", "mispaired"}


def test_findings_survive_json() -> None:
    for finding in (Finding("bom", 1, 0, 0), Finding("data_after_end", 1, 99)):
        assert Finding.from_dict(finding.as_dict()) == finding
    assert "record" not in Finding("data_after_end", 1, 99).as_dict()


def test_goldens_raise_no_alarm_where_nothing_is_wrong() -> None:
    sources = dict(gen.sources())
    for name in ("ustar", "gnu_long", "pax_long", "pax_global", "base256", "prefix", "signed_checksum"):
        assert not found("nemo_tar", sources[f"tar/{name}.tar"])
