"""Writes the small sources whose sidecars upstream has recorded in ``expected.json``: ``gen.py FOLDER``.

The same bytes each time, by the standard library alone; ``expected.json`` holds their SHA-256.
"""

from __future__ import annotations

import gzip
import io
import json
import random
import struct
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

END = b"\0" * 1024
Entry = tuple[str, bytes] | tuple[str, bytes, str]  # name and data, or name, type and link name


def header(
    name: bytes,
    size: int = 0,
    kind: bytes = b"0",
    magic: bytes = b"ustar\x0000",
    size_field: bytes | None = None,
    patches: dict[int, bytes] | None = None,
) -> bytes:
    """A tar header with a right checksum; ``patches`` go in by offset before it is summed."""
    block = bytearray(512)
    fields = {
        0: name,
        100: b"0000644\0",
        108: b"0000000\0",
        116: b"0000000\0",
        124: size_field if size_field is not None else b"%011o\0" % size,
        136: b"00000000000\0",
        156: kind,
        257: magic,
        **(patches or {}),
    }
    for at, value in fields.items():
        block[at : at + len(value)] = value
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def padded(data: bytes, to: int = 512) -> bytes:
    """``data`` with zeros up to a multiple of ``to``."""
    return data + b"\0" * (-len(data) % to)


def member(name: bytes | str, data: bytes = b"", kind: bytes = b"0", **more: object) -> bytes:
    """A header and its data."""
    raw = name.encode() if isinstance(name, str) else name
    return header(raw, len(data), kind, **more) + padded(data)  # type: ignore[arg-type]


def pax_record(key: str, value: str) -> bytes:
    """A PAX record, its length counting itself."""
    rest = f" {key}={value}\n".encode()
    length = len(rest) + len(str(len(rest)))
    length = len(rest) + len(str(length))
    return str(length).encode() + rest


def extended(payload: bytes, kind: bytes = b"x") -> bytes:
    """An extended header with its payload."""
    return member("././@PaxHeader", payload, kind)


def pax(kind: bytes = b"x", **records: str) -> bytes:
    """An extended header of PAX records; ``__`` in a key stands for a dot."""
    return extended(b"".join(pax_record(k.replace("__", "."), v) for k, v in records.items()), kind)


def tar(entries: list[Entry], form: int = tarfile.USTAR_FORMAT, headers: dict[str, str] | None = None) -> bytes:
    """An archive as Python's tarfile writes it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form, pax_headers=headers or {}) as archive:
        for entry in entries:
            info = tarfile.TarInfo(entry[0])
            if len(entry) == 2:
                info.size = len(entry[1])
                archive.addfile(info, io.BytesIO(entry[1]))
            else:
                info.type, info.linkname = entry[1], entry[2]
                archive.addfile(info)
    return out.getvalue()


def wav(samples: int, seed: int) -> bytes:
    """A small mono WAV file of noise."""
    pcm = random.Random(seed).randbytes(2 * samples)
    form = struct.pack("<IHHIIHH", 16, 1, 1, 16000, 32000, 2, 16)
    return b"RIFF" + struct.pack("<I", 36 + len(pcm)) + b"WAVEfmt " + form + b"data" + struct.pack("<I", len(pcm)) + pcm


def lines(*records: object) -> bytes:
    """JSON lines."""
    return b"".join(json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in records)


def manifests() -> Iterator[tuple[str, bytes]]:
    rows = [{"audio_filepath": f"a{i}.wav", "duration": 0.1 * (i + 1), "text": f"t{i}"} for i in range(5)]
    basic, one, two = lines(*rows), lines(rows[0]), lines(rows[1])
    yield "empty.jsonl", b""
    yield "one.jsonl", one
    yield "basic.jsonl", basic
    yield "no_final_newline.jsonl", basic[:-1]
    yield "crlf.jsonl", basic.replace(b"\n", b"\r\n")
    yield "blank.jsonl", one + b"\n" + two + b"\n\n"
    yield "blank_first.jsonl", b"\n \t\n" + one + two
    yield "blank_last.jsonl", one + two + b"   "
    yield "only_newline.jsonl", b"\n"
    yield "bom.jsonl", b"\xef\xbb\xbf" + basic
    yield "half_line.jsonl", basic + b'{"audio_filepath": "a5.w'
    no_separators = lines({"t": "zé中\U0001f600"}, {"t": "ls\u2028ps\u2029nel\u0085"}) + b'{"t": "cr"}\r{"t": "x"}\n'
    yield "separators.jsonl", no_separators
    yield "nul_tail.jsonl", basic + b"\0" * 64
    pick = random.Random(7)
    yield "many.jsonl", lines(*({"i": i, "t": "x" * pick.randrange(40)} for i in range(600)))
    yield "gzip.jsonl.gz", gzip.compress(basic, mtime=0)


def tars() -> Iterator[tuple[str, bytes]]:
    w = [wav(40 + 13 * i, i) for i in range(8)]
    meta = [json.dumps({"id": f"utt{i}"}).encode() for i in range(8)]
    deep = "deep/" * 24 + "utt_long_name_number_{}"
    kinds = tarfile
    yield "ustar.tar", tar([(f"a{i}.wav", w[i]) for i in range(4)])
    long_names: list[Entry] = [
        ("s0.wav", w[0]),
        (deep.format(1) + ".wav", w[1]),
        (deep.format(2) + ".wav", w[2]),
    ]
    yield "gnu_long.tar", tar([*long_names, ("s3.wav", w[3])], kinds.GNU_FORMAT)
    yield "pax_long.tar", tar([*long_names[:2], ("été/中文.wav", w[2]), ("s3.wav", w[3])], kinds.PAX_FORMAT)
    yield "pax_global.tar", tar([("g0.wav", w[0]), ("g1.wav", w[1])], kinds.PAX_FORMAT, {"comment": "hello"})
    yield "gnu_unicode.tar", tar([("über.wav", w[0]), ("中文.wav", w[1])], kinds.GNU_FORMAT)
    links: list[Entry] = [
        ("d", kinds.DIRTYPE, ""),
        ("d/a0.wav", w[0]),
        ("d/sym.wav", kinds.SYMTYPE, "a0.wav"),
        ("d/hard.wav", kinds.LNKTYPE, "d/a0.wav"),
        ("d/fifo", kinds.FIFOTYPE, ""),
        ("d/a1.wav", w[1]),
    ]
    yield "links.tar", tar(links)
    pairs: list[tuple[Entry, Entry]] = [((f"{i}.wav", w[i]), (f"{i}.json", meta[i])) for i in range(3)]
    yield "pairs.tar", tar([entry for pair in pairs for entry in pair])
    yield "pairs_metadata_first.tar", tar([entry for pair in pairs for entry in reversed(pair)])
    yield "pairs_placeholder.tar", tar([*pairs[0], ("1.nodata", b""), ("1.nometa", b"")])
    long_pairs: list[Entry] = [
        entry for i in range(2) for entry in ((deep.format(i) + ".wav", w[i]), (deep.format(i) + ".json", meta[i]))
    ]
    yield "pairs_long_pax.tar", tar(long_pairs, kinds.PAX_FORMAT)
    yield "pairs_long_gnu.tar", tar(long_pairs, kinds.GNU_FORMAT)
    yield "odd.tar", tar([*pairs[0], ("1.wav", w[1])])
    yield "same_stem_folders.tar", tar([("d1/x.wav", w[0]), ("d2/x.wav", w[1]), ("d2/y.wav", w[2])])
    yield "stem_again.tar", tar([("a.wav", w[0]), ("b.wav", w[1]), ("a.txt", b"hi"), ("b.txt", b"ho")])
    dots = ["a.b.wav", "a.b.txt", "a.c.wav", ".hid", "noext", "noext.wav"]
    yield "stem_dots.tar", tar([(name, w[0]) for name in dots])
    yield "same_names.tar", tar([("a.wav", w[0]), ("b.wav", w[1]), ("a.wav", w[2])])
    yield "zero_size.tar", tar([("e0.wav", b""), ("e1.wav", w[1]), ("e2.wav", b"")])
    yield "many.tar", tar([(f"m{i:03d}.txt", b"p%d" % i) for i in range(40)])
    yield from damaged_tars(w)
    yield from handmade_tars(w)


def damaged_tars(w: list[bytes]) -> Iterator[tuple[str, bytes]]:
    one = member("a.wav", w[0])
    two = one + member("b.wav", w[1])
    whole = padded(two + END, 10240)
    yield "empty.tar", b""
    yield "zeros.tar", b"\0" * 10240
    yield "short_record.tar", two + END
    yield "no_end.tar", two
    yield "one_zero_block.tar", two + b"\0" * 512
    yield "cut_payload.tar", two[:1600]
    yield "cut_padding.tar", two[:-10]
    yield "cut_second_header.tar", two[:1236]
    yield "cut_third_header.tar", two + header(b"c.wav", 4)[:200]
    yield "zeros_after_end.tar", whole + b"\0" * 20480
    yield "text_after_end.tar", whole + b"G" * 12000
    yield "glued.tar", whole + padded(member("c.wav", w[2]) + END, 10240)
    yield "corrupt_later.tar", padded(one + b"\xff" * 512 + two[len(one) :] + END, 10240)
    yield "corrupt_first.tar", padded(b"\xff" * 512 + two + END, 10240)


def handmade_tars(w: list[bytes]) -> Iterator[tuple[str, bytes]]:
    gnu = b"ustar  \0"
    base256 = b"\x80" + len(w[0]).to_bytes(11, "big")
    two = member("b.wav", w[1]) + END
    yield "base256.tar", padded(header(b"a.wav", magic=gnu, size_field=base256) + padded(w[0]) + two, 10240)
    yield "pax_size.tar", padded(pax(size=str(len(w[0]))) + header(b"a.wav") + padded(w[0]) + two, 10240)
    pairs = b"".join(b"%011o\0%011o\0" % pair for pair in ((1024, 512), (0, 0)))
    sparse = {386: pairs, 482: b"\0", 483: b"%011o\0" % 1536}
    old = header(b"sp.wav", 512, b"S", gnu, patches=sparse) + b"S" * 512
    yield "sparse_gnu.tar", padded(member("a.wav", w[0]) + old + two, 10240)
    more = header(b"sp.wav", 512, b"S", gnu, patches={**sparse, 482: b"\1"}) + padded(pairs) + b"S" * 512
    yield "sparse_gnu_more.tar", padded(more + two, 10240)
    numbers = {"GNU.sparse.name": "sp.wav", "GNU.sparse.realsize": "4096"}
    pax_1_0 = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", **numbers}
    yield (
        "sparse_pax_1_0.tar",
        padded(pax(**pax_1_0) + member("s/sp.wav", padded(b"1\n0\n512\n") + b"A" * 512) + two, 10240),
    )
    pax_0_1 = {"GNU.sparse.size": "4096", "GNU.sparse.numblocks": "1", "GNU.sparse.map": "0,512", **numbers}
    yield "sparse_pax_0_1.tar", padded(pax(**pax_0_1) + member("s/sp.wav", b"A" * 512) + two, 10240)
    v7 = member("v7.wav", w[0], b"\0", magic=b"") + header(b"old/", 0, b"\0", b"")
    unknown = member("cont.wav", w[1], b"7") + member("vendor", w[2], b"Z")
    yield "types.tar", padded(v7 + unknown + member("last.wav", w[3]) + END, 10240)
    link = header(b"h.wav", len(w[0]), b"1", patches={157: b"a.wav"})
    yield "link_size.tar", padded(member("a.wav", w[0]) + link + two, 10240)
    prefix = {345: b"very/long/folder/" + b"d" * 100}
    yield "prefix.tar", padded(member("a.wav", w[0], patches=prefix) + two, 10240)
    signed = bytearray(member("é.wav", w[0]))
    total = sum(byte - 256 * (byte > 127) for byte in signed[:148] + b" " * 8 + signed[156:512])
    signed[148:156] = b"%06o\0 " % total
    yield "signed_checksum.tar", padded(bytes(signed) + two, 10240)
    both = pax(path="from/pax.wav") + extended(b"from/gnu.wav\0", b"L")
    yield "both_extensions.tar", padded(both + member("a.wav", w[0]) + two, 10240)
    layers = pax(b"g", comment="x") + pax(path="p.wav") + pax(b"g", comment="y")
    yield "global_between.tar", padded(layers + member("a.wav", w[0]) + two, 10240)
    yield "global_path.tar", padded(pax(b"g", path="all.wav") + member("a.wav", w[0]) + two, 10240)


def sources() -> Iterator[tuple[str, bytes]]:
    """Every source with its name, ``jsonl/…`` or ``tar/…``."""
    for name, data in manifests():
        yield f"jsonl/{name}", data
    for name, data in tars():
        yield f"tar/{name}", data


def main(folder: Path) -> None:
    """Writes all sources below ``folder``."""
    for name, data in sources():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
