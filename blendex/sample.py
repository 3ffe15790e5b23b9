"""A small corpus to try things on: real audio bytes in the five layouts that a blend mixes.

Everything is made from whole numbers (a sine table, phase counters, a seeded generator), so one seed gives
the same bytes on every machine, whatever its floating point does.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import math
import random
import tarfile
import wave
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blendex.errors import BlendexError, Code

RATE = 16_000
TAR_SHARDS = 4
CUTS_PER_SHAR_SHARD = 10
#: one utterance of so many also lies there as a loose WAV
LOOSE_EVERY = 3

_WORDS = (
    "amber", "basil", "cedar", "ember", "fjord", "grove", "haven", "kettle", "lantern", "meadow",
    "orchard", "pebble", "ripple", "saddle", "timber", "upland", "velvet", "willow", "zephyr",
)  # fmt: skip

_BLEND = """\
# A small made-up corpus in five layouts. Give the folder of this file as data_blend_dir.
- type: nemo_tarred
  manifest_filepath: ${data_blend_dir}/nemo_tarred/manifest__OP_0..3_CL_.json
  tarred_audio_filepaths: ${data_blend_dir}/nemo_tarred/audio__OP_0..3_CL_.tar
  weight: 0.4
  tags: {corpus: tarred}
- type: lhotse_shar
  shar_path: ${data_blend_dir}/shar
  weight: 0.3
- type: group
  weight: 0.3
  input_cfg:
    - type: nemo
      manifest_filepath: ${data_blend_dir}/manifest.jsonl
      weight: 0.5
    - type: lhotse
      cuts_path: ${data_blend_dir}/cuts.jsonl
      weight: 0.25
    - type: multimodal_conversation
      manifest_filepath: ${data_blend_dir}/text/conversation.jsonl
      audio_locator_tag: "<audio>"
      weight: 0.25
"""

Samples = NDArray[np.int16]


@dataclass(frozen=True)
class Utterance:
    """One clip: its name, what is said to be said in it, and its samples."""

    id: str
    text: str
    samples: Samples

    @property
    def duration(self) -> float:
        """Seconds."""
        return len(self.samples) / RATE


def make(folder: Path, *, utterances: int = 24, seed: int = 7) -> Path:
    """Write the sample corpus.

    Args:
        folder: where to; made when it is not there, refused when something is in it.
        utterances: how many clips, at least one for each tar shard.
        seed: another number gives other clips and other texts.

    Returns:
        The blend over the corpus, ``folder/blend.yaml``. It is written last.

    Raises:
        BlendexError: the folder is not empty or cannot be written, or ``utterances`` is too small.
    """
    if utterances < TAR_SHARDS:
        raise BlendexError(
            Code.BAD_REQUEST,
            f"A sample of {utterances} utterances leaves tar shards empty.",
            next_step=f"Ask for at least {TAR_SHARDS}.",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise BlendexError(
                Code.BAD_REQUEST,
                "The folder for the sample is not empty.",
                file=str(folder),
                next_step="Name a new folder, or remove this one first.",
            )
        return _write(folder, _speak_all(utterances, seed))
    except OSError as error:
        raise BlendexError(
            Code.NO_SPACE if error.errno in {errno.ENOSPC, errno.EDQUOT} else Code.BAD_REQUEST,
            f"The sample cannot be written: {error.strerror}.",
            file=str(error.filename or folder),
            next_step="Name a folder that can be made and written to.",
        ) from error


def _write(folder: Path, clips: list[Utterance]) -> Path:
    flac = {clip.id: encode_flac(clip.samples) for clip in clips}
    loose = clips[::LOOSE_EVERY]
    for name in ("nemo_tarred", "shar", "wav", "text"):
        (folder / name).mkdir()
    for clip in loose:
        (folder / "wav" / f"{clip.id}.wav").write_bytes(encode_wav(clip.samples))

    for shard in range(TAR_SHARDS):
        members = clips[shard::TAR_SHARDS]
        _write_jsonl(
            folder / "nemo_tarred" / f"manifest_{shard}.json",
            [{**_nemo_row(clip, f"{clip.id}.flac"), "shard_id": shard} for clip in members],
        )
        _write_tar(folder / "nemo_tarred" / f"audio_{shard}.tar", [(f"{c.id}.flac", flac[c.id]) for c in members])

    for shard, first in enumerate(range(0, len(clips), CUTS_PER_SHAR_SHARD)):
        members = clips[first : first + CUTS_PER_SHAR_SHARD]
        cuts = [_cut(clip, "shar", "") for clip in members]
        _write_jsonl(folder / "shar" / f"cuts.{shard:06d}.jsonl", cuts)
        pairs: list[tuple[str, bytes]] = []
        for clip in members:  # the reader expects the data first, then what describes it
            pairs.append((f"{clip.id}.flac", flac[clip.id]))
            pairs.append((f"{clip.id}.json", _dump(_recording(clip, "shar", "")).encode()))
        _write_tar(folder / "shar" / f"recording.{shard:06d}.tar", pairs)

    _write_jsonl(folder / "manifest.jsonl", [_nemo_row(clip, f"wav/{clip.id}.wav") for clip in loose])
    _write_jsonl(folder / "cuts.jsonl", [_cut(clip, "file", f"wav/{clip.id}.wav") for clip in loose])
    _write_jsonl(folder / "text" / "conversation.jsonl", [_conversation(clip) for clip in loose])
    blend = folder / "blend.yaml"
    blend.write_text(_BLEND, encoding="utf-8")
    return blend


# --- rows ---


def _nemo_row(clip: Utterance, path: str) -> dict[str, Any]:
    return {
        "audio_filepath": path,
        "duration": clip.duration,
        "text": clip.text,
        "sampling_rate": RATE,
        "lang": "en",
    }


def _recording(clip: Utterance, source_type: str, source: str) -> dict[str, Any]:
    return {
        "id": clip.id,
        "sources": [{"type": source_type, "channels": [0], "source": source}],
        "sampling_rate": RATE,
        "num_samples": len(clip.samples),
        "duration": clip.duration,
        "channel_ids": [0],
    }


def _cut(clip: Utterance, source_type: str, source: str) -> dict[str, Any]:
    supervision = {
        "id": clip.id,
        "recording_id": clip.id,
        "start": 0,
        "duration": clip.duration,
        "channel": 0,
        "text": clip.text,
        "language": "en",
    }
    return {
        "id": clip.id,
        "start": 0,
        "duration": clip.duration,
        "channel": 0,
        "supervisions": [supervision],
        "recording": _recording(clip, source_type, source),
        "type": "MonoCut",
    }


def _conversation(clip: Utterance) -> dict[str, Any]:
    # Paths in a row are relative to the file that holds the row, and this one lies in text/.
    audio = f"../wav/{clip.id}.wav"
    return {
        "id": f"conversation-{clip.id}",
        "conversations": [
            {"from": "User", "type": "text", "value": "Write down what you hear."},
            {"from": "User", "type": "audio", "value": audio, "duration": clip.duration},
            {"from": "Assistant", "type": "text", "value": clip.text},
        ],
    }


def _dump(row: dict[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False)


def _write_jsonl(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_bytes("".join(_dump(row) + "\n" for row in rows).encode())


def _write_tar(path: Path, members: list[tuple[str, bytes]]) -> None:
    """Plain USTAR without times, owners or modes of this machine."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


# --- sound ---

_TABLE_BITS = 12
_SINE = np.array(
    [round(32767 * math.sin(2 * math.pi * i / (1 << _TABLE_BITS))) for i in range(1 << _TABLE_BITS)],
    dtype=np.int64,
)


def _speak_all(count: int, seed: int) -> list[Utterance]:
    rng = random.Random(seed)  # noqa: S311 — a sample needs the same numbers again, not secret ones
    clips = []
    for number in range(count):
        words = [rng.choice(_WORDS) for _ in range(rng.randint(2, 5))]
        clips.append(Utterance(f"sample-{number:04d}", " ".join(words), _speak(words, rng)))
    return clips


def _speak(words: list[str], rng: random.Random) -> Samples:
    """A voice-like sound for each word, silence between: some hiss, then a gliding tone with overtones."""
    pitch = rng.randint(90, 210)
    parts = [np.zeros(rng.randint(400, 1200), dtype=np.int64)]
    for word in words:
        length = RATE * (80 + 25 * len(word)) // 1000
        parts += [_word(length, pitch, rng), np.zeros(rng.randint(600, 2400), dtype=np.int64)]
    return np.concatenate(parts).astype(np.int16)


def _word(length: int, pitch: int, rng: random.Random) -> NDArray[np.int64]:
    steps = np.arange(length, dtype=np.int64)
    # Phase is counted in 2**-32 turns; its step rises or falls over the word, since speech holds no note.
    first = (pitch << 32) // RATE
    last = first * rng.randint(80, 125) // 100
    phase = np.cumsum(first + (last - first) * steps // length)
    tone = np.zeros(length, dtype=np.int64)
    for overtone in range(1, 9):
        angle = (phase * overtone >> (32 - _TABLE_BITS)) & ((1 << _TABLE_BITS) - 1)
        tone += _SINE[angle] * rng.randint(0, 12 - overtone)
    hiss = np.frombuffer(rng.randbytes(2 * length), dtype="<i2").astype(np.int64)
    hiss = np.where(steps < length // 6, hiss, hiss // 64)  # a consonant, then breath
    swell = np.minimum(np.minimum(steps, length - 1 - steps) * 8, length)  # up in an eighth, down in one
    sound: NDArray[np.int64] = (tone // 16 + hiss // 4) * swell // (8 * length)
    return sound


def encode_wav(samples: Samples) -> bytes:
    """Mono 16-bit PCM in a RIFF file."""
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(samples.astype("<i2").tobytes())
    return out.getvalue()


# --- FLAC (RFC 9639): as much of it as mono 16-bit speech needs ---

_BLOCK = 4096
_SUBFRAME_VERBATIM = 0b0_000001_0
_SUBFRAME_FIXED_2 = 0b0_001010_0
#: A Rice parameter has four bits and 15 means something else.
_MAX_RICE = 14


def encode_flac(samples: Samples, *, verbatim: bool = False) -> bytes:
    """Mono 16-bit FLAC at 16 kHz.

    Each block is predicted from its last two samples and the errors are Rice coded; a block that this would
    not make smaller is stored as it is.

    Args:
        samples: the sound, at least one sample.
        verbatim: store every block as it is (a test decodes such frames with a dozen lines).
    """
    blocks = [samples[at : at + _BLOCK] for at in range(0, len(samples), _BLOCK)]
    frames = [_frame(number, block, verbatim) for number, block in enumerate(blocks)]
    sizes = [len(frame) for frame in frames]
    # Rate (20 bits), channels - 1 (3), bits per sample - 1 (5), samples (36)
    fields = RATE << 44 | 0 << 41 | 15 << 36 | len(samples)
    info = b"".join(
        (
            _BLOCK.to_bytes(2, "big") * 2,
            min(sizes).to_bytes(3, "big"),
            max(sizes).to_bytes(3, "big"),
            fields.to_bytes(8, "big"),
            # A checksum that the format fixes; nothing is protected by it.
            hashlib.md5(samples.astype("<i2").tobytes(), usedforsecurity=False).digest(),
        )
    )
    # 0x80: the last block of metadata, of type 0
    return b"fLaC" + b"\x80" + len(info).to_bytes(3, "big") + info + b"".join(frames)


def _frame(number: int, block: Samples, verbatim: bool) -> bytes:
    full = len(block) == _BLOCK
    header = bytearray(b"\xff\xf8")  # sync, blocks of one size
    header.append((0b1100 if full else 0b0111) << 4 | 0b0101)  # 4096 samples, or their number below; 16 kHz
    header.append(0b0000_100_0)  # one channel, 16 bits
    header += _coded_number(number)
    if not full:
        header += (len(block) - 1).to_bytes(2, "big")
    header.append(_crc(header, _CRC8, 8))
    stored = bytes([_SUBFRAME_VERBATIM]) + block.astype(">i2").tobytes()
    body = stored if verbatim or len(block) <= 2 else min(_predicted(block), stored, key=len)
    frame = bytes(header) + body
    return frame + _crc(frame, _CRC16, 16).to_bytes(2, "big")


def _predicted(block: Samples) -> bytes:
    """The block as a fixed-predictor subframe of order 2, in one Rice partition."""
    x = block.astype(np.int64)
    error = x[2:] - 2 * x[1:-1] + x[:-2]
    folded = np.where(error >= 0, 2 * error, -2 * error - 1)  # 0, -1, 1, -2 … become 0, 1, 2, 3 …
    # Bits for parameter k: a stop bit and k bits each, and what is left of the value in unary.
    cost = [int((folded >> k).sum()) + len(folded) * (k + 1) for k in range(_MAX_RICE + 1)]
    k = cost.index(min(cost))
    prefix = (
        _bits(_SUBFRAME_FIXED_2, 8) + _bits(int(x[0]), 16) + _bits(int(x[1]), 16)
        # coding method 0, partition order 0, the parameter
        + _bits(0, 2) + _bits(0, 4) + _bits(k, 4)
    )  # fmt: skip
    bits = np.zeros(cost[k], dtype=np.uint8)
    ends = np.cumsum((folded >> k) + 1 + k)
    bits[ends - 1 - k] = 1
    for bit in range(k):
        bits[ends - 1 - bit] = folded >> bit & 1
    return np.packbits(np.concatenate([np.array(prefix, dtype=np.uint8), bits])).tobytes()


def _bits(value: int, width: int) -> list[int]:
    return [value >> bit & 1 for bit in range(width - 1, -1, -1)]


def _coded_number(number: int) -> bytes:
    """UTF-8's way of writing a number; 2**16 blocks, the most it writes here, are four hours."""
    return chr(number).encode("utf-8", "surrogatepass")


def _crc_table(polynomial: int, width: int) -> list[int]:
    table = []
    for byte in range(256):
        value = byte << (width - 8)
        for _ in range(8):
            value = (value << 1) ^ (polynomial if value >> (width - 1) else 0)
            value &= (1 << width) - 1
        table.append(value)
    return table


_CRC8 = _crc_table(0x07, 8)
_CRC16 = _crc_table(0x8005, 16)


def _crc(data: bytes | bytearray, table: list[int], width: int) -> int:
    value, mask, shift = 0, (1 << width) - 1, width - 8
    for byte in data:
        value = (value << 8 & mask) ^ table[value >> shift ^ byte]
    return value
