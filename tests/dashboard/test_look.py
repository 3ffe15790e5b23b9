"""Every page in both themes, wide and, where it matters, narrow: axe finds nothing, and a picture to look at."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.dashboard import synthetic
from tests.dashboard.conftest import HERE, SHOTS, WIDTHS, Complaints, opened
from tests.service.conftest import Service

# Each page in a browser: a minute and more of both processors.
pytestmark = pytest.mark.slow

AXE = HERE / "axe" / "axe.min.js"
CONFIG = """\
model:
  train_ds:
    input_cfg:
      - type: nemo_tarred
        manifest_filepath: /data/a/manifest__OP_0..3_CL_.json
        tarred_audio_filepaths: /data/a/audio__OP_0..3_CL_.tar
        weight: 0.5
    use_lhotse: true
    force_finite: true
    num_workers: 4
trainer:
  max_steps: 1000
"""
PAGES = (
    "builds", "builds-failed", "new", "build-ready", "build-failed", "build-running", "units", "units-running",
    "findings", "posted", "mirrors", "mirror", "sources", "source", "workers", "lint", "lint-found", "health", "error",
)  # fmt: skip
NARROW = ("builds", "build-ready", "build-failed", "build-running")


# Cards that are out of sight are not drawn before somebody comes near: here all of them are looked at.
DRAW_ALL = """() => {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(".card { content-visibility: visible !important }");
  document.adoptedStyleSheets.push(sheet);
}"""


def violations(page: Page, only: list[str] | None = None) -> list[str]:
    """What axe finds wrong with a page, by all of its rules or some."""
    found = page.evaluate(
        "only => axe.run(document, {resultTypes: ['violations'], ...(only ? {runOnly: only} : {})})", only
    )
    return [
        f"{item['id']}: {item['help']} {json.dumps([node['target'] for node in item['nodes']][:3])}"
        + f" {item['nodes'][0]['failureSummary']}"
        for item in found["violations"]
    ]


@pytest.fixture(scope="session")
def addresses(
    service: Service, idle: Service, ready: dict[str, Any], failed: dict[str, Any], big: str
) -> dict[str, str]:
    """Where each page is."""
    mirror = f"{service.url}/mirrors/{ready['mirror']}"
    source = f"{failed['problems'][0]['path']}"
    return {
        "builds": f"{idle.url}/builds",
        "builds-failed": f"{service.url}/builds?state=failed&text=blend",
        "new": f"{service.url}/builds/new",
        "build-ready": f"{service.url}/builds/{ready['id']}",
        "build-failed": f"{service.url}/builds/{failed['id']}",
        "build-running": f"{idle.url}/builds/{big}",
        "units": f"{service.url}/builds/{ready['id']}/units",
        "units-running": f"{idle.url}/builds/{big}/units",
        "findings": f"{service.url}/builds/{failed['id']}/findings",
        "posted": f"{idle.url}/builds/{big}/posted",
        "mirrors": f"{service.url}/mirrors",
        "mirror": f"{mirror}?against=sample",
        "sources": f"{service.url}/sources?path={service.data}",
        "source": f"{service.url}/sources?path={source}",
        "workers": f"{service.url}/workers",
        "lint": f"{service.url}/lint",
        "lint-found": f"{service.url}/lint",
        "health": f"{service.url}/health",
        "error": f"{service.url}/builds/{'0' * 26}",
    }


@pytest.mark.parametrize(
    ("width", "names"),
    [("wide", PAGES[::2]), ("wide", PAGES[1::2]), ("narrow", NARROW)],
    ids=["wide", "more", "narrow"],
)
def test_every_page(
    browser: Browser, service: Service, idle: Service, addresses: dict[str, str], width: str, names: tuple[str, ...]
) -> None:
    """Each is loaded once: as whoever looks at it sees it when the machine goes from light to dark."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    wrong: dict[str, list[str]] = {}
    viewport = {"width": WIDTHS[width], "height": 900}
    with opened(browser, service.url, idle.url, viewport=viewport, color_scheme="light") as context:
        context.add_init_script(path=AXE)
        page = context.new_page()
        said = Complaints()
        said.watch(page)
        for name in names:
            page.emulate_media(color_scheme="light")
            page.goto(addresses[name])
            if name == "lint-found":
                page.fill("#f-text", CONFIG)
                page.click("#lint")
            page.wait_for_selector("[data-plot]:not([data-drawn])", state="detached")
            page.evaluate(DRAW_ALL)
            if found := violations(page):
                wrong[name] = found
            # Nothing is cut off at the side: whatever is wider scrolls in a place of its own.
            if (over := page.evaluate("document.documentElement.scrollWidth - innerWidth")) > 0:
                wrong.setdefault(name, []).append(f"{over} px too wide")
            page.screenshot(path=SHOTS / f"{name}-{width}-light.png", full_page=True)
            page.emulate_media(color_scheme="dark")
            # Nothing else of a page depends on its colours.
            if found := violations(page, ["color-contrast"]):
                wrong.setdefault(name, []).extend(found)
            page.screenshot(path=SHOTS / f"{name}-{width}-dark.png", full_page=True)
            if name != "error" and said:
                wrong.setdefault(name, []).extend(said)
            said.clear()
    assert wrong == {}, json.dumps(wrong, indent=1)


def until(page: Page, script: str, wanted: Any) -> None:
    """Wait until a script says so: from here, since the policy of the page lets nobody evaluate texts inside of it."""
    deadline = time.monotonic() + 60
    while page.evaluate(script) != wanted:
        assert time.monotonic() < deadline, script


def test_the_axes_of_a_plot_can_be_read_in_the_dark(browser: Browser, idle: Service, addresses: dict[str, str]) -> None:
    address = addresses["build-running"]
    # Of what is drawn left of the plot, where only numbers are: is the ink light?
    is_light = """() => {
      const canvas = document.querySelector('.plot canvas'), pen = canvas?.getContext('2d');
      if (!pen) return null;
      const {data} = pen.getImageData(0, 0, 40 * devicePixelRatio, canvas.height);
      const lit = [];
      for (let at = 0; at < data.length; at += 4)
        if (data[at + 3] > 200) lit.push((data[at] + data[at + 1] + data[at + 2]) / 3);
      lit.sort((a, b) => a - b);
      return lit.length ? lit[lit.length >> 1] > 140 : null;
    }"""
    with opened(browser, idle.url, color_scheme="dark") as context:
        page = context.new_page()
        page.goto(address)
        until(page, is_light, True)
        # Drawn anew when the theme of the machine changes.
        page.emulate_media(color_scheme="light")
        until(page, is_light, False)


IMAGES = Path("docs/images")
PICTURES = {"builds": ("light", 560), "build": ("dark", 860), "lint": ("light", 640)}


@pytest.mark.skipif("BLENDEX_PICTURES" not in os.environ, reason="make pictures writes them")
def test_write_the_pictures_of_the_documents(
    browser: Browser, service: Service, idle: Service, addresses: dict[str, str], big: str
) -> None:
    for name, (theme, height) in PICTURES.items():
        viewport = {"width": 1080, "height": height}
        with opened(browser, service.url, idle.url, viewport=viewport, color_scheme=theme) as context:
            page = context.new_page()
            synthetic.freshen(idle.site, big)
            page.goto(addresses[{"build": "build-running"}.get(name, name)])
            if name == "lint":
                page.fill("#f-text", CONFIG)
                page.click("#lint")
                page.wait_for_selector("#h-verdict")
            page.wait_for_selector("[data-plot]:not([data-drawn])", state="detached")
            page.screenshot(path=IMAGES / f"{name}.png")


def test_pictures_of_the_documents_are_small_and_shown() -> None:
    assert {image.stem for image in IMAGES.glob("*.png")} == set(PICTURES)
    for name in PICTURES:
        assert (IMAGES / f"{name}.png").stat().st_size < 150_000
        assert f"docs/images/{name}.png" in Path("README.md").read_text()
