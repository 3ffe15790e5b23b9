"""A real service on loopback: uvicorn in a thread, children as in production, a root and a corpus on disk."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from blendex.builds.loop import ClaimLoop
from blendex.builds.site import Site, open_site
from blendex.cli.serve import listen
from blendex.runtime.slots import Slots
from blendex.sample import make
from blendex.settings import Settings
from service.app import create_app
from tests.support import corpus


@dataclass
class Service:
    """A service that listens."""

    url: str
    site: Site
    http: httpx.Client
    data: Path
    app: FastAPI

    def post(self, blend: str, **query: Any) -> dict[str, Any]:
        answer = self.http.post("/v1/builds", content=blend, params=query)
        assert answer.status_code in (200, 202), answer.text
        value: dict[str, Any] = answer.json()
        return value

    def built(self, blend: str, **query: Any) -> dict[str, Any]:
        """Post a blend and wait for its end."""
        return self.post(blend, wait=60, **query)


@contextmanager
def listening(site: Site, data: Path, wake: Callable[[], None], **values: Any) -> Iterator[Service]:
    previews = Slots(1, "blendex.units")
    listener = listen("127.0.0.1", 0)
    app = create_app(site, previews, wake, **values)
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=5, timeout_keep_alive=30)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        with httpx.Client(base_url=url, timeout=90, trust_env=False) as http:
            yield Service(url, site, http, data, app)
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
        previews.close()
        site.work.engine.dispose()


@contextmanager
def working(site: Site, data: Path) -> Iterator[Service]:
    """A service that listens, with its claim loop."""
    loop = ClaimLoop(site, Slots(2, "blendex.units"))
    worker = threading.Thread(target=loop.run)
    worker.start()
    try:
        with listening(site, data, loop.wake, alive=worker.is_alive) as running:
            yield running
    finally:
        loop.stop()
        worker.join()


def _site(folder: Path, allowed: Path, **values: Any) -> Site:
    settings = Settings.model_validate({"root": folder, "poll_seconds": 0.05, "slots": 2, **values})
    return open_site(settings, (str(allowed),))


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped sample, old enough to prove something."""
    folder = make(tmp_path_factory.mktemp("allowed") / "sample").parent
    corpus.wait_until_calm()
    return folder


@pytest.fixture(scope="session")
def blend(sample: Path) -> str:
    """The sample's blend, with its folder written out."""
    return (sample / "blend.yaml").read_text().replace("${data_blend_dir}", str(sample))


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory, sample: Path) -> Iterator[Service]:
    """The service with its claim loop."""
    site = _site(tmp_path_factory.mktemp("served") / "root", sample.parent)
    with working(site, sample.parent) as running:
        yield running


@pytest.fixture(scope="session")
def idle(tmp_path_factory: pytest.TempPathFactory, sample: Path) -> Iterator[Service]:
    """A service whose builds stay queued: nobody works, and few may wait or send much."""
    site = _site(tmp_path_factory.mktemp("idle") / "root", sample.parent, max_submission_bytes=200_000)
    with listening(site, sample.parent, lambda: None, alive=lambda: False, most_waiters=2) as running:
        yield running


@pytest.fixture(scope="session")
def ready(service: Service, blend: str) -> dict[str, Any]:
    """The sample, built."""
    build = service.built(blend, name="sample")
    assert build["state"] == "ready", build
    return build


@pytest.fixture
def shards(service: Service, request: pytest.FixtureRequest) -> tuple[str, Path]:
    """A tiny dataset of the test's own: the blend, and its folder."""
    folder = service.data / request.node.name.replace("[", "-").replace("]", "")
    return corpus.corpus(folder), folder
