"""PostgreSQL, Redis and a cluster, started once for the tests that leave them whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from blendex.builds.run import run_build
from tests.cluster.cluster import Cluster, running
from tests.support import corpus, services


def pytest_runtest_setup() -> None:
    """A machine without the programs of PostgreSQL and Redis runs the rest of the tests; CI has them."""
    if not (services.has_postgres() and services.has_redis()) and not os.environ.get("CI"):
        pytest.skip("PostgreSQL or Redis is not installed: apt-get install postgresql redis-server")


@pytest.fixture(scope="session")
def redis() -> Iterator[services.Redis]:
    server = services.Redis()
    yield server
    server.close()


@pytest.fixture(scope="session")
def broker_url(request: pytest.FixtureRequest) -> str:
    given = os.environ.get("BLENDEX_TEST_BROKER_URL")
    return given or str(request.getfixturevalue("redis").url)


@pytest.fixture(scope="session")
def shared_databases() -> Iterator[services.Databases]:
    with services.databases() as maker:
        yield maker


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, shared_databases: services.Databases, broker_url: str
) -> Iterator[Cluster]:
    """Two api processes, three workers."""
    root = tmp_path_factory.mktemp("cluster") / "root"
    with running(Cluster(root, shared_databases.make(), broker_url).start()) as started:
        yield started


@pytest.fixture
def calm(tmp_path: Path) -> Any:
    """Builds the same blend in this process alone, on SQLite: the embedded form, with children."""

    def build(blend: str, folder: Path) -> dict[str, Any]:
        site = corpus.site(tmp_path / "calm")
        result = run_build(site, corpus.submission(blend, folder))
        site.work.engine.dispose()
        assert result["state"] == "ready", result
        return result

    return build
