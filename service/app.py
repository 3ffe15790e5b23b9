"""The app: endpoints over one opened site. Whoever calls ``create_app`` owns site, runner and claim loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastapi import Depends, FastAPI

from blendex.builds.looks import Looks
from blendex.builds.resolve import Resolver
from blendex.builds.site import Site
from blendex.builds.uses import Uses
from blendex.runtime.slots import Runner
from blendex.version import __version__
from service import docs, health, problems, telemetry
from service.api.v1 import admin, builds, lint, mirrors, names, sources, usage, workers
from service.callers import Gate, guard
from service.dashboard import site as site_pages
from service.edge import Edge
from service.house import House
from service.limits import BodyLimit
from service.lints import Lints
from service.previews import Previews
from service.rates import RateLimit
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
    resolver = Resolver(site)
    lints = Lints(site, verdicts=resolver.verdicts)
    looks = Looks()
    watch, verifier = Watch(site, looks, most_waiters), Verifier(site)
    house = House(site, Previews(site, previews), wake, alive, resolver, Uses(site), looks, watch, lints, verifier)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await watch.close()
        lints.close()
        verifier.close()

    app = FastAPI(
        title="Blendex",
        version=__version__,
        openapi_url="/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
        dependencies=[Depends(guard)],
    )
    app.state.house = house
    app.state.gate = Gate(site)
    problems.install(app)
    routers = (builds, mirrors, names, sources, lint, usage, workers, admin, health, telemetry)
    for router in (module.router for module in routers):
        app.include_router(router)
    docs.install(app)
    site_pages.install(app)
    app.add_middleware(BodyLimit, submission=site.settings.max_submission_bytes)
    rates = {"lookup": "lookups", "read": "reads", "write": "writes"}
    per_second = {sort: float(getattr(site.settings, f"{name}_per_second")) for sort, name in rates.items()}
    app.add_middleware(RateLimit, rates=per_second)
    app.add_middleware(Edge)
    return app
