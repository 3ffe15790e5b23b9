"""What the catalog grows by and what processes take when a large blend is posted again and again.

100 submissions of a synthetic blend of 100,000 sources: 90 hits and 10 deltas of 3 sources. The database must
grow by less than 1.3 times what one build made it, and no process may take more than 400 MB.

    python benchmarks/scale.py [--sources 100000] [--submissions 100]
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil

from blendex.blend.world import World
from blendex.builds.run import run_build
from blendex.builds.site import Site, open_site
from blendex.builds.submission import Submission
from blendex.settings import Settings

MOST_GROWTH = 1.3
MOST_MEMORY = 400 * 10**6
ROW = b'{"audio_filepath": "a.wav", "duration": 1.0, "text": ""}\n'


class MemoryWatch:
    """The largest anonymous memory seen of this process and of any child."""

    def __init__(self) -> None:
        self.own = self.child = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        me = psutil.Process()
        while not self._stop.wait(0.05):
            self.own = max(self.own, anonymous(me.pid))
            for child in me.children():
                self.child = max(self.child, anonymous(child.pid))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def anonymous(pid: int) -> int:
    """Anonymous resident bytes of a process, 0 when it is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    match = re.search(r"RssAnon:\s+(\d+) kB", text)
    return int(match.group(1)) * 1024 if match else 0


def make(folder: Path, first: int, count: int) -> None:
    """Small manifests, a thousand to a folder."""
    for number in range(first, first + count):
        path = folder / f"{number // 1000:04}" / f"manifest_{number:08}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(ROW * (1 + number % 3) + b'{"n": %d}\n' % number)


def blend(folder: Path, sources: int, extra: int, first: int = 0) -> str:
    """A blend over ``sources`` manifests from the ``first``, in datasets of 20,000, and ``extra`` in the last one."""
    entries = []
    last = first + sources - 1
    for start in range(first, first + sources, 20_000):
        parts = [
            f"{folder}/{number // 1000:04}/manifest_{{{number:08}..{min(number + 999, last):08}}}.json"
            for number in range(start, min(start + 20_000, last + 1), 1000)
        ]
        entries.append(parts)
    if extra:
        entries[-1].append(f"{folder}/extra/manifest_{{0..{extra - 1}}}.json")
    return "".join(
        "- type: nemo\n  manifest_filepath:\n" + "".join(f"    - '{part}'\n" for part in parts) for parts in entries
    )


def database_bytes(site: Site) -> int:
    """Bytes of the database in pages that hold something."""
    with site.work.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        free = connection.exec_driver_sql("PRAGMA freelist_count").scalar_one()
        size = connection.exec_driver_sql("PRAGMA page_size").scalar_one()
    return (pages - free) * size


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sources", type=int, default=100_000)
    parser.add_argument("--submissions", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "data")
        print(f"making {options.sources} sources …")
        make(folder, 0, options.sources)
        time.sleep(2.1)
        watch = MemoryWatch()
        site = open_site(Settings(root=Path(name, "root")), ("/",))

        def post(extra: int) -> dict[str, object]:
            started = time.monotonic()
            text = blend(folder, options.sources, extra)
            result = run_build(site, Submission(text.encode(), f"{folder}/b.yaml", World(base=str(folder))))
            assert result["state"] == "ready", result
            print(
                f"{result['sources']} sources, {result['opened']} read, {time.monotonic() - started:.1f} s, "
                f"database {database_bytes(site) / 1e6:.1f} MB, own {watch.own / 1e6:.0f} MB, "
                f"largest child {watch.child / 1e6:.0f} MB",
                flush=True,
            )
            return result

        post(0)
        one = database_bytes(site)
        deltas = 0
        for number in range(1, options.submissions):
            if number % 10 == 0:
                deltas += 1
                for item in range(3):
                    path = folder / "extra" / f"manifest_{(deltas - 1) * 3 + item}.json"
                    path.parent.mkdir(exist_ok=True)
                    path.write_bytes(ROW + b'{"extra": %d}\n' % (deltas * 3 + item))
                time.sleep(2.1)
                result = post(deltas * 3)
                assert result["opened"] == 3, result["opened"]
            else:
                result = post(deltas * 3)
                assert result["opened"] == 0, result["opened"]
        watch.stop()
        growth = database_bytes(site) / one
        print(f"database: {growth:.2f} times one build (at most {MOST_GROWTH})")
        print(f"memory: own {watch.own / 1e6:.0f} MB, largest child {watch.child / 1e6:.0f} MB (at most 400)")
        good = growth < MOST_GROWTH and max(watch.own, watch.child) < MOST_MEMORY
        os.chdir("/")
        return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
