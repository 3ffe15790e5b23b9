"""An opened root with its catalog: what every action on builds needs."""

from __future__ import annotations

from dataclasses import dataclass

from blendex.builds import adopt
from blendex.catalog import revision
from blendex.catalog.dialect import alone, open_engine
from blendex.catalog.engine import UnitOfWork, belongs, default_url, tie
from blendex.errors import BlendexError
from blendex.settings import Settings
from blendex.storage.root import Root

# A process that does not migrate waits this long for the one that does.
MIGRATION_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Site:
    """Settings, root and catalog of this process."""

    settings: Settings
    root: Root
    work: UnitOfWork
    roots: tuple[str, ...]  # where sources may be read
    notice: str | None = None


def open_site(settings: Settings, roots: tuple[str, ...], application: str = "blendex") -> Site:
    """Open the root and its catalog, migrated; an empty catalog is filled from what the root holds.

    Args:
        settings: where things are.
        roots: the folders in which this process may read sources; ``("/",)`` for a user's own command line.
        application: what PostgreSQL shows for this process.

    Raises:
        BlendexError: catalog_mismatch, catalog_version.
    """
    root = Root(settings.root)
    root.prepare()
    notice = None
    url = settings.database_url
    if url is None:
        url, notice = default_url(root.path, settings.state_dir)
    engine = open_engine(url, application)
    try:
        if not settings.migrate:
            revision.wait_for_fit(engine, MIGRATION_SECONDS)
        elif not revision.fits(engine):
            from blendex.catalog import migrate

            migrate.upgrade(engine)
    except BlendexError:
        engine.dispose()
        raise
    work = UnitOfWork(engine)
    if not belongs(work, root.path):
        with alone(engine, "adoption"):
            if not belongs(work, root.path):
                # Tied last: a stop in between begins again, and taking a thing twice changes nothing.
                adopt.adopt_all(work, root)
                tie(work, root.path)
    return Site(settings, root, work, roots, notice)
