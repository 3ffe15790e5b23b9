"""Does upstream read, through a mirror, exactly what lies in the sources?

    python read_mirror.py MIRROR BLEND DATA_DIR

Runs in the environment that scripts/oracle-env.sh makes: lhotse and nemo-toolkit as published, nothing of
Blendex. Every record of every source of the blend is read by upstream's random-access readers with
``indexes_root=MIRROR/idx`` and compared with a plain sequential read of the same file; all audio is decoded.
Each sidecar must also pass the rule by which upstream decides whether to build it again. Exits with 1 after
naming everything that is wrong.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import json
import os
import re
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import soundfile
from lhotse import indexing
from lhotse.indexing import IndexedJsonlReader, IndexedTarReader, index_file_path, read_index
from lhotse.lazy import LazyIndexedManifestIterator, LazyManifestIterator
from lhotse.shar.readers.indexed import LazyIndexedSharIterator
from lhotse.shar.readers.lazy import LazySharIterator
from omegaconf import OmegaConf

#: types of blend entry whose rows are JSON and nothing else that this script knows how to decode
_TEXT_TYPES = {"multimodal_conversation", "txt_jsonl", "nemotron_text_converation"}


def nemo_adapters() -> ModuleType:
    """NeMo's readers by file path: importing the package would want all of Lightning."""
    base = importlib.util.find_spec("nemo")
    assert base is not None
    assert base.submodule_search_locations is not None
    package = Path(next(iter(base.submodule_search_locations)))
    file = package / "collections/common/data/lhotse/indexed_adapters.py"
    spec = importlib.util.spec_from_file_location("nemo_indexed_adapters", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def refuse_to_build(offsets: list[int], path: str | Path) -> None:
    """In place of upstream's writer: a reader that misses an index would make one somewhere and read that."""
    raise RuntimeError(f"a reader wanted to build {path}")


nemo = nemo_adapters()
indexing._write_index = refuse_to_build


@dataclass
class Report:
    """Counts what was read and collects what is wrong."""

    wrong: list[str] = field(default_factory=list)
    sources: dict[str, int] = field(default_factory=dict)
    records: int = 0
    clips: int = 0

    def check(self, right: object, text: str) -> bool:
        if not right:
            self.wrong.append(text)
        return bool(right)

    def decode(self, data: bytes | Path, duration: float, name: str) -> None:
        """Decode one clip; its length must be what the row says, to 2 ms (rows round)."""
        try:
            sound, rate = soundfile.read(io.BytesIO(data) if isinstance(data, bytes) else data)
        except (OSError, RuntimeError) as error:
            self.wrong.append(f"{name}: cannot be decoded: {error}")
            return
        length = len(sound) / rate
        self.check(abs(length - duration) < 0.002, f"{name}: {length} s, not {duration} s")
        self.check(np.abs(sound).max() > 0, f"{name}: silence")
        self.clips += 1


class Mirror:
    """The index rule of upstream over one mirror, and its freshness rule."""

    def __init__(self, root: Path, report: Report) -> None:
        self.root, self.report = root / "idx", report

    def sidecar(self, kind: str, path: str) -> Path | None:
        """The sidecar of ``path`` when it is there and upstream would keep it."""
        index = Path(index_file_path(path, self.root))
        report = self.report
        report.sources[kind] = report.sources.get(kind, 0) + 1
        if not report.check(index.is_file(), f"{path}: no sidecar at {index}"):
            return None
        size = index.stat().st_size
        if not report.check(size >= 8 and size % 8 == 0, f"{index}: {size} bytes"):
            return None
        offsets = read_index(index)
        source = os.stat(path)
        report.check((np.diff(offsets.astype(np.int64)) >= 0).all(), f"{index}: offsets decrease")
        report.check(int(offsets[-1]) == source.st_size, f"{index}: sentinel is not the size of {path}")
        report.check(index.stat().st_mtime_ns >= source.st_mtime_ns, f"{index}: older than {path}")
        return index


def jsonl(mirror: Mirror, path: str) -> list[Any]:
    """All rows, after every reader gave the same ones. Empty when the sidecar is unusable."""
    index = mirror.sidecar("jsonl", path)
    if index is None:
        return []
    plain = [json.loads(line) for line in Path(path).read_bytes().split(b"\n") if line.strip()]
    for name, reader in (
        ("lhotse", IndexedJsonlReader(path, auto_create_index=False, index_path=index)),
        ("nemo", nemo.IndexedJSONLReader(path, index)),
    ):
        # Backwards, so that no reader can get along by reading on.
        rows = [reader[i] for i in reversed(range(len(reader)))][::-1]
        text = f"{path}: {name} reads {len(rows)} rows that are not the {len(plain)} of the file"
        mirror.report.check(rows == plain, text)
    mirror.report.records += len(plain)
    return plain


def members(path: str) -> list[tuple[str, bytes]]:
    """Name and bytes of every file in a tar, read from its start."""
    with tarfile.open(path, "r:") as tar:
        return [(item.name, tar.extractfile(item).read()) for item in tar if item.isreg()]  # type: ignore[union-attr]


def nemo_tar(mirror: Mirror, path: str, rows: list[Any]) -> None:
    """Row i of the manifest is record i of the tar."""
    index = mirror.sidecar("nemo_tar", path)
    if index is None:
        return
    report = mirror.report
    plain = members(path)
    offsets, count = nemo._load_index(path, str(index))
    text = f"{path}: {count} records, {len(plain)} members, {len(rows)} rows"
    report.check(count == len(plain) == len(rows), text)
    with open(path, "rb") as file:
        for i in reversed(range(min(count, len(plain), len(rows)))):
            file.seek(int(offsets[i]))
            name, data = nemo._read_tar_member(file)
            report.check((name, data) == plain[i], f"{path}: record {i} is {name}, not {plain[i][0]}")
            report.check(name == rows[i]["audio_filepath"], f"{path}: record {i} is not of row {i}")
            report.decode(data, rows[i]["duration"], f"{path}:{name}")
    report.records += count


def wds_tar(mirror: Mirror, path: str) -> None:
    """Pairs of data and description, by both upstreams' readers."""
    index = mirror.sidecar("wds_tar", path)
    if index is None:
        return
    report = mirror.report
    plain = members(path)
    pairs = list(zip(plain[::2], plain[1::2], strict=True))
    theirs = IndexedTarReader(path, auto_create_index=False, index_path=index)
    other = nemo.IndexedTarSampleReader(path, index)
    text = f"{path}: {len(theirs)} and {len(other)} records for {len(pairs)} pairs"
    if not report.check(len(theirs) == len(other) == len(pairs), text):
        return
    for i in reversed(range(len(pairs))):
        (name, data), (_, meta) = pairs[i]
        recording, where = theirs[i]
        description = json.loads(meta)
        report.check(str(where) == name, f"{path}: lhotse's pair {i} is {where}")
        same = recording is not None and recording.id == description["id"]
        report.check(same, f"{path}: pair {i} has another id")
        sample = other[i]
        report.check(
            (sample.json_data, sample.audio_bytes, sample.audio_name) == (description, data, name),
            f"{path}: nemo's pair {i} is {sample.audio_name}",
        )
        report.decode(data, description["duration"], f"{path}:{name}")
    report.records += len(pairs)


def shar(mirror: Mirror, folder: str) -> None:
    """The files one by one, then the set as training reads it."""
    for file in sorted(Path(folder).iterdir()):
        if file.name.endswith(".jsonl"):
            jsonl(mirror, str(file))
        elif file.name.endswith(".tar"):
            wds_tar(mirror, str(file))
    plain = list(LazySharIterator(in_dir=folder))
    # By fields: lhotse 2.0.0a7 given in_dir and indexes_root together does not look below indexes_root, but
    # in a folder of the current one that is named after the text of a dict, and builds indexes there.
    names = sorted(str(file) for file in Path(folder).iterdir() if file.suffix in {".jsonl", ".tar"})
    fields: dict[str, list[str]] = {}
    for name in names:
        fields.setdefault(Path(name).name.partition(".")[0], []).append(name)
    indexed = LazyIndexedSharIterator(fields=fields, indexes_root=mirror.root)
    mirror.report.check(len(indexed) == len(plain), f"{folder}: {len(indexed)} cuts, not {len(plain)}")
    for i in reversed(range(min(len(indexed), len(plain)))):
        cut = indexed[i]
        mirror.report.check(cut.id == plain[i].id, f"{folder}: cut {i} is {cut.id}, not {plain[i].id}")
        same = np.array_equal(cut.load_audio(), plain[i].load_audio())
        mirror.report.check(same, f"{folder}: {cut.id} sounds different through the mirror")


def cuts(mirror: Mirror, path: str, data_dir: Path) -> None:
    """Cuts over loose files, whose relative paths count from the corpus."""
    jsonl(mirror, path)
    index = Path(index_file_path(path, mirror.root))
    if not index.is_file():
        return
    plain = list(LazyManifestIterator(path))
    indexed = list(LazyIndexedManifestIterator(path, index_path=index))
    same = [cut.id for cut in indexed] == [cut.id for cut in plain]
    mirror.report.check(same, f"{path}: other cuts through the mirror")
    for cut in indexed:
        source = cut.recording.sources[0].source
        mirror.report.decode(data_dir / source, cut.recording.duration, source)


def beside(row_file: str, data_dir: Path, path: str) -> Path:
    """A path in a row: relative to the file of the row, else to the corpus."""
    near = Path(row_file).parent / path
    return near if near.exists() else data_dir / path


def expand(pattern: str) -> list[str]:
    """The one kind of pattern that these blends use: ``_OP_a..b_CL_``."""
    found = re.fullmatch(r"(.*)_OP_(\d+)\.\.(\d+)_CL_(.*)", pattern)
    if found is None:
        return [pattern]
    head, first, last, tail = found.groups()
    return [f"{head}{i}{tail}" for i in range(int(first), int(last) + 1)]


def leaves(entries: list[Any]) -> Iterator[dict[str, Any]]:
    """The entries that name files."""
    for entry in entries:
        if entry["type"] == "group":
            yield from leaves(entry["input_cfg"])
        else:
            yield entry


def read_entry(mirror: Mirror, entry: dict[str, Any], data_dir: Path) -> None:
    """Read every source of one leaf of the blend."""
    kind = entry["type"]
    if kind == "lhotse_shar":
        shar(mirror, entry["shar_path"])
    elif kind == "lhotse":
        cuts(mirror, entry["cuts_path"], data_dir)
    elif kind == "nemo_tarred":
        manifests, tars = expand(entry["manifest_filepath"]), expand(entry["tarred_audio_filepaths"])
        for manifest, tar in zip(manifests, tars, strict=True):
            nemo_tar(mirror, tar, jsonl(mirror, manifest))
    elif kind == "nemo":
        for manifest in expand(entry["manifest_filepath"]):
            for row in jsonl(mirror, manifest):
                clip = beside(manifest, data_dir, row["audio_filepath"])
                mirror.report.decode(clip, row["duration"], row["audio_filepath"])
    elif kind in _TEXT_TYPES:
        for manifest in expand(entry.get("manifest_filepath") or entry["paths"]):
            for row in jsonl(mirror, manifest):
                for turn in row["conversations"]:
                    if turn.get("type") == "audio":
                        clip = beside(manifest, data_dir, turn["value"])
                        mirror.report.decode(clip, turn["duration"], turn["value"])
    else:
        mirror.report.wrong.append(f"this script does not know entries of type {kind}")


def listing(folder: Path) -> list[tuple[str, int, int]]:
    """Everything in a mirror: a reader that wrote into it would show."""
    return sorted(
        (str(p.relative_to(folder)), p.stat().st_size, p.stat().st_mtime_ns) for p in folder.rglob("*") if p.is_file()
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("mirror", type=Path)
    parser.add_argument("blend", type=Path)
    parser.add_argument("data_dir", type=Path)
    asked = parser.parse_args()
    data_dir = asked.data_dir.absolute()

    wrapped = OmegaConf.create({"data_blend_dir": str(data_dir), "input_cfg": OmegaConf.load(asked.blend)})
    blend = OmegaConf.to_container(wrapped, resolve=True)
    assert isinstance(blend, dict)

    report = Report()
    mirror = Mirror(asked.mirror.absolute(), report)
    before = listing(mirror.root)
    for entry in leaves(blend["input_cfg"]):
        try:
            read_entry(mirror, entry, data_dir)
        except Exception as error:  # a reader that gives up is a finding like any other
            report.wrong.append(f"{entry['type']}: {type(error).__name__}: {error}")
    report.check(listing(mirror.root) == before, f"{mirror.root}: reading changed the mirror")
    count = sum(report.sources.values())
    report.check(len(before) == count, f"{mirror.root}: {len(before)} files for {count} sources")

    for text in report.wrong:
        print(f"WRONG {text}", file=sys.stderr)
    kinds = ", ".join(f"{n} {kind}" for kind, n in sorted(report.sources.items()))
    print(
        f"lhotse {version('lhotse')}, nemo-toolkit {version('nemo-toolkit')}: {count} sources ({kinds}), "
        f"{report.records} records, {report.clips} clips decoded, {len(report.wrong)} wrong"
    )
    return 1 if report.wrong or not report.records or not report.clips else 0


if __name__ == "__main__":
    sys.exit(main())
