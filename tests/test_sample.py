"""The shipped sample: real audio, the layouts of upstream, the same bytes for a seed."""

from __future__ import annotations

import ast
import hashlib
import io
import json
import sys
import tarfile
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from blendex import sample
from blendex.errors import BlendexError, Code


class Bits:
    """Reads a FLAC frame most significant bit first."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, width: int) -> int:
        value = 0
        for bit in range(self.at, self.at + width):
            value = value << 1 | self.data[bit // 8] >> (7 - bit % 8) & 1
        self.at += width
        return value

    def signed(self, width: int) -> int:
        value = self.take(width)
        return value - (1 << width) if value >> (width - 1) else value

    def unary(self) -> int:
        zeros = 0
        while not self.take(1):
            zeros += 1
        return zeros


def crc(data: bytes, polynomial: int, width: int) -> int:
    """Bit by bit, unlike the table of the encoder."""
    value = 0
    for byte in data:
        for bit in range(7, -1, -1):
            top = value >> (width - 1) ^ (byte >> bit & 1)
            value = (value << 1 & ((1 << width) - 1)) ^ (polynomial if top else 0)
    return value


def decode_flac(data: bytes) -> tuple[dict[str, Any], NDArray[np.int16], list[int]]:
    """STREAMINFO, samples and the subframe types, from RFC 9639 and nothing of the encoder."""
    assert data[:4] == b"fLaC"
    assert data[4] == 0x80  # STREAMINFO, and the last of the metadata
    assert int.from_bytes(data[5:8], "big") == 34
    info = data[8:42]
    fields = int.from_bytes(info[10:18], "big")
    stream = {
        "blocks": (int.from_bytes(info[0:2], "big"), int.from_bytes(info[2:4], "big")),
        "frames": (int.from_bytes(info[4:7], "big"), int.from_bytes(info[7:10], "big")),
        "rate": fields >> 44,
        "channels": (fields >> 41 & 7) + 1,
        "bits": (fields >> 36 & 31) + 1,
        "samples": fields & ((1 << 36) - 1),
        "md5": info[18:34],
    }
    rest = data[42:]
    out: list[int] = []
    kinds: list[int] = []
    sizes: list[int] = []
    while rest:
        bits = Bits(rest)
        assert bits.take(16) == 0xFFF8
        block_code, rate_code = bits.take(4), bits.take(4)
        assert (rate_code, bits.take(4), bits.take(3), bits.take(1)) == (0b0101, 0, 0b100, 0)
        first = bits.take(8)
        number = first
        if first >= 0x80:
            more = 7 - (~first & 0xFF).bit_length()
            number = first & ((1 << (6 - more)) - 1)
            for _ in range(more):
                part = bits.take(8)
                assert part >> 6 == 0b10
                number = number << 6 | part & 0x3F
        assert number == len(sizes)
        length = {0b1100: 4096}.get(block_code) or bits.take(16) + 1
        assert crc(rest[: bits.at // 8], 0x07, 8) == bits.take(8)
        assert bits.take(1) == 0
        kind = bits.take(6)
        kinds.append(kind)
        assert bits.take(1) == 0  # no wasted bits
        block: list[int]
        if kind == 1:
            block = [bits.signed(16) for _ in range(length)]
        else:
            assert kind == 8 + 2
            block = [bits.signed(16), bits.signed(16)]
            assert bits.take(2) == 0
            assert bits.take(4) == 0
            k = bits.take(4)
            assert k < 15
            for _ in range(length - 2):
                folded = bits.unary() << k
                folded |= bits.take(k)
                error = folded >> 1 if folded % 2 == 0 else -(folded >> 1) - 1
                block.append(error + 2 * block[-1] - block[-2])
        out += block
        end = (bits.at + 7) // 8
        assert bits.take(end * 8 - bits.at) == 0
        assert crc(rest[:end], 0x8005, 16) == int.from_bytes(rest[end : end + 2], "big")
        sizes.append(end + 2)
        rest = rest[end + 2 :]
    assert stream["frames"] == (min(sizes), max(sizes))
    return stream, np.array(out, dtype=np.int16), kinds


def tree(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def members(path: Path) -> list[tuple[str, bytes]]:
    with tarfile.open(path, "r:") as tar:
        return [(item.name, tar.extractfile(item).read()) for item in tar]  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sample") / "new"
    assert sample.make(folder, utterances=6) == folder / "blend.yaml"
    return folder


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path, corpus: Path) -> None:
    sample.make(tmp_path / "again", utterances=6)
    assert tree(tmp_path / "again") == tree(corpus)
    sample.make(tmp_path / "other", utterances=6, seed=8)
    other = tree(tmp_path / "other")
    same = {name for name, digest in tree(corpus).items() if other[name] == digest}
    assert same == {"blend.yaml"}


def test_the_bytes_are_those_of_every_machine(corpus: Path) -> None:
    """Pinned: a change here changes what README, docs and bug reports show."""
    digest = hashlib.sha256("".join(f"{n} {d}\n" for n, d in tree(corpus).items()).encode()).hexdigest()
    assert digest == "b609ca5ce95b4c7a690dd0375c5f932cbb7bf2cccda199f178c2096210197513"


def test_wav_is_playable_and_has_sound_and_silence(corpus: Path) -> None:
    files = sorted((corpus / "wav").iterdir())
    assert len(files) == 2
    for path in files:
        with wave.open(str(path)) as file:
            assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 16_000)
            sound = np.frombuffer(file.readframes(file.getnframes()), dtype="<i2")
        loudness = np.abs(sound[: len(sound) // 400 * 400].astype(int)).reshape(-1, 400).max(axis=1)
        assert 0.4 * 16_000 < len(sound) < 4 * 16_000
        assert 2_000 < loudness.max() < 32_000
        assert (loudness == 0).any()


@pytest.mark.parametrize("verbatim", [False, True])
def test_flac_decodes_to_what_went_in(verbatim: bool) -> None:
    rng = np.random.default_rng(1)
    slow = (8000 * np.sin(np.arange(9000) / 30)).astype(np.int16)
    noise = rng.integers(-32768, 32768, 4096).astype(np.int16)  # no predictor helps: stored as it is
    sound = np.concatenate([slow[:8192], noise, slow[:777]])
    data = sample.encode_flac(sound, verbatim=verbatim)
    stream, decoded, kinds = decode_flac(data)
    assert (decoded == sound).all()
    assert kinds == ([1, 1, 1, 1] if verbatim else [10, 10, 1, 10])
    assert (stream["rate"], stream["channels"], stream["bits"]) == (16_000, 1, 16)
    assert (stream["samples"], stream["blocks"]) == (len(sound), (4096, 4096))
    assert stream["md5"] == hashlib.md5(sound.astype("<i2").tobytes()).digest()


@pytest.mark.parametrize("sound", [[0], [5, -5], [32767, -32768] * 40, [0] * 5000, [-32768] * 17])
def test_flac_at_the_edges(sound: list[int]) -> None:
    _, decoded, _ = decode_flac(sample.encode_flac(np.array(sound, dtype=np.int16)))
    assert decoded.tolist() == sound


def test_frame_numbers_beyond_one_byte() -> None:
    sound = np.zeros(4096 * 130, dtype=np.int16)
    stream, decoded, kinds = decode_flac(sample.encode_flac(sound))
    assert (len(decoded), len(kinds), stream["samples"]) == (len(sound), 130, len(sound))


def test_flac_under_soundfile() -> None:
    soundfile = pytest.importorskip("soundfile", reason="the oracle environment has it, this one need not")
    sound = (9000 * np.sin(np.arange(20_000) / 11)).astype(np.int16)
    for verbatim in (False, True):
        data = sample.encode_flac(sound, verbatim=verbatim)
        decoded, rate = soundfile.read(io.BytesIO(data), dtype="int16")
        assert rate == 16_000
        assert (decoded == sound).all()


def test_nemo_tarred(corpus: Path) -> None:
    seen = []
    for shard in range(4):
        manifest = rows(corpus / "nemo_tarred" / f"manifest_{shard}.json")
        audio = members(corpus / "nemo_tarred" / f"audio_{shard}.tar")
        assert [row["audio_filepath"] for row in manifest] == [name for name, _ in audio]
        for row, (name, data) in zip(manifest, audio, strict=True):
            stream, decoded, _ = decode_flac(data)
            assert row["shard_id"] == shard
            assert row["sampling_rate"] == stream["rate"]
            assert row["duration"] == len(decoded) / 16_000
            assert row["text"]
            seen.append(name)
    assert sorted(seen) == [f"sample-{n:04d}.flac" for n in range(6)]


def test_shar_pairs_and_cuts(corpus: Path, tmp_path: Path) -> None:
    sample.make(tmp_path / "two", utterances=11)
    for folder, shards in ((corpus, 1), (tmp_path / "two", 2)):
        shar = folder / "shar"
        assert len(list(shar.iterdir())) == 2 * shards
        for shard in range(shards):
            cuts = rows(shar / f"cuts.{shard:06d}.jsonl")
            pairs = members(shar / f"recording.{shard:06d}.tar")
            assert [name for name, _ in pairs] == [c["id"] + end for c in cuts for end in (".flac", ".json")]
            for cut, (_, data), (_, meta) in zip(cuts, pairs[::2], pairs[1::2], strict=True):
                recording = json.loads(meta)
                assert recording == cut["recording"]
                assert data.startswith(b"fLaC")
                assert recording["duration"] == cut["duration"] == recording["num_samples"] / 16_000
                assert recording["sources"] == [{"type": "shar", "channels": [0], "source": ""}]


def test_loose_rows_point_at_files(corpus: Path) -> None:
    for row in rows(corpus / "manifest.jsonl"):
        assert (corpus / row["audio_filepath"]).is_file()
    for cut in rows(corpus / "cuts.jsonl"):
        assert (corpus / cut["recording"]["sources"][0]["source"]).is_file()
    conversations = rows(corpus / "text" / "conversation.jsonl")
    for turn in (turn for row in conversations for turn in row["conversations"] if turn["type"] == "audio"):
        assert (corpus / "text" / turn["value"]).is_file()
    assert len(conversations) == len(rows(corpus / "manifest.jsonl")) == len(rows(corpus / "cuts.jsonl")) == 2


def test_the_blend_names_what_is_there(corpus: Path) -> None:
    text = (corpus / "blend.yaml").read_text(encoding="utf-8")
    paths = [line.rsplit(" ", 1)[1] for line in text.splitlines() if "${data_blend_dir}/" in line]
    assert len(paths) == 6
    for path in paths:
        for shard in range(4):
            name = path.replace("${data_blend_dir}/", "").replace("_OP_0..3_CL_", str(shard))
            assert (corpus / name).exists()


def test_a_folder_in_use_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep", encoding="utf-8")
    with pytest.raises(BlendexError) as caught:
        sample.make(tmp_path)
    assert caught.value.code is Code.BAD_REQUEST
    assert caught.value.file == str(tmp_path)
    assert caught.value.next_step
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(BlendexError) as caught:
            sample.make(folder)
        assert caught.value.code is Code.BAD_REQUEST


def test_too_few_utterances(tmp_path: Path) -> None:
    with pytest.raises(BlendexError, match="tar shards"):
        sample.make(tmp_path / "new", utterances=3)
    assert not (tmp_path / "new").exists()


def test_it_needs_nothing_but_numpy_and_errors() -> None:
    """The sample is made before anything else is known to work."""
    tops = set()
    for node in ast.walk(ast.parse(Path(sample.__file__).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            tops |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            tops.add((node.module or "").partition(".")[0])
    assert tops - sys.stdlib_module_names == {"numpy", "blendex"}
