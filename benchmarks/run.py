"""Measures the builders against lhotse and NeMo, and fails when they are not as fast, or differ by a byte.

    python benchmarks/run.py --oracle .venv-oracle/bin/python

``--oracle`` is an interpreter with what benchmarks/requirements-oracle.txt lists; everything runs in one process of
it, with this checkout first on its path. 2 GB of sources go to a temporary folder.
"""

from __future__ import annotations

import argparse
import functools
import importlib.metadata
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Case:
    """A source, who reads it, and how many times faster ours must be than each other."""

    name: str
    kind: str
    make: Callable[[Path], Path]
    gates: dict[str, float] = field(default_factory=dict)
    others: tuple[str, ...] = ("lhotse",)


def cases(scale: float) -> list[Case]:
    """All cases; ``scale`` shrinks their sources."""
    import corpora

    def lines(line: int, megabytes: int) -> Callable[[Path], Path]:
        return lambda path: corpora.manifest(path, line, int(megabytes * corpora.MB * scale))

    def members(low: int, high: int, megabytes: int, pairs: bool) -> Callable[[Path], Path]:
        return lambda path: corpora.shard(path, low, high, int(megabytes * corpora.MB * scale), pairs=pairs)

    both = ("lhotse", "nemo")
    return [
        Case("jsonl, lines of 300 B", "jsonl", lines(300, 400), {"lhotse": 1.5}),
        Case("jsonl, lines of 4 KB", "jsonl", lines(4000, 400)),
        Case("jsonl, lines of 100 KB", "jsonl", lines(100_000, 400)),
        Case(
            "nemo_tar, members of 275 KB",
            "nemo_tar",
            members(150_000, 400_000, 500, False),
            {"lhotse": 12, "nemo": 4},
            both,
        ),
        Case("wds_tar, pairs of 275 KB", "wds_tar", members(200_000, 350_000, 500, True), {"lhotse": 12}),
        Case("wds_tar, pairs, 9 KB a member", "wds_tar", members(12_000, 21_000, 110, True), {"lhotse": 7}),
        Case("nemo_tar, members of 9 KB", "nemo_tar", members(6_000, 12_000, 110, False), {"lhotse": 7}, both),
        Case("nemo_tar, members of 3 KB", "nemo_tar", members(2_000, 4_000, 80, False), {}, both),
    ]


class File:
    """A local file, read by position."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY)
        self.size = os.fstat(self._fd).st_size

    def pread(self, length: int, offset: int) -> bytes:
        return os.pread(self._fd, length, offset)

    def pread_into(self, buffer: memoryview, offset: int) -> int:
        return os.preadv(self._fd, [buffer], offset)

    def close(self) -> None:
        os.close(self._fd)


def ours(kind: str, source: Path, folder: Path) -> Path:
    """Our sidecar with everything that goes with it: content hash, findings, a private file, rename."""
    from blendex.formats.kinds import build

    file, target = File(source), folder / "ours.idx"
    with (folder / "ours.tmp").open("wb") as out:
        build(kind, file, out.write)
    file.close()
    (folder / "ours.tmp").replace(target)
    return target


@functools.cache
def load_nemo() -> Any:
    """NeMo's module of indexes, without the package, which wants much more to be installed."""
    root = Path(str(importlib.metadata.distribution("nemo-toolkit").locate_file("")))
    path = root / "nemo/collections/common/data/lhotse/indexed_adapters.py"
    spec = importlib.util.spec_from_file_location("nemo_indexed_adapters", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def upstream(who: str, kind: str, source: Path, folder: Path) -> Path:
    """Upstream's sidecar. lhotse reads tars as a stream, NeMo 3.0.0 by tarfile with seeks."""
    import lhotse.indexing

    target = folder / f"{who}.idx"
    if who == "nemo":
        load_nemo().create_tar_index(str(source), str(target))
    elif kind == "jsonl":
        lhotse.indexing.create_jsonl_index(str(source), str(target))
    else:
        lhotse.indexing.create_tar_index(str(source), str(target))
    return target


def limit(kind: str, source: Path) -> None:
    """What cannot be beaten: reading and hashing all bytes; hopping over headers without looking at them."""
    from blake3 import blake3

    file, at = File(source), 0
    if kind == "jsonl":
        buffer, digest = memoryview(bytearray(256 * 1024)), blake3()
        while count := file.pread_into(buffer, at):
            digest.update(buffer[:count])
            at += count
    else:
        while (header := file.pread(512, at)) and header[0]:
            at += 512 + (int(header[124:135], 8) + 511 & -512)
    file.close()


def compare(case: Case, source: Path, folder: Path) -> None:
    """Ours is upstream's, byte for byte. lhotse's index of a NeMo tar is another kind, and only there for its time."""
    folder.mkdir()
    expected = upstream("nemo" if case.kind == "nemo_tar" else "lhotse", case.kind, source, folder)
    if ours(case.kind, source, folder).read_bytes() != expected.read_bytes():
        raise SystemExit(f"{case.name}: the sidecar differs from upstream's")


def measure(case: Case, source: Path, folder: Path, rounds: int) -> list[dict[str, Any]]:
    """A row per other contestant, with the gate it has to pass."""
    from contest import contest

    runs: dict[str, Callable[[Path], object]] = {"ours": lambda target: ours(case.kind, source, target)}
    for who in case.others:
        runs[who] = lambda target, who=who: upstream(who, case.kind, source, target)  # type: ignore[misc]
    runs["limit"] = lambda target: limit(case.kind, source)
    times = contest(runs, folder, rounds)
    rows = []
    for who in (*case.others, "limit"):
        cpu, wall, gate = times.ratio(who, "ours"), times.ratio(who, "ours", "wall"), case.gates.get(who)
        passed = gate is None or cpu.median >= gate
        rows.append({"case": case.name, "other": who, "cpu": cpu, "wall": wall, "gate": gate, "passed": passed})
    return rows


MEMORY = """
from pathlib import Path
from blendex.formats.kinds import build

class Generated:
    size = 2_000_000_000
    row = b'{"audio_filepath": "/data/a.wav", "duration": 1.0, "text": "%s"}\\n' % (b"word " * 47)
    rows = memoryview(row * 2000)
    def pread(self, length, offset):
        return b""
    def pread_into(self, buffer, offset):
        count = min(len(buffer), self.size - offset)
        start = offset % len(self.row)
        buffer[:count] = self.rows[start:start + count]
        return count

records = build("jsonl", Generated(), lambda part: None).records
status = Path("/proc/self/status").read_text()
print(records, status.partition("VmHWM:")[2].split()[0])
"""


def peak_memory() -> tuple[int, float]:
    """Records and peak memory in MB of a new process that indexes a manifest of 2 GB, generated as it is read."""
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    records, peak = map(int, done.stdout.split())
    return records, peak * 1024 / 1e6


def show(row: dict[str, Any]) -> None:
    verdict = "" if row["gate"] is None else f"must {row['gate']:g}: {'ok' if row['passed'] else 'TOO SLOW'}"
    line = f"{row['case']:<32} {row['other']:<7} {row['cpu']!s:<22} wall {row['wall']!s:<22} {verdict}"
    print(line.rstrip(), flush=True)


def main_inside(arguments: argparse.Namespace) -> int:
    """All cases, in this process."""
    packages = ("lhotse", "nemo-toolkit", "numpy", "blake3")
    versions = " ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    print(f"Python {platform.python_version()}, {versions}; {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.2f}")
    print(
        "times as long as ours, median of rounds [lowest-highest]; below 1 for limits: what part of our time they take"
    )
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=arguments.work) as temporary:
        for number, case in enumerate(cases(arguments.scale)):
            if arguments.only and arguments.only not in case.name:
                continue
            source = case.make(Path(temporary) / f"{number}.{'jsonl' if case.kind == 'jsonl' else 'tar'}")
            compare(case, source, Path(temporary) / f"compare-{number}")
            for attempt in range(2):  # once more when a gate fails: the machine is shared
                measured = measure(case, source, Path(temporary) / f"{number}-{attempt}", arguments.rounds)
                if all(row["passed"] for row in measured):
                    break
            rows += measured
            for row in measured:
                show(row)
            source.unlink()
    failed = [row for row in rows if not row["passed"]]
    records, peak = peak_memory()
    print(
        f"memory: {records} records of 2 GB, peak {peak:.1f} MB, must be below 64: {'ok' if peak < 64 else 'TOO MUCH'}"
    )
    if arguments.json:
        plain = [{**row, "cpu": vars(row["cpu"]), "wall": vars(row["wall"])} for row in rows]
        arguments.json.write_text(json.dumps({"versions": versions, "rows": plain, "peak_mb": peak}, indent=1) + "\n")
    print(f"load {os.getloadavg()[0]:.2f}")
    return 1 if failed or peak >= 64 else 0


def main() -> int:
    """Starts again in the interpreter that has upstream, if this one has not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--oracle", type=Path, help="interpreter that has lhotse and NeMo; by default this one")
    parser.add_argument("--rounds", type=int, default=7, help="rounds that count (default 7)")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the sources, for a quick look (default 1)")
    parser.add_argument("--only", default="", help="only cases with this in their name")
    parser.add_argument("--work", type=Path, help="folder for the sources, on the disk to measure")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    arguments = parser.parse_args()
    if importlib.util.find_spec("lhotse") is not None:
        return main_inside(arguments)
    if arguments.oracle is None:
        parser.error("lhotse is not installed here; name an interpreter that has it with --oracle")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.call([arguments.oracle, __file__, *sys.argv[1:]], env=environment)


if __name__ == "__main__":
    sys.exit(main())
