"""Random and damaged archives through every kind of tar: equal to Python's tarfile, or an error, and nothing else."""

from __future__ import annotations

import io
import json
import random
import sys
import tarfile
import time
from pathlib import Path, PurePosixPath

# The tests of formats are modules of a folder, not of a package.
sys.path.insert(0, str(Path(__file__).parent.parent / "formats"))

import test_formats_tar as archives
from formats_help import Memory, gen, tarfile_members

from blendex.errors import BlendexError
from blendex.formats.kinds import Origin, build, files_of

MOST_SECONDS = 2.0  # for one archive of some kilobytes, on a busy machine


def random_samples(pick: random.Random) -> bytes:
    """An archive of WebDataset samples, most of them whole."""
    entries: list[tuple[str, bytes]] = []
    for number in range(pick.randint(0, 5)):
        folder = pick.choice(["", "", "s/", "d" * 120 + "/"])
        key = f"{folder}{pick.choice('abc')}{number if pick.random() < 0.9 else ''}"
        sample = [(f"{key}.json", pick.choice([b"{}", b'{"id": 1}', b"[]", b"{"] if pick.random() < 0.1 else [b"{}"]))]
        sample += [(f"{key}.{n}.wav", pick.randbytes(pick.choice([0, 1, 600]))) for n in range(pick.randint(0, 2) or 1)]
        pick.shuffle(sample)
        entries += sample
    form = pick.choice([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
    if form == tarfile.USTAR_FORMAT:
        entries = [(name[-90:], data) for name, data in entries]
    made: bytes = gen.tar(entries, form)
    return made


def sample_rule(data: bytes) -> list[int] | None:
    """The offsets of ``create_wds_v2_tar_index`` (NeMo Speech main) by Python's tarfile; None where it refuses."""
    offsets: list[int] = []
    names: set[str] = set()
    closed: set[str] = set()
    open_key: str | None = None
    counts = [0, 0]
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for info in archive:
                if not info.isreg():
                    continue
                name = info.name
                path = PurePosixPath(name)
                base = path.name
                dot = base.find(".")
                if not name or name.startswith("/") or {".", ".."} & set(name.split("/")) or name in names:
                    return None
                if not 0 < dot < len(base) - 1:
                    return None
                names.add(name)
                key = str(path.parent / base[:dot])
                if key != open_key:
                    if key in closed or (open_key is not None and (counts[0] != 1 or not counts[1])):
                        return None
                    open_key, counts = key, [0, 0]
                    closed.add(key)
                    offsets.append(info.offset)
                counts[not name.endswith(".json")] += 1
                if name.endswith(".json"):
                    member = archive.extractfile(info)
                    if member is None or not isinstance(json.loads(member.read()), dict):
                        return None
    except Exception:  # whatever it raises on hostile input
        return None
    return None if open_key is not None and (counts[0] != 1 or not counts[1]) else offsets


def check_samples(data: bytes) -> bool:
    """Whether the archive was indexed as samples; where it was, as upstream's rule says."""
    stored = bytearray()
    refusal = None
    try:
        summary = build("wds_tar_v2", Memory(data), stored.extend)
    except BlendexError as error:
        refusal = error
    if refusal is not None:
        assert refusal.byte is not None
        assert 0 <= refusal.byte <= len(data)
        return False
    index, _ = files_of("wds_tar_v2", bytes(stored), Origin("/a.tar", len(data), 1))
    offsets = [int.from_bytes(index[at : at + 8], "little") for at in range(0, len(index), 8)]
    assert offsets.pop() == len(data)
    assert summary.records == len(offsets)
    if not {finding.name for finding in summary.findings} & {"sparse_member", "pax_size", "contiguous_member"}:
        assert offsets == sample_rule(data)
    return True


def one(pick: random.Random) -> str:
    """One archive; what became of it."""
    if pick.random() < 0.3:
        data = random_samples(pick)
        if pick.random() < 0.7:
            data = archives.corrupt(pick, data)
        started = time.process_time()
        taken = check_samples(data)
    else:
        data = archives.crafted(pick) if pick.random() < 0.3 else archives.corrupt(pick, archives.random_tar(pick, 6))
        started = time.process_time()
        taken = archives.agrees(data)
        if tarfile_members(data) is not None:
            check_samples(data)
    assert time.process_time() - started < MOST_SECONDS, "it took too long"
    return "indexed" if taken else "refused"
