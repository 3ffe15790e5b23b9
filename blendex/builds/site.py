"""An opened root with its catalog: what every action on builds needs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from blendex.blend.world import World
from blendex.builds import adopt
from blendex.builds.profiles import profiles_for
from blendex.catalog import endpoints, revision
from blendex.catalog.audit import Actor
from blendex.catalog.dialect import AWAY, alone, is_remote, open_engine
from blendex.catalog.engine import UnitOfWork, belongs, default_url, tie
from blendex.errors import BlendexError
from blendex.settings import Settings
from blendex.storage.profiles import Profile
from blendex.storage.root import Root
from blendex.storage.stores import Stores

# A process that does not migrate waits this long for the one that does.
MIGRATION_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Site:
    """Settings, root and catalog of this process."""

    settings: Settings
    root: Root
    work: UnitOfWork
    roots: tuple[str, ...]  # where sources may be read
    warning: str | None = None
    stores: tuple[Profile, ...] = field(default=(), repr=False)  # where objects may be read
    views: tuple[tuple[str, str], ...] = ()  # of the team it is used for
    actor: Actor | None = None  # who uses it; None: whoever started the process

    @property
    def who(self) -> Actor:
        """Who uses it."""
        return self.actor or Actor(self.settings.owner, everything=True)

    def reading(self, patience: float | None = None) -> dict[str, Any]:
        """What a child is told of where it may read. With secrets: for its pipe, and for nothing that is kept.

        ``patience``: seconds at most for which one request is tried.
        """
        if not self.stores:
            return {"roots": list(self.roots), "stores": []}
        with self.work.read() as session:
            paces = endpoints.paces(session)
        stores = [profile.as_dict() | {"pace": paces.get(profile.name, {})} for profile in self.stores]
        if patience is not None:
            for item in stores:
                item["patience_seconds"] = min(item["patience_seconds"], patience)
        return {"roots": list(self.roots), "stores": stores}

    @property
    def plan_patience(self) -> float:
        """Seconds of pauses in which a plan waits for a store that is away."""
        given = self.settings.plan_patience
        return self.settings.store_patience if given is None else given

    def storage(self) -> Stores:
        """The stores, for small reads in this process."""
        return Stores(self.roots, self.stores)

    def seen(self, world: World) -> World:
        """A world as a submission brings it, with the views of its team: the submission's own come first."""
        return replace(world, view=world.view + self.views) if self.views else world

    def placed(self, world: World) -> World:
        """A world with the routes of this site's profiles: which endpoint answers for a URL is no client's choice."""
        return replace(world, stores=tuple(route for profile in self.stores for route in profile.routes()))


def open_site(
    settings: Settings,
    roots: tuple[str, ...],
    application: str = "blendex",
    *,
    own: bool = False,
    patient: bool = False,
) -> Site:
    """Open the root and its catalog, migrated; an empty catalog is filled from what the root holds.

    Args:
        settings: where things are.
        roots: the folders in which this process may read sources; ``("/",)`` for a user's own command line.
        application: what PostgreSQL shows for this process.
        own: a user's own program, which may read what the user may: without profiles in the settings, its environment
            says where objects are. Never for a service, whatever its roots are.
        patient: begin without a database that does not answer, for ``open_catalog`` to open it when it is back.

    Raises:
        BlendexError: catalog_mismatch, catalog_version.
    """
    root = Root(settings.root)
    root.prepare()
    if settings.root_group is not None:
        root.restrict(settings.root_group)
    warning = None
    url = settings.database_url
    if url is None:
        url, warning = default_url(root.path, settings.state_dir)
    engine = open_engine(url, application)
    site = Site(settings, root, UnitOfWork(engine, opened=False), roots, warning, profiles_for(settings, own))
    try:
        if patient and is_remote(engine):
            revision.current(engine)  # at once, and not after the patience with whoever migrates
        open_catalog(site)
    except AWAY:
        if not patient or not is_remote(engine):
            engine.dispose()
            raise
    except BlendexError:
        engine.dispose()
        raise
    return site


def open_catalog(site: Site) -> None:
    """Bring the catalog to the revision of this program, see that it belongs to the root, and open it for work.

    Raises:
        BlendexError: catalog_mismatch, catalog_version.
    """
    engine = site.work.engine
    if not site.settings.migrate:
        revision.wait_for_fit(engine, MIGRATION_SECONDS)
    elif not revision.fits(engine):
        from blendex.catalog import migrate

        migrate.upgrade(engine)
    work = UnitOfWork(engine)
    if not belongs(work, site.root.path):
        with alone(engine, "adoption"):
            if not belongs(work, site.root.path):
                # Tied last: a stop in between begins again, and taking a thing twice changes nothing.
                counts = adopt.adopt_all(work, site.root)
                tie(work, site.root.path, adopted=any(counts.values()))
    site.work.open()
