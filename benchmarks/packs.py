"""Measures packs against lhotse's ``write_index_pack`` in one process, and fails when they are not as fast.

    python benchmarks/packs.py --oracle .venv-oracle/bin/python

Three ways to the same file, byte for byte: lhotse from loose sidecars, ours from loose sidecars, ours from bundles.
A stat of every source, the checks and the flush of the finished pack count on all sides. The limit of packing files is
to stat every source and to open, read and close every sidecar; the floor of packing bundles is to stat every source, to
read the bundles, to take checksums of as many bytes as go into the pack, to write and to flush these. Memory is that
of a whole unit, in a process of its own.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import platform
import random
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
GATES = {"files": 4.0, "bundles": 12.0}
UNIT = 512  # sources in one bundle
BUFFER_MB = 100.0


class Corpus:
    """Empty sources of the right sizes, their sidecars, and bundles of the same sidecars."""

    def __init__(self, folder: Path, count: int) -> None:
        import numpy as np
        from blake3 import blake3

        from blendex.formats.bundle import BundleWriter
        from blendex.units.pack import Packed, Sources

        self.folder = folder
        self.spec = f"{folder}/src/{{0..{count - 1}}}.jsonl"
        self.paths = [f"{folder}/src/{number}.jsonl" for number in range(count)]
        packed: list[Packed] = []
        (folder / "src").mkdir(parents=True)
        (folder / "idx").mkdir()
        for path in self.paths:
            Path(folder, "idx" + path).parent.mkdir(parents=True, exist_ok=True)
            break
        chance = random.Random(7)
        writer, bundle = None, ""
        for number, path in enumerate(self.paths):
            if number % UNIT == 0:
                if writer is not None:
                    writer.finish()
                bundle = f"{folder}/{number // UNIT}.bundle"
                writer = BundleWriter(bundle)
            assert writer is not None
            records = chance.randint(50, 350)
            offsets = np.arange(records + 1, dtype="<u8") * 300
            data = offsets.tobytes()
            with open(path, "wb") as file:
                file.truncate(int(offsets[-1]))
            Path(f"{folder}/idx{path}.idx").write_bytes(data)
            writer.begin()
            writer.write(data)
            # As many bytes of names as a manifest with rows of audio leaves.
            entry: dict[str, Any] = {"facts": {}}
            writer.commit(entry, os.urandom(records * 6))
            digest = blake3(data).hexdigest()
            packed.append(
                Packed(
                    "jsonl", path, bundle, entry["offset"], entry["length"], digest, int(offsets[-1]), entry["crc"], 1
                )
            )
        if writer is not None:
            writer.finish()
        self.sources = Sources(packed)


def lhotse(corpus: Corpus, target: Path) -> None:
    """Upstream's writer, which flushes file and folder itself."""
    from lhotse.index_pack import IndexPackCollectionSpec, write_index_pack

    spec = IndexPackCollectionSpec(role="manifest", kind="jsonl", source_spec=corpus.spec, paths=tuple(corpus.paths))
    write_index_pack(target, [spec], indexes_root=corpus.folder / "idx")


def from_files(corpus: Corpus, target: Path) -> None:
    from blendex.formats.pack import Collection
    from blendex.formats.packfiles import pack_files

    root = f"{corpus.folder}/idx"
    collection = Collection("manifest", "jsonl", corpus.spec, tuple(corpus.paths))
    pack_files(str(target), [collection], lambda path: f"{root}{path}.idx")
    flush_folder(target.parent)


def from_bundles(corpus: Corpus, target: Path) -> None:
    from blendex.formats.pack import Collection
    from blendex.formats.packwriter import PackWriter
    from blendex.units.pack import Bundles, give_sidecars

    if [os.stat(path).st_size for path in corpus.paths] != corpus.sources.sizes.tolist():
        raise SystemExit("a source changed")
    collection = Collection("manifest", "jsonl", corpus.spec, tuple(corpus.paths))
    descriptor = os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644)
    writer = PackWriter(descriptor, [collection])
    bundles = Bundles(lambda name: name)
    give_sidecars(writer, corpus.sources, bundles)
    bundles.close()
    writer.finish()
    os.fsync(descriptor)
    os.close(descriptor)
    flush_folder(target.parent)


def limit(corpus: Corpus, _: Path) -> None:
    root = f"{corpus.folder}/idx"
    for path in corpus.paths:
        os.stat(path)
        descriptor = os.open(f"{root}{path}.idx", os.O_RDONLY)
        os.read(descriptor, 1 << 16)
        os.close(descriptor)


def flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def floor(corpus: Corpus, target: Path) -> None:
    """What no packer from bundles can do without, in Python: stat, read, checksums, write, flush."""
    for path in corpus.paths:
        os.stat(path)
    sources = corpus.sources
    with open(target, "xb", buffering=0) as file:
        for at, end in sources.windows():
            descriptor = os.open(sources.objects[at], os.O_RDONLY)
            start = int(sources.offsets[at])
            data = os.pread(descriptor, int(sources.offsets[end - 1] + sources.lengths[end - 1]) - start, start)
            os.close(descriptor)
            sidecars = memoryview(data)[: int(sources.lengths[at:end].sum())]  # as if they lay side by side
            zlib.crc32(sidecars)
            file.write(sidecars)
        os.fsync(file.fileno())


UNIT_OF_PACKS = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from blendex.units.pack import run
made = run({"root": sys.argv[2], "attempt": "bench.1-1", "job": sys.argv[3]}, lambda _: None)
assert made["counts"]["segments"] == int(sys.argv[4]), made
print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
"""


def peak_memory(folder: Path, count: int) -> float:
    """Peak in MB of a new process that does a whole unit: job, bundles, pack, SHA-256, object."""
    import struct

    import orjson

    from blendex.formats.bundle import BundleWriter
    from blendex.storage.root import Root

    root = Root(folder / "root")
    root.prepare()
    data = struct.pack("<201Q", *range(0, 201 * 300, 300))
    job = folder / "job"
    with job.open("wb") as file:
        places = list(range(count))
        head = {"collections": [["manifest", "jsonl", "x", places]], "natives": []}
        file.write(orjson.dumps(head, option=orjson.OPT_APPEND_NEWLINE))
        for first in range(0, count, UNIT):
            writer = BundleWriter(root.private("bench.0-1", ".bundle"))
            entries: list[dict[str, Any]] = []
            for _ in range(first, min(first + UNIT, count)):
                entry: dict[str, Any] = {"facts": {}, "unit": first}
                writer.begin()
                writer.write(data)
                writer.commit(entry, bytes(1200))
                entries.append(entry)
            sha256, size = writer.finish()
            name = root.publish_object(writer.path, sha256, ".bundle", size)
            for number, entry in enumerate(entries, first):
                path = f"/data/some/corpus/with/a/long/name/manifest_{number}.json"
                line = (
                    "jsonl", path, name, entry["offset"], entry["length"], entry["digest"], 200 * 300, entry["crc"], 1,
                )  # fmt: skip
                file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
    done = subprocess.run(
        [sys.executable, "-c", UNIT_OF_PACKS, str(ROOT), root.path, str(job), str(count)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return int(done.stdout.split()[0]) * 1024 / 1e6


def main_inside(arguments: argparse.Namespace) -> int:
    """Everything, in this process."""
    from contest import contest

    versions = " ".join(f"{name} {importlib.metadata.version(name)}" for name in ("lhotse", "numpy", "blake3"))
    print(f"Python {platform.python_version()}, {versions}; {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.2f}")
    ways: dict[str, Callable[[Corpus, Path], None]] = {
        "lhotse": lhotse, "files": from_files, "bundles": from_bundles, "limit": limit, "floor": floor,
    }  # fmt: skip
    failed = False
    with tempfile.TemporaryDirectory(dir=arguments.work) as temporary:
        folder = Path(temporary)
        corpus = Corpus(folder / "corpus", arguments.count)
        made = {}
        for name in ("lhotse", "files", "bundles"):
            ways[name](corpus, folder / f"{name}.idxpack")
            made[name] = (folder / f"{name}.idxpack").read_bytes()
        if len(set(made.values())) != 1:
            raise SystemExit("the packs differ")
        runs = {name: lambda target, way=way: way(corpus, target / "x.idxpack") for name, way in ways.items()}
        for attempt in range(2):  # once more when a gate fails: the machine is shared
            times = contest(runs, folder / f"rounds-{attempt}", arguments.rounds)
            failed = False
            print(f"{arguments.count} sidecars of 50 to 350 records; microseconds each, and how many times lhotse's")
            for name in ways:
                each = sorted(times.cpu[name])[len(times.cpu[name]) // 2] / arguments.count * 1e6
                ratio, wall = times.ratio("lhotse", name), times.ratio("lhotse", name, "wall")
                gate = GATES.get(name)
                good = gate is None or ratio.median >= gate
                failed = failed or not good
                verdict = "" if gate is None else f"must {gate:g}: {'ok' if good else 'TOO SLOW'}"
                print(f"{name:<8} {each:6.1f} us  cpu {ratio!s:<22} wall {wall!s:<22} {verdict}".rstrip(), flush=True)
            if not failed:
                break
        peak = peak_memory(folder, 100_000)
    good = peak < BUFFER_MB
    print(f"memory: 100,000 sidecars, peak {peak:.1f} MB, must be below {BUFFER_MB:g}: {'ok' if good else 'TOO MUCH'}")
    return 1 if failed or not good else 0


def main() -> int:
    """Starts again in the interpreter that has upstream, if this one has not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--oracle", type=Path, help="interpreter that has lhotse; by default this one")
    parser.add_argument("--rounds", type=int, default=7, help="rounds that count (default 7)")
    parser.add_argument("--count", type=int, default=20_000, help="sidecars (default 20,000)")
    parser.add_argument("--work", type=Path, help="folder for the files, on the disk to measure")
    arguments = parser.parse_args()
    if importlib.util.find_spec("lhotse") is not None:
        return main_inside(arguments)
    if arguments.oracle is None:
        parser.error("lhotse is not installed here; name an interpreter that has it with --oracle")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.call([arguments.oracle, __file__, *sys.argv[1:]], env=environment)


if __name__ == "__main__":
    sys.exit(main())
