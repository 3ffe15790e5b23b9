"""Fixtures that several rooms use."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from blendex.builds.site import Site
from tests.support import corpus, services

DIALECTS = ("sqlite", "postgres")


@pytest.fixture(scope="session")
def databases() -> Iterator[services.Databases]:
    """One PostgreSQL per session. A machine without its programs runs the rest; CI has them."""
    if not services.has_postgres() and not os.environ.get("CI"):
        pytest.skip("PostgreSQL is not installed, and BLENDEX_TEST_DATABASE_URL is not set: apt-get install postgresql")
    with services.databases() as maker:
        yield maker


@pytest.fixture(params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> str:
    """The catalog is the same on both."""
    return str(request.param)


@pytest.fixture
def empty_database_url(dialect: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a database with nothing in it."""
    if dialect == "sqlite":
        yield f"sqlite:///{tmp_path}/empty.sqlite"
        return
    maker: services.Databases = request.getfixturevalue("databases")
    yield maker.make()
    maker.drop_all()


@pytest.fixture
def database_url(dialect: str, request: pytest.FixtureRequest) -> Iterator[Callable[[Path], str | None]]:
    """The catalog's URL for a root, always the same; None for SQLite inside the root."""
    made: dict[Path, str] = {}
    if dialect == "sqlite":
        yield lambda root: None
        return
    maker: services.Databases = request.getfixturevalue("databases")

    def url(root: Path) -> str:
        if root not in made:
            made[root] = maker.ready()
        return made[root]

    yield url
    maker.drop_all()


@pytest.fixture
def catalog(database_url: Callable[[Path], str | None]) -> Callable[[Path], dict[str, str]]:
    """The environment in which another process finds the catalog of a root."""

    def environment(root: Path) -> dict[str, str]:
        url = database_url(root)
        return {} if url is None else {"BLENDEX_DATABASE_URL": url}

    return environment


@pytest.fixture
def open_site(tmp_path: Path, database_url: Callable[[Path], str | None]) -> Iterator[Callable[..., Site]]:
    """Opens sites on roots under the test's folder; closes them at the end."""
    opened: list[Site] = []

    def make(root: Path | None = None, **values: object) -> Site:
        root = root or tmp_path / "root"
        site = corpus.site(root, **({"database_url": database_url(root)} | values))
        opened.append(site)
        return site

    yield make
    for site in opened:
        site.work.engine.dispose()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The folder of a test's corpus."""
    return tmp_path / "data"
