"""Tars: Python's tarfile as the rule, for archives of every format and damaged ones; refusals; the hash."""

from __future__ import annotations

import io
import random
import tarfile
import time

import pytest
from formats_help import (
    END,
    Memory,
    extended,
    failure,
    gen,
    header,
    member,
    nemo_rule,
    padded,
    pax,
    run,
    tarfile_members,
    unpack,
)

from blendex.errors import BlendexError, Code
from blendex.formats import tar as walker
from blendex.formats.findings import Collector
from blendex.formats.kinds import KINDS, build, recipe
from blendex.formats.nemo_tar import stem_of
from blendex.formats.tarheader import REGULAR

TARS = ("nemo_tar", "wds_tar")
FORMATS = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
KINDS_OF_MEMBERS = [tarfile.REGTYPE] * 8 + [
    tarfile.DIRTYPE,
    tarfile.SYMTYPE,
    tarfile.LNKTYPE,
    tarfile.FIFOTYPE,
]


def random_name(pick: random.Random, form: int) -> str:
    parts = [
        pick.choice(["a", "b.c", "..", ".", "x" * 40, "utt_0001", ".hid", "é", "中"]) for _ in range(pick.randint(1, 3))
    ]
    if pick.random() < 0.2:
        parts.insert(0, "d" * pick.randint(60, 90))
        if form != tarfile.USTAR_FORMAT:
            parts.append("n" * pick.randint(60, 200))
    return "/".join(parts) + pick.choice(["", ".wav", ".json", ".tar.gz", "."])


def random_tar(pick: random.Random, most: int = 12) -> bytes:
    """An archive as Python writes it: any format, names, sizes, types, PAX records, end."""
    form = pick.choice(FORMATS)
    out = io.BytesIO()
    common = {"comment": "c"} if form == tarfile.PAX_FORMAT and pick.random() < 0.3 else {}
    with tarfile.open(fileobj=out, mode="w", format=form, pax_headers=common) as archive:
        for _ in range(pick.randint(0, most)):
            info = tarfile.TarInfo(random_name(pick, form))
            info.type = pick.choice(KINDS_OF_MEMBERS)
            info.mtime = pick.choice([0, 1_700_000_000, 1.5 if form == tarfile.PAX_FORMAT else 7, 1 << 34])
            if form == tarfile.USTAR_FORMAT:
                info.mtime %= 1 << 33
            info.uid = pick.choice([0, 1000, 2_000_000 if form == tarfile.USTAR_FORMAT else 1 << 24])
            if info.type == tarfile.REGTYPE:
                info.size = pick.choice([0, 1, 511, 512, 513, pick.randint(0, 3000)])
            else:
                info.linkname = "é" * pick.choice([0, 1, 30 if form == tarfile.USTAR_FORMAT else 120])
            if form == tarfile.PAX_FORMAT and pick.random() < 0.2:
                info.pax_headers = {"note": "n" * pick.randint(1, 900)}
            archive.addfile(info, io.BytesIO(pick.randbytes(info.size)))
    data = out.getvalue()
    if pick.random() < 0.2:
        members = tarfile_members(data)
        end = len(data.rstrip(b"\0")) if members else 0
        data = padded(data[:end]) + b"\0" * 512 * pick.randint(0, 3)
    return data


def regular_names(data: bytes) -> list[str]:
    """Names of the regular members, as the walk that all kinds share tells them."""
    names: list[bytes] = []
    walker.walk(Memory(data), Collector(), lambda batch: names.extend(m[1] for m in batch if m[2] in REGULAR))
    return [name.decode("utf-8", "surrogateescape") for name in names]


def agrees(data: bytes) -> bool:
    """Whether both kinds equal tarfile's rule; False where they refuse. Anything else fails."""
    members = tarfile_members(data)
    accepted = False
    names = [info.name for info in members or () if info.isreg()]
    for kind in TARS:
        refusal = None
        try:
            offsets, summary = run(kind, data)
        except BlendexError as error:
            refusal = error
        if refusal is not None:
            assert refusal.byte is not None
            assert 0 <= refusal.byte <= len(data)
            if refusal.code is Code.TAR_ODD_MEMBERS:
                assert members is not None
                assert len(members) % 2 == 1
                assert refusal.byte == members[-1].offset
            continue
        accepted = True
        assert members is not None, "accepted what tarfile does not read"
        assert regular_names(data) == names
        assert summary.facts["members"] == len(members)
        rule = nemo_rule(members) if kind == "nemo_tar" else [info.offset for info in members[::2]]
        assert offsets == [*rule, len(data)]
    return accepted


def test_random_archives_are_indexed_as_tarfile_lists_them() -> None:
    pick = random.Random(11)
    archives = [data for _ in range(400) if (data := random_tar(pick))]
    refused = [data for data in archives if not agrees(data)]
    # tarfile 3.11 itself refuses an archive of nothing but a global header
    assert all(tarfile_members(data) is None for data in refused)
    assert len(refused) < 10 < 380 < len(archives)


# Bytes of a header that decide something; size and type more often
FIELDS = [
    0,
    99,
    100,
    108,
    116,
    124,
    124,
    124,
    130,
    135,
    136,
    147,
    156,
    156,
    156,
    157,
    329,
    344,
    345,
    482,
    500,
]


def corrupt(pick: random.Random, data: bytes) -> bytes:
    """One to three small damages; most header checksums are put right again, so that they get far."""
    broken = bytearray(data)
    blocks = [at for at in range(0, len(data) - 511, 512) if data[at + 257 : at + 262] == b"ustar"]
    for _ in range(pick.randint(1, 3)):
        if not broken:
            break
        how = pick.random()
        at = pick.choice(blocks) if blocks else 0
        if how < 0.6 and at + 512 <= len(broken):
            broken[at + pick.choice(FIELDS)] = pick.choice(b"\0 0178xgLKSD\x80\xff/-.")
            if pick.random() < 0.85:
                broken[at + 148 : at + 156] = b" " * 8
                broken[at + 148 : at + 156] = b"%06o\0 " % sum(broken[at : at + 512])
        elif how < 0.75:
            broken[pick.randrange(len(broken))] = pick.randrange(256)
        elif how < 0.85:
            at = 512 * pick.randrange(len(broken) // 512 + 1)
            broken[at:at] = pick.choice([b"\0" * 512, bytes(broken[:512]), pick.randbytes(512)])
        elif how < 0.93:
            at = 512 * pick.randrange(len(broken) // 512 + 1)
            del broken[at : at + 512]
        else:
            del broken[pick.randrange(len(broken) + 1) :]
    return bytes(broken)


KEYS = ["path", "size", "comment", "hdrcharset", "mtime"]
KEYS += ["GNU.sparse." + key for key in ("name", "size", "realsize", "major", "minor", "map")]


def crafted(pick: random.Random) -> bytes:
    """An archive of random extended headers in random order."""
    parts = []
    for _ in range(pick.randint(1, 4)):
        size = pick.choice([0, 5, 512, 700])
        for _ in range(pick.randint(0, 3)):
            records = {}
            for _ in range(pick.randint(1, 4)):
                key = pick.choice(KEYS)
                records[key] = pick.choice(
                    ["0", "1", "512", str(size), "1000", "a/b.wav", "x/", "0,512", "BINARY", "-1"]
                )
            parts.append(
                pick.choice(
                    [
                        pax(**records),
                        pax(b"g", **records),
                        pax(b"X", **records),
                        extended(b"long/name.wav" + b"\0" * pick.randint(0, 2), b"L"),
                        extended(b"link\0", b"K"),
                    ]
                )
            )
        kind = pick.choice([b"0", b"0", b"0", b"\0", b"S", b"5", b"1", b"6", b"7", b"Z"])
        body = pick.choice([b"1\n0\n512\n", b"", b"2\n0\n1\n5\n"])
        patches = {} if pick.random() < 0.7 else {345: b"pre/fix"}
        if kind == b"S":
            patches = {386: b"%011o\0%011o\0" % (0, 0), 483: b"%011o\0" % size, **patches}
        parts.append(
            member(pick.choice(["a.wav", "b/", "c.d.e"]), padded(body)[:512] + b"d" * size, kind, patches=patches)
        )
    return b"".join(parts) + pick.choice([END, END, b"", b"\0" * 512])


def test_damaged_archives_are_refused_or_indexed_right() -> None:
    pick = random.Random(5)
    accepted = sum(agrees(broken) for _ in range(1500) if (broken := corrupt(pick, random_tar(pick, 6))))
    assert 200 < accepted < 1300  # the damages matter, and do not all end at the first header


def test_crafted_extensions_are_refused_or_indexed_right() -> None:
    pick = random.Random(6)
    accepted = sum(agrees(crafted(pick)) for _ in range(1500))
    assert accepted > 200


@pytest.mark.parametrize("size", [20, 20_000])
def test_large_archives_pass_over_batches(size: int) -> None:
    """More members than a batch holds, by windows (20 bytes each) and by single reads."""
    names = [f"u{i // 2}.{'json' if i % 2 else 'wav'}" for i in range(2 * walker.BATCH + 37)]
    data = gen.tar([(name, b"x" * size) for name in names])
    assert len(names) % 2
    offsets = [info.offset for info in tarfile_members(data) or []]
    assert run("nemo_tar", data)[0] == [*offsets[::2], len(data)]
    assert failure("wds_tar", data).byte == offsets[-1]
    broken = bytearray(data)
    broken[offsets[walker.BATCH + 9] + 5] ^= 1
    for kind in TARS:
        error = failure(kind, bytes(broken))
        assert (error.code, error.byte) == (Code.TAR_BAD_HEADER, offsets[walker.BATCH + 9])


def test_few_reads_for_large_members() -> None:
    data = gen.tar([(f"{i}.wav", b"x" * 100_000) for i in range(20)])
    source = Memory(data)
    build("nemo_tar", source, lambda _: None)
    assert source.reads <= 20 + 3


A = member("a.wav", b"x" * 600)
MAPPED = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}
ODD_SUM = bytearray(header(b"a.wav"))
ODD_SUM[154:156] = b" 7"
HOSTILE = {
    "two sparse maps": pax(**MAPPED) * 2 + member("s", padded(b"1\n0\n5\n") * 2) + END,
    "checksum and a digit": bytes(ODD_SUM) + END,
    "zero length": extended(b"0 path=a.wav\n") + A + END,
    "overlong": extended(b"9999 path=a.wav\n") + A + END,
    "huge length": extended(b"9" * 400 + b" path=a.wav\n") + A + END,
    "size": pax(size="abc") + A + END,
    "negative size": pax(size="-1") + A + END,
    "sparse size": pax(**{"GNU.sparse.size": "x"}) + A + END,
    "sparse map": pax(**{"GNU.sparse.map": "1,x"}) + A + END,
    "no key": extended(b"5 =a\n") + A + END,
    "no equals": extended(b"6 abc\n") + A + END,
    "no newline": extended(b"12 path=a.wav") + A + END,
    "records after the end": header(b"pax", 0, b"x")
    + A[:0]
    + header(b"pax", 11, b"x")
    + padded(b"11 path=ab\n11 path=cd\n")
    + A
    + END,
    "nothing after it": pax(comment="c") + END,
    "only a global header": pax(b"g", comment="c") + END,
    "global header at the end": A + pax(b"g", comment="c"),
    "claims gigabytes": header(b"pax", kind=b"x", size_field=b"\x80" + (1 << 40).to_bytes(11, "big")) + A + END,
    "negative base-256": header(b"a.wav", size_field=b"\xff" + b"\xff" * 10 + b"\x00") + END,
    "negative octal": header(b"a.wav", size_field=b"-0000000001\0") + END,
    "chain": pax(comment="c") * 500 + A + END,
    "sparse map without end": pax(**{"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}) + member("s", b"9" * 700) + END,
    "sparse map too long": pax(**{"GNU.sparse.major": "1", "GNU.sparse.minor": "0"})
    + member("s", b"9999999\n1\n")
    + END,
    "sparse extension cut": header(b"s", 512, b"S", patches={482: b"\1"}),
    "bad mode": header(b"a.wav", patches={100: b"rwxr-xr\0"}) + END,
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("first", [b"", member("first.wav", b"1") * 2])
def test_hostile_headers_fail_at_once(name: str, first: bytes) -> None:
    start = time.process_time()
    for kind in TARS:
        error = failure(kind, first + HOSTILE[name])
        assert error.code in (Code.TAR_BAD_HEADER, Code.TAR_TRUNCATED)
        assert error.byte is not None
        assert error.byte >= len(first)
        assert "a.wav" not in error.message
    assert time.process_time() - start < 0.5


@pytest.mark.parametrize(
    ("data", "code", "byte"),
    [
        (b"", Code.TAR_EMPTY, 0),
        (b"<html>403 Forbidden</html>" * 40, Code.TAR_BAD_HEADER, 0),
        (b"<html>", Code.TAR_BAD_HEADER, 0),
        (A[:700], Code.TAR_TRUNCATED, 0),
        (A[:-1], Code.TAR_TRUNCATED, 0),
        (A + A[:100], Code.TAR_TRUNCATED, len(A)),
        (A + b"\0" * 100, Code.TAR_TRUNCATED, len(A)),
        (A + b"\xff" * 512 + A + END, Code.TAR_BAD_HEADER, len(A)),
        (A + A[512:1024] + A + END, Code.TAR_BAD_HEADER, len(A)),
    ],
)
def test_refusals(data: bytes, code: Code, byte: int) -> None:
    for kind in TARS:
        error = failure(kind, data)
        assert (error.code, error.byte) == (code, byte)
    if data.startswith(b"<"):
        assert "not a tar" in error.message


@pytest.mark.parametrize(
    ("data", "size"),
    [(A + END, len(A) + 512), (A + A, len(A)), (A + END, len(A) + 5000), (A + A, 3 * len(A)), (A[:100], 600)],
)
def test_a_source_that_changes_is_refused(data: bytes, size: int) -> None:
    for kind in TARS:
        with pytest.raises(BlendexError) as caught:
            build(kind, Memory(data, size), lambda _: None)
        assert caught.value.code is Code.SOURCE_CHANGED


def test_headers_of_other_writers_are_read() -> None:
    """Number fields as V7, BSD and libarchive write them; the last needs no second look."""
    styles = [
        {100: b"   644 \0", 108: b"  1750 \0", 136: b"14523230000 "},
        {
            100: b"000644 \0",
            108: b"001750 \0",
            124: b"00000001130 ",
            136: b"14523230000 ",
            329: b"000000 \0000000 \0",
        },
        {124: b"       1130 ", 136: b"\x80" + (1 << 40).to_bytes(11, "big")},
    ]
    data = b"".join(header(b"%d.wav" % i, 600, patches=style) + padded(b"x" * 600) for i, style in enumerate(styles))
    assert agrees(data + END)
    assert run("nemo_tar", data + END)[0] == [0, 1536, 3072, len(data) + 1024]


def test_stems_are_those_of_pathlib() -> None:
    from pathlib import Path

    pick = random.Random(3)
    for _ in range(3000):
        name = "".join(pick.choice("a./.b/é") for _ in range(pick.randrange(9)))
        assert stem_of(name.encode()) == Path(name).stem.encode(), name


def test_the_hash_covers_what_decides_index_and_findings() -> None:
    """Payload does not change it; a header, the size, and data after the end do."""

    def digest(data: bytes) -> str:
        return run("nemo_tar", data)[1].content_hash

    plain = member("a.wav", b"1" * 600) + END
    assert digest(member("a.wav", b"2" * 600) + END) == digest(plain)
    assert run("nemo_tar", plain + b"\0" * 512)[1].content_hash != digest(plain)
    others = [
        member("b.wav", b"1" * 600) + END,
        member("a.wav", b"1" * 599 + b"") + END,
        plain + b"\0" * 512,
        plain[:-1] + b"x",
        plain[:-2] + b"xx",
        pax(comment="c") + plain,
        pax(comment="d") + plain,
        member("a.wav", b"1" * 600),
    ]
    assert len({digest(data) for data in [plain, *others]}) == len(others) + 1


def test_recipes() -> None:
    assert recipe("jsonl", "") == "jsonl/1"
    assert recipe("wds_tar", "upstream") == "wds_tar/1+upstream"
    assert {kind.name: (kind.strength, kind.suffix) for kind in KINDS.values()} == {
        "jsonl": ("full", ".idx"),
        "nemo_tar": ("structure", ".idx"),
        "wds_tar": ("structure", ".idx"),
        "wds_tar_v2": ("structure", ".wds-v2.idx"),
        "sharegpt_route": ("full", ".sgroute"),
        "tar_path": ("size", ""),
    }
    for kind, compat in (("zip", ""), ("jsonl", "nemo")):
        with pytest.raises(BlendexError) as caught:
            recipe(kind, compat)
        assert caught.value.code is Code.BAD_VALUE


def test_a_sidecar_is_written_in_pieces() -> None:
    data = gen.tar([(f"{i}.wav", b"") for i in range(3 * walker.BATCH)])
    pieces: list[bytes] = []
    long: list[bytes | memoryview] = []
    build("nemo_tar", Memory(data), lambda piece: pieces.append(bytes(piece)))
    assert len(pieces) > 3
    build(
        "wds_tar",
        Memory(b"".join([pax(note="n" * 1_100_000) + A] * 4) + END),
        long.append,
    )
    assert len(long) == 3  # and megabytes of extended headers do not wait for a batch to be full
    assert unpack(b"".join(pieces)) == [*range(0, 512 * 3 * walker.BATCH, 512), len(data)]
