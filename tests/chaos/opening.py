"""Sites of trials, all of which lie at the same place, one after another."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from unittest import mock

from blendex.builds import site as sites
from blendex.builds.site import Site
from blendex.catalog.dialect import open_engine
from tests.support.corpus import site

# One engine for each address: what SQLAlchemy has compiled for it serves all trials of a process. Compiling anew was
# four tenths of what a trial cost. The engine's connections end with every site, so before every fork.
_engine = cache(open_engine)


def opened(root: Path) -> Site:
    """A site on this root, as a program has it that starts."""
    with mock.patch.object(sites, "open_engine", _engine):
        return site(root, lease_seconds=600, stat_threads=1)
