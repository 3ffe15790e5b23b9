"""How long a full lint of a large blend takes, and how much memory.

    .venv/bin/python benchmarks/lint.py [--entries 10000] [--most-seconds 5] [--most-mb 300]

Half of the entries are pairs of manifest and tar, half are single manifests; every tenth breaks a rule; each source and
a sidecar for it are there, and are looked at. What is measured is the whole command ``blendex lint --json``: it starts,
lints, patches, and lints what the patch leaves. On a machine that does other things as well, look at its CPU seconds.
"""

from __future__ import annotations

import argparse
import json
import resource
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=10_000)
    parser.add_argument("--most-seconds", type=float, default=5)
    parser.add_argument("--most-mb", type=float, default=300)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config = make(Path(folder), arguments.entries)
        command = [sys.executable, "-c", "from blendex.cli import main; main()", "lint", str(config), "--json"]
        start = time.monotonic()
        output = subprocess.run(command, check=False, capture_output=True).stdout
        seconds = time.monotonic() - start
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    report = json.loads(output)["reports"][0]
    figures = {
        "entries": report["entries"], "sources": report["sources"], "findings": len(report["findings"]),
        "changes": len(report["patch"]["changes"]), "answer_mb": round(len(output) / 1e6, 1),
        "seconds": round(seconds, 2), "cpu_seconds": round(used.ru_utime + used.ru_stime, 2),
        "peak_mb": round(used.ru_maxrss / 1024),
    }  # fmt: skip
    print(json.dumps(figures))
    within = seconds <= arguments.most_seconds and figures["peak_mb"] <= arguments.most_mb
    print("within the limits" if within else "over the limits")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
