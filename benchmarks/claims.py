"""What a claim costs among ten waiting units and among 400,000, in alternating rounds, on the database of an URL.

``python benchmarks/claims.py [URL]``; SQLite in a temporary folder by default. The physical limit is a transaction that
claims nothing: a lock, an update by primary key, a commit.
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


def claims(site: Site) -> float:
    """Milliseconds of one claim, the median of some, each put back."""
    taken = []
    for _ in range(CLAIMS):
        began = time.perf_counter()
        with site.work.write() as session:
            unit = states.claim_unit(session, "w", 30, 2)
            assert unit is not None
            key = unit.id, unit.fence
        taken.append(time.perf_counter() - began)
        with site.work.write() as session:
            states.hand_back(session, *key, count=False)
    return statistics.median(taken) * 1000


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
        first, last, least = statistics.median(few), statistics.median(many), limit(site)
        print(
            f"{site.work.engine.dialect.name}: a claim takes {first:.2f} ms among {2 * BUILDS} waiting units, "
            f"{last:.2f} ms among 400,000 ({last / first:.2f} times); a transaction of one row {least:.2f} ms"
        )
        site.work.engine.dispose()


if __name__ == "__main__":
    main()
