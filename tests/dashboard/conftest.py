"""A real service with its children, a real browser, and builds of every sort to look at."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from blendex.builds.site import Site, open_site
from blendex.settings import Settings
from tests.dashboard import synthetic
from tests.service.conftest import Service, blend, listening, ready, sample, working
from tests.support import corpus

# Fixtures of the service that serve here, too, with this folder's own service.
__all__ = ["blend", "ready", "sample"]

HERE = Path(__file__).parent
SHOTS = Path(os.environ.get("BLENDEX_ARTEFACTS", HERE.parent.parent / "artefacts")) / "screenshots"
WIDTHS = {"wide": 1280, "narrow": 390}
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking", "--no-first-run",
    "--disable-component-update", "--disable-sync", "--disable-default-apps", "--disable-domain-reliability",
    "--metrics-recording-only", "--no-default-browser-check", "--force-color-profile=srgb",
]  # fmt: skip


expect.set_options(timeout=20_000)


def chromium() -> str | None:
    """The browser of the environment, or Debian's."""
    names = ("/usr/bin/chromium", "chromium", "chromium-browser")
    return os.environ.get("BLENDEX_TEST_CHROMIUM") or next((at for name in names if (at := shutil.which(name))), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = chromium()
    if path is None:
        reason = "Chromium is not installed: scripts/browser.sh, or apt-get install chromium"
        if os.environ.get("CI") or os.environ.get("BLENDEX_REQUIRE_BROWSER"):
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield started
        started.close()


Open = Callable[..., Page]


class Complaints(list[str]):
    """What a browser complained of: nothing, if all is well. That a form was refused is told by the page."""

    def watch(self, page: Page) -> None:
        page.on("console", lambda said: self._note(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: self._note(str(error)))

    def _note(self, text: str) -> None:
        if "status of 422" not in text:
            self.append(text)


@contextmanager
def opened(browser: Browser, *urls: str, **values: Any) -> Iterator[BrowserContext]:
    """A browser of one person; nothing outside of the service can be reached."""
    context = browser.new_context(base_url=urls[0], **values)
    context.set_default_timeout(20_000)
    outside: list[str] = []
    inside = (*urls, "data:", "blob:")
    context.on("request", lambda asked: None if asked.url.startswith(inside) else outside.append(asked.url))
    try:
        yield context
    finally:
        context.close()
    assert outside == []


@pytest.fixture
def tab(browser: Browser, service: Service) -> Iterator[Page]:
    """A wide page of the service that complains of nothing."""
    with opened(browser, service.url, viewport={"width": 1280, "height": 900}) as context:
        page = context.new_page()
        said = Complaints()
        said.watch(page)
        yield page
        assert said == []


def site_at(folder: Path, allowed: Path) -> Site:
    settings = Settings.model_validate({"root": folder, "poll_seconds": 0.05, "slots": 2, "pack_sources": 4})
    return open_site(settings, (str(allowed),))


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory, sample: Path) -> Iterator[Service]:
    """The service with its workers."""
    site = site_at(tmp_path_factory.mktemp("served") / "root", sample.parent)
    with working(site, sample.parent) as running:
        yield running


@pytest.fixture(scope="session")
def idle(tmp_path_factory: pytest.TempPathFactory, sample: Path) -> Iterator[Service]:
    """A service whose builds stay as they are: nobody works."""
    site = site_at(tmp_path_factory.mktemp("idle") / "root", sample.parent)
    with listening(site, sample.parent, lambda: None, alive=lambda: True) as running:
        yield running


@pytest.fixture(scope="session")
def failed(service: Service) -> dict[str, Any]:
    """A build with bad sources of several sorts."""
    folder = service.data / "broken"
    entries = corpus.corpus(folder, shards=5)
    corpus.put(folder / "a/audio_1.tar", b"this is no tar at all" * 100)
    whole = (folder / "a/audio_3.tar").read_bytes()
    corpus.put(folder / "a/audio_3.tar", whole[:1_500])
    corpus.put(
        folder / "b.jsonl",
        b'{"audio_filepath": "x.wav", "duration": 1}\n\n\n{"audio_filepath": "y.wav", "duration": 1}\n',
    )
    entries += f"- type: nemo\n  manifest_filepath: {folder}/b.jsonl\n  weight: 0.25\n"
    entries += corpus.corpus(folder, shards=2, name="good")
    build = service.built(entries)
    assert build["state"] == "failed", build
    return build


@pytest.fixture(scope="session")
def big(idle: Service) -> str:
    """A build of 400,000 sources, half way through, the newest of several."""
    synthetic.several(idle.site)
    return synthetic.big(idle.site)
