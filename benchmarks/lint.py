"""How long a full lint of a large blend takes, and how much memory.

    .venv/bin/python benchmarks/lint.py [--entries 10000] [--rounds 3] [--most-seconds 5] [--most-mb 300]

Half of the entries are pairs of manifest and tar, half are single manifests; every tenth breaks a rule; each source
and a sidecar for it are there, and are looked at. What is measured is the whole command ``blendex lint --json``: it
starts, lints, patches, and lints what the patch leaves. In turns with it runs what no linter can do without: a Python
that reads the YAML by libyaml's events, stats every source and reads every sidecar. Figures are medians; `ratio` is
between the CPU seconds of the two. On a machine that does other things as well, look at CPU seconds, not at seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROW = b'{"audio_filepath": "a.wav", "duration": 1.0, "sampling_rate": 16000}\n'


def make(folder: Path, entries: int) -> Path:
    """The corpus."""
    data, mirror = folder / "data", folder / "mirror"
    (data / "x").mkdir(parents=True)
    lines = []
    for number in range(entries):
        name = data / f"x/manifest_{number}.json"
        sources = [(name, ROW)]
        if number % 2:
            tar = data / f"x/audio_{number}.tar"
            sources.append((tar, b"\0" * 1024))
            entry = f"{{type: nemo_tarred, manifest_filepath: {name}, tarred_audio_filepaths: {tar}, weight: 1"
        else:
            entry = f"{{type: nemo, manifest_filepath: {name}, weight: {number % 7 + 1}"
        lines.append(f"- {entry}{', slice_length: 3' if number % 10 == 0 else ''}}}  # entry {number}")
        for path, content in sources:
            path.write_bytes(content)
            side = Path(f"{mirror}{path}.idx")
            side.parent.mkdir(parents=True, exist_ok=True)
            side.write_bytes(struct.pack("<2Q", 0, len(content)))
    (folder / "blend.yaml").write_text("\n".join(lines) + "\n")
    config = folder / "train.yaml"
    config.write_text(
        f"trainer: {{devices: 8, num_nodes: 2, max_steps: 1000}}\nexp_manager: {{resume_if_exists: true}}\n"
        f"data:\n  train_ds:\n    indexed: true\n    indexes_root: {mirror}\n    input_cfg: {folder}/blend.yaml\n"
    )
    return config


FLOOR = """
import os, sys, yaml
for file in sys.argv[1:3]:
    for event in yaml.parse(open(file), Loader=yaml.CSafeLoader):
        pass
for folder, _, names in os.walk(sys.argv[3]):
    for name in names:
        os.stat(os.path.join(folder, name))
for folder, _, names in os.walk(sys.argv[4]):
    for name in names:
        with open(os.path.join(folder, name), "rb") as side:
            side.read()
"""


def timed(command: list[str]) -> tuple[float, float, int, bytes]:
    """Seconds, CPU seconds, peak MiB and output of a command."""
    start = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        output = process.stdout.read()
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = 0
    return time.monotonic() - start, used.ru_utime + used.ru_stime, used.ru_maxrss // 1024, output


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most-seconds", type=float, default=5)
    parser.add_argument("--most-mb", type=float, default=300)
    arguments = parser.parse_args()
    ours, floor = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = make(folder, arguments.entries)
        lint = [sys.executable, "-c", "from blendex.cli import main; main()", "lint", str(config), "--json"]
        bare = [
            sys.executable,
            "-c",
            FLOOR,
            str(config),
            *(str(folder / part) for part in ("blend.yaml", "data", "mirror")),
        ]
        for _ in range(arguments.rounds):
            ours.append(timed(lint))
            floor.append(timed(bare))
    report = json.loads(ours[0][3])["reports"][0]
    seconds, cpu = median(item[0] for item in ours), median(item[1] for item in ours)
    figures = {
        "entries": report["entries"], "sources": report["sources"], "findings": len(report["findings"]),
        "changes": len(report["patch"]["changes"]), "answer_mb": round(len(ours[0][3]) / 1e6, 1),
        "seconds": round(seconds, 2), "cpu_seconds": round(cpu, 2), "peak_mb": max(item[2] for item in ours),
        "floor_cpu_seconds": round(median(item[1] for item in floor), 2),
        "ratio": round(median(one[1] / other[1] for one, other in zip(ours, floor, strict=True)), 1),
    }  # fmt: skip
    print(json.dumps(figures))
    within = seconds <= arguments.most_seconds and figures["peak_mb"] <= arguments.most_mb
    print("within the limits" if within else "over the limits")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
