"""WebDataset sidecars of version 2 against upstream's bytes, and its refusals."""

from __future__ import annotations

import json
import struct
import tarfile
from pathlib import Path

import pytest
from formats_help import END, Memory, extended, gen, header, member, padded, pax

from blendex.errors import BlendexError, Code
from blendex.formats.kinds import Origin, Summary, build, content_of, files_of
from blendex.formats.wds_v2 import sample_key

GOLDEN = json.loads((Path(__file__).parent / "data" / "derived.json").read_text())["wds_tar_v2"]
DEEP = "deep/" * 24 + "utt_long_name_number_{}"
W = [bytes(44 + 2 * (40 + 13 * i)) for i in range(4)]  # the sizes count, not the sound


def _shar(name: str, i: int) -> list[tuple[str, bytes]]:
    samples = 40 + 13 * i
    source = [{"type": "shar", "channels": [0], "source": ""}]
    uid = name if len(name) < 9 else "u"
    meta = {"id": uid, "sources": source, "sampling_rate": 16000, "num_samples": samples}
    meta |= {"duration": samples / 16000, "channel_ids": [0]}
    return [(f"{name}.wav", W[i]), (f"{name}.json", json.dumps(meta).encode())]


def _pair(name: str, i: int, uid: object) -> list[tuple[str, bytes]]:
    return [(f"{name}.json", b'{"id": %s}' % json.dumps(uid).encode()), (f"{name}.wav", W[i])]


SOURCES = {
    "tar/shar_long_pax.tar": gen.tar([m for i in range(2) for m in _shar(DEEP.format(i), i)], tarfile.PAX_FORMAT),
    "tar/shar_pair.tar": gen.tar([m for i in range(3) for m in _shar(f"utt{i}", i)]),
    "tar/wds_multi.tar": gen.tar(
        [
            ("s/a.json", b'{"id":"a"}'),
            ("s/a.0.wav", W[0]),
            ("s/a.1.wav", W[1]),
            ("s/b.0.wav", W[2]),
            ("s/b.json", b"{}"),
        ]
    ),
    "tar/wds_multi_pax.tar": gen.tar(
        [
            (DEEP.format(1) + ".json", b'{"id":"L"}'),
            (DEEP.format(1) + ".wav", W[1]),
            ("z.json", b"{}"),
            ("z.wav", W[2]),
        ],
        tarfile.PAX_FORMAT,
    ),
    "tar/wds_pair.tar": gen.tar([m for i in range(3) for m in _pair(f"{i:03d}", i, i)]),
    "tar/zeros.tar": bytes(10240),
    "wds/shards/s-0.tar": gen.tar([m for i in range(2) for m in _pair(f"0{i}", i, f"0{i}")]),
    "wds/shards/s-1.tar": gen.tar([m for i in range(2) for m in _pair(f"1{i}", i, f"1{i}")]),
}


def _build(data: bytes) -> tuple[bytes, Summary]:
    out = bytearray()
    summary = build("wds_tar_v2", Memory(data), out.extend)
    return bytes(out), summary


def _refused(data: bytes) -> BlendexError:
    with pytest.raises(BlendexError) as caught:
        _build(data)
    assert caught.value.next_step
    return caught.value


@pytest.mark.parametrize("name", GOLDEN)
def test_upstreams_two_files(name: str) -> None:
    stored, summary = _build(SOURCES[name])
    origin = Origin(name, len(SOURCES[name]), 1_700_000_000_000_000_000)
    index, metadata = files_of("wds_tar_v2", stored, origin)
    assert index == struct.pack(f"<{summary.records + 1}Q", *GOLDEN[name]["offsets"])
    assert metadata.decode() == GOLDEN[name]["metadata"]


def test_every_golden_has_a_source() -> None:
    assert set(SOURCES) == set(GOLDEN)


NOT_SAMPLES = [name for name, _ in gen.sources() if name.startswith("tar/") and "zeros.tar" not in name]


@pytest.mark.parametrize("name", NOT_SAMPLES)
def test_what_upstream_refuses(name: str) -> None:
    """Of upstream's 40 archives it refuses those without one ``.json`` per sample, and so must we."""
    data = dict(gen.sources())[name]
    pairs = name.startswith("tar/pairs") and "placeholder" not in name
    if pairs:
        assert _build(data)[1].records > 0
    else:
        assert _refused(data).code in {Code.WDS_BAD_SAMPLE, Code.TAR_BAD_HEADER, Code.TAR_TRUNCATED, Code.TAR_EMPTY}


J = b'{"x": 1}'
A, B = member("k1.json", J) + member("k1.wav", W[0]), member("k2.json", J) + member("k2.wav", W[0])


@pytest.mark.parametrize(
    ("data", "byte", "named"),
    [
        (A + B + member("k1.flac", J) + END, 4096, "the sample k1 at byte 0 comes back"),
        (A + member("k1.json", J) + END, 2048, "two members are called k1.json"),
        (A + member("k1.x.json", J) + END, 0, "has 2 .json members"),
        (member("k1.json", J) + END, 0, "nothing beside its .json"),
        (member("k1.wav", J) + END, 0, "has 0 .json members"),
        (member("k1.json", b"{") + member("k1.wav", J) + END, 0, "k1.json is not JSON"),
        (member("k1.json", b"[1]") + member("k1.wav", J) + END, 0, "k1.json is not a JSON object"),
        (member("k1.json", b"\xff\xfe{}") + member("k1.wav", J) + END, 0, "k1.json is not JSON"),
        (member("k1.json", b"[" * 200_000) + member("k1.wav", J) + END, 0, "k1.json is not JSON"),
        (member("./k1.json", J) + END, 0, "has . or .. in its name"),
        (member("a/../k1.json", J) + END, 0, "has . or .. in its name"),
        (member("/k1.json", J) + END, 0, "an absolute one"),
        (member(".hid", J) + END, 0, "begins with a dot"),
        (member("noext", J) + END, 0, "has no suffix"),
        (member("ends.", J) + END, 0, "has no suffix"),
        (member(b"k\xff\x07.json", b"{") + END, 0, r"k\xff\x07.json is not JSON"),
    ],
)
def test_samples_that_are_refused(data: bytes, byte: int, named: str) -> None:
    error = _refused(data)
    assert (error.code, error.byte) == (Code.WDS_BAD_SAMPLE, byte)
    assert named in error.message


def test_what_is_allowed() -> None:
    folder = header(b"d/", kind=b"5")
    data = folder + member("d/a.wav", W[0]) + member("d/a.json", b'{"x": NaN}') + A + END
    stored, summary = _build(data)
    assert summary.records == 2
    assert struct.unpack("<4Q", stored) == (512, 512 + 1024 + 1024, len(data), 4)


def test_json_behind_extended_headers_is_read_where_it_is() -> None:
    name = "d" * 90 + "/" + "e" * 90 + ".json"
    long_name = extended(name.encode() + b"\0", b"L") + header(b"cut", len(J)) + padded(J)
    wav = pax(path=name.replace(".json", ".wav")) + header(b"cut", 3) + padded(b"abc")
    assert _build(long_name + wav + END)[1].records == 1
    assert "is not JSON" in _refused(long_name.replace(J, b"{broken}") + wav + END).message


@pytest.mark.parametrize(
    ("name", "key"),
    [
        (b"235342 Track 2.0 (Clean).mp3", b"235342 Track 2"),
        (b"v1.2/a.json", b"v1.2/a"),
        (b"v1.2/b.c.json", b"v1.2/b"),
        (b"a//b.json", b"a/b"),
    ],
)
def test_keys(name: bytes, key: bytes) -> None:
    assert sample_key(name) == (key, "")


def test_the_content_hash_follows_headers_and_json_but_not_audio() -> None:
    def of(data: bytes) -> str:
        return _build(data)[1].content_hash

    other_json = A.replace(b'"x": 1', b'"x": 2')
    assert of(A + END) == of(member("k1.json", J) + member("k1.wav", b"\1" * len(W[0])) + END)
    assert len({of(A + END), of(other_json + END), of(B + END), of(A + END + END)}) == 4


def test_a_touch_is_another_content_of_the_same_offsets() -> None:
    summary = _build(A + END)[1]
    seen = {
        content_of("wds_tar_v2", summary.content_hash, origin)
        for origin in (
            Origin("/a.tar", 9, 1),
            Origin("/a.tar", 9, 2),
            Origin("/b.tar", 9, 1),
            Origin("/a.tar", 9, 0, "e"),
        )
    }
    assert len(seen) == 4
    assert content_of("nemo_tar", summary.content_hash, Origin("/a.tar", 9, 1)) == summary.content_hash
