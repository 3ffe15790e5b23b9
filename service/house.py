"""What every endpoint gets: the site and the few long-lived objects beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated

from fastapi import Depends
from starlette.requests import Request

from blendex.builds.looks import Looks
from blendex.builds.resolve import Resolver
from blendex.builds.site import Site
from blendex.builds.uses import Uses
from service.callers import Guarded
from service.lints import Lints
from service.previews import Previews
from service.verifier import Verifier
from service.watch import Watch


@dataclass(frozen=True, slots=True)
class House:
    """Made once per process, by ``create_app``."""

    site: Site
    previews: Previews
    wake: Callable[[], None]
    alive: Callable[[], bool]
    resolver: Resolver
    uses: Uses
    looks: Looks
    watch: Watch | Guarded
    lints: Lints
    verifier: Verifier


def get_house(request: Request) -> House:
    """The house of the app that got this request, as whoever asks may use it."""
    house: House = request.app.state.house
    site: Site = request.state.site
    watch = house.watch
    if site.settings.auth != "none":
        assert isinstance(watch, Watch)
        watch = Guarded(watch, request)
    resolver, uses = house.resolver.used_by(site), house.uses.used_by(site)
    return replace(house, site=site, resolver=resolver, uses=uses, watch=watch)


HouseOf = Annotated[House, Depends(get_house)]
