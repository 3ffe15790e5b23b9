"""The app: endpoints over one opened site. Whoever calls ``create_app`` owns site, runner and claim loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI

from blendex.builds.resolve import Resolver
from blendex.builds.site import Site
from blendex.runtime.slots import Runner
from blendex.version import __version__
from service import docs, health, problems, telemetry
from service.api.v1 import builds, lint, mirrors, names, sources, workers
from service.dashboard import site as site_pages
from service.edge import Edge
from service.house import House
from service.limits import BodyLimit
from service.lints import Lints
from service.previews import Previews
from service.verifier import Verifier
from service.watch import MOST_WAITERS, Watch


def create_app(
    site: Site,
    previews: Runner,
    wake: Callable[[], None],
    *,
    alive: Callable[[], bool] = lambda: True,
    most_waiters: int = MOST_WAITERS,
) -> FastAPI:
    """The service over ``site``.

    Args:
        site: root and catalog.
        previews: a runner of one slot that nobody else uses.
        wake: called after work was written to the catalog, so that nobody waits for a poll.
        alive: whether the claim loop runs; asked by ``/readyz``.
        most_waiters: requests that may wait for a build at one time.
    """
    house = House(
        site, Previews(site, previews), wake, alive, Resolver(site), Watch(site, most_waiters), Lints(site),
        Verifier(site),
    )  # fmt: skip

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await house.watch.close()
        house.lints.close()
        house.verifier.close()

    app = FastAPI(
        title="Blendex",
        version=__version__,
        openapi_url="/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
    )
    app.state.house = house
    problems.install(app)
    routers = (builds, mirrors, names, sources, lint, workers, health, telemetry)
    for router in (module.router for module in routers):
        app.include_router(router)
    docs.install(app)
    site_pages.install(app)
    app.add_middleware(BodyLimit, submission=site.settings.max_submission_bytes)
    app.add_middleware(Edge)
    return app
