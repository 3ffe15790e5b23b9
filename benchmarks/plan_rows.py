"""How long the rows of a large plan take, and how much memory: what a plan found, stored in the catalog.

400,000 synthetic sources (nothing is on disk: the outcome of the plan child is made up), on SQLite and on PostgreSQL.

    python benchmarks/plan_rows.py [--sources 400000] [--database postgresql://…]

Without --database a PostgreSQL of its own is started. Issue 3 asks for 20 s in PostgreSQL, 15 s in SQLite and 400 MB.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from blendex.blend.world import World
from blendex.builds import planning
from blendex.builds.loop import ClaimLoop
from blendex.builds.site import open_site
from blendex.builds.submission import Submission
from blendex.builds.submit import submit
from blendex.catalog import builds
from blendex.runtime.slots import Outcome
from blendex.settings import Settings
from blendex.units.plan import CHUNK
from tests.support import services
from tests.support.inline import InlineRunner

MOST_SECONDS = {"sqlite": 15.0, "postgresql": 20.0}
MOST_MEMORY = 400 * 10**6


def anonymous_peak() -> int:
    """The most anonymous memory that this process had: VmHWM less the pages of files that it maps now."""
    values = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return (int(values["VmHWM"].split()[0]) - int(values["RssFile"].split()[0])) * 1024


def chunks(sources: int) -> Iterator[dict[str, Any]]:
    """What a plan child reports: rows in order of kind and path."""
    for start in range(0, sources, CHUNK):
        rows = [
            [
                "jsonl", path := f"/data/corpus/part-{number // 10_000:04}/manifest_{number:08}.json", path,
                f"{1000 + number}:17000000000000000{number % 100:02}:1700000000000000000:{number}", 1000 + number,
            ]
            for number in range(start, min(start + CHUNK, sources))
        ]  # fmt: skip
        yield {"rows": rows}


def measure(url: str | None, sources: int) -> dict[str, float | str]:
    """In a fresh process: seconds to store one plan, and what it took."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings.model_validate({"root": folder + "/root", "database_url": url, "slots": 8})
        site = open_site(settings, ("/",))
        blend = b"- {type: nemo, manifest_filepath: /data/x.json}\n"
        build, _ = submit(site, Submission(blend, "/data/blend.yaml", World(base="/data")))
        loop = ClaimLoop(site, InlineRunner())
        unit = loop._claim()
        assert unit is not None
        assert planning.prepare(site, unit) is not None
        leaf = {
            "pointer": [0], "type": "nemo", "file": "/data/blend.yaml", "line": 1, "needs_index": True,
            "sources": [[0, sources]], "missing": 0,
        }  # fmt: skip
        dataset = {
            "name": "all",
            "type": "nemo",
            "file": "/data/blend.yaml",
            "line": 1,
            "pointer": [0],
            "leaves": [leaf],
        }
        result = {
            "datasets": [dataset], "problems": [], "warnings": [], "entries": 1, "sources": sources, "bytes": 0,
            "figures": {}, "derived": [], "packing": {"wanted": [], "told": []},
        }  # fmt: skip
        outcome = Outcome(1, "done", result=result, progress=list(chunks(sources)))
        before = anonymous_peak()
        began, cpu = time.perf_counter(), time.process_time()
        assert planning.finish(site, unit, outcome)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        with site.work.read() as session:
            assert builds.left(session, build.id)[1] == sources
        site.work.engine.dispose()
        return {
            "database": site.work.engine.dialect.name, "seconds": seconds, "cpu": cpu,
            "peak": anonymous_peak(), "before": before,
        }  # fmt: skip


def main() -> int:
    """Measure both; 1 when a limit was passed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sources", type=int, default=400_000)
    parser.add_argument("--database", help="an empty PostgreSQL database")
    options = parser.parse_args()
    good = True
    server = None if options.database else services.Postgres()
    try:
        url = options.database or services.Databases(server.url).make()  # type: ignore[union-attr]
        for one in (None, url):
            with get_context("spawn").Pool(1) as pool:
                found = pool.apply(measure, (one, options.sources))
            most = MOST_SECONDS[str(found["database"])]
            fine = float(found["seconds"]) <= most and float(found["peak"]) <= MOST_MEMORY
            good = good and fine
            print(
                f"{found['database']}: {options.sources} sources in {found['seconds']:.1f} s (at most {most:.0f}), "
                f"{found['cpu']:.1f} s of it own CPU, "
                f"peak {float(found['peak']) / 1e6:.0f} MB, of it the plan's own answer "
                f"{float(found['before']) / 1e6:.0f} MB (at most {MOST_MEMORY / 1e6:.0f}): "
                f"{'ok' if fine else 'TOO MUCH'}",
                flush=True,
            )
    finally:
        if server is not None:
            server.close()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
