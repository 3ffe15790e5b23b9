"""What a claim costs among 80 waiting units and among 400,000, in alternating rounds, on the database of an URL.

``python benchmarks/claims.py [URL]``; SQLite in a temporary folder by default. The physical limit is a transaction that
claims nothing: a lock, an update by primary key, a commit. Of SQLite the processor time is told as well, since all of
it is ours: it does not depend on what else the machine does.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

from sqlalchemy import text

from blendex.builds.site import Site, open_site
from blendex.catalog import dialect, lanes, states
from blendex.catalog.models import Unit
from blendex.settings import Settings

NAMES = ("work", "build", "state", "fence", "attempts", "priority", "cost", "memory", "payload", "turn")
BUILDS, ROUNDS, CLAIMS = 40, 3, 30


def fill(site: Site, count: int) -> None:
    """So many waiting units, of 40 builds."""
    rows = (
        ("index", f"b{number % BUILDS}", "waiting", 0, 0, 0, number % 997, 1 + number % 3, b"", 0)
        for number in range(count)
    )
    with site.work.write() as session:
        session.execute(text("DELETE FROM units"))
        dialect.add_new(session, Unit, NAMES, rows)
        for number in range(BUILDS):
            lanes.open_lane(session, f"b{number}", 0)
    if site.work.engine.dialect.name == "postgresql":
        with site.work.write() as session:
            session.execute(text("ANALYZE units"))


def claims(site: Site) -> tuple[float, float]:
    """Milliseconds of one claim, by the clock and of processor time: medians of some, each put back."""
    taken, worked = [], []
    for _ in range(CLAIMS):
        began, work = time.perf_counter(), time.process_time()
        with site.work.write() as session:
            unit = states.claim_unit(session, "w", 30, 2)
            assert unit is not None
            key = unit.id, unit.fence
        taken.append(time.perf_counter() - began)
        worked.append(time.process_time() - work)
        with site.work.write() as session:
            states.hand_back(session, *key, count=False)
    return statistics.median(taken) * 1000, statistics.median(worked) * 1000


def limit(site: Site) -> float:
    """Milliseconds of a transaction that changes one row by its key."""
    taken = []
    for _ in range(CLAIMS):
        began = time.perf_counter()
        with site.work.write() as session:
            session.execute(text("UPDATE meta SET value = value WHERE key = 'catalog_id'"))
        taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1000


def main() -> None:
    """Print medians and their ratio."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"root": Path(folder) / "root"} | ({"database_url": sys.argv[1]} if len(sys.argv) > 1 else {})
        site = open_site(Settings.model_validate(settings), ("/",))
        few, many = [], []
        for _ in range(ROUNDS):
            fill(site, 2 * BUILDS)
            few.append(claims(site))
            fill(site, 400_000)
            many.append(claims(site))
        least = limit(site)
        print(f"{site.work.engine.dialect.name}; a transaction of one row takes {least:.2f} ms")
        for name, at in (("by the clock", 0), ("of processor time here", 1)):
            first, last = (statistics.median(item[at] for item in items) for items in (few, many))
            print(
                f"a claim takes {first:.2f} ms among {2 * BUILDS} waiting units and {last:.2f} ms among 400,000 "
                f"({last / first:.2f} times), {name}"
            )
        site.work.engine.dispose()


if __name__ == "__main__":
    main()
