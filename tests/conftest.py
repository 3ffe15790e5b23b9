"""Fixtures that several rooms use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from blendex.builds.site import Site
from tests.support import corpus


@pytest.fixture
def open_site(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """Opens sites on roots under the test's folder; closes them at the end."""
    opened: list[Site] = []

    def make(root: Path | None = None, **values: object) -> Site:
        site = corpus.site(root or tmp_path / "root", **values)
        opened.append(site)
        return site

    yield make
    for site in opened:
        site.work.engine.dispose()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The folder of a test's corpus."""
    return tmp_path / "data"
