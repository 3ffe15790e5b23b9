"""Sources to measure with: generated, the same bytes each time, no speech."""

from __future__ import annotations

import io
import json
import random
import tarfile
from pathlib import Path

MB = 1_000_000


def manifest(path: Path, line: int, size: int) -> Path:
    """A manifest of about ``size`` bytes whose lines have ``line`` bytes in the mean, between 2/3 and 4/3 of it."""
    pick = random.Random(line)
    rows = []
    for number in range(max(8 * MB // line, 50)):
        row = {"audio_filepath": f"/data/corpus/part_{number % 97}/utt_{number:09d}.wav", "duration": 12.25, "text": ""}
        rest = max(pick.randint(line * 2 // 3, line * 4 // 3) - len(json.dumps(row)) - 1, 0)
        row["text"] = "speech has words " * (rest // 17) + "x" * (rest % 17)
        rows.append(json.dumps(row).encode() + b"\n")
    block = b"".join(rows)
    with path.open("wb") as file:
        for _ in range(max(size // len(block), 1)):
            file.write(block)
    return path


def shard(path: Path, low: int, high: int, size: int, *, pairs: bool) -> Path:
    """A tar of about ``size`` bytes with an even number of members of ``low`` to ``high`` bytes.

    Args:
        path: where to.
        low: fewest bytes of a member of audio.
        high: most bytes of one.
        size: of the archive.
        pairs: follow each with 400 bytes of metadata, as in Shar.
    """
    pick = random.Random(low)
    noise = pick.randbytes(high)
    metadata = json.dumps({"id": "utterance", "note": "m" * 370}).encode()
    count = 2 * (size // (low + high))
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for number in range(count):
            _add(archive, f"audio/utt_{number:07d}.wav", noise[: pick.randint(low, high)])
            if pairs:
                _add(archive, f"audio/utt_{number:07d}.json", metadata)
    return path


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))
