"""How heavy and how quick the largest page is: a build of 400,000 sources in 20,000 units, half way through.

Issue: under 300 kB with all that the page loads, first paint under 500 ms, a change on the page within 1 s. Answer and
first paint are those of a build that changed just before, so that nothing of it is known to the process; how quick it
is for whoever comes next is told beside. So is what the machine itself takes: the same browser on a page of one line
that asks nothing (`/healthz`), in alternating rounds.

    python benchmarks/pages.py [--rounds 7]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from playwright.sync_api import Browser, sync_playwright

from blendex.catalog import states
from tests.dashboard import synthetic
from tests.dashboard.conftest import ARGUMENTS, chromium, site_at
from tests.service.conftest import Service, listening

PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


def paint(browser: Browser, address: str) -> float:
    """Milliseconds until a page of a new browser paints first; nothing is cached."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(address)
    seconds = None
    while seconds is None:
        seconds = page.evaluate(PAINT)
    context.close()
    return float(seconds)


def change(service: Service, build: str) -> None:
    """Let something have happened to the build."""
    with service.site.work.write() as session:
        states.touch_build(session, build)


def answer(service: Service, address: str) -> float:
    """Milliseconds until a page is answered."""
    began = time.monotonic()
    service.http.get(address).raise_for_status()
    return (time.monotonic() - began) * 1000


def weight(browser: Browser, address: str) -> int:
    """Bytes of everything that a page loads."""
    context = browser.new_context()
    page = context.new_page()
    sizes: list[int] = []
    page.on("requestfinished", lambda done: sizes.append(sum(done.sizes().values())))
    page.goto(address)
    page.wait_for_selector("[data-drawn]")
    context.close()
    return sum(sizes)


def latency(browser: Browser, service: Service, build: str, rounds: int) -> list[float]:
    """Seconds from the commit of a change until the page shows it."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{service.url}/builds/{build}")
    page.wait_for_selector("[data-drawn]")
    time.sleep(2)
    found = []
    for number in range(rounds):
        wanted = 70_000 + number
        with service.site.work.write() as session:
            states.touch_build(session, build, reused=wanted)
        began = time.monotonic()
        page.get_by_text(f"{wanted:,}").wait_for()
        found.append(time.monotonic() - began)
        time.sleep(1.5)
    context.close()
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        browser = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        with listening(site_at(folder / "root", folder), folder, lambda: None) as service:
            build = synthetic.big(service.site)
            address = f"{service.url}/builds/{build}"
            plain = f"{service.url}/healthz"
            service.http.get(address)
            answers, again, paints, floors = [], [], [], []
            for _ in range(rounds):
                change(service, build)
                answers.append(answer(service, address))
                again.append(answer(service, address))
                change(service, build)
                paints.append(paint(browser, address))
                floors.append(paint(browser, plain))
            print(f"a page of {synthetic.SOURCES:,} sources in {synthetic.SOURCES // synthetic.EACH:,} units, SQLite")
            print(f"weight with all it loads   {weight(browser, address) / 1000:8.0f} kB   (most: 300)")
            print(f"answer of the service      {statistics.median(answers):8.0f} ms")
            print(f"the same, nothing changed  {statistics.median(again):8.0f} ms")
            print(f"first paint                {statistics.median(paints):8.0f} ms   (most: 500)")
            print(f"first paint of plain text  {statistics.median(floors):8.0f} ms   (what the browser itself takes)")
            seen = latency(browser, service, build, rounds)
            told = f"{statistics.median(seen) * 1000:8.0f} ms   (most: 1000); worst {max(seen) * 1000:.0f}"
            print(f"a change is on the page in {told}")
        browser.close()


if __name__ == "__main__":
    main()
