"""What every endpoint gets: the site and the few long-lived objects beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends
from starlette.requests import Request

from blendex.builds.resolve import Resolver
from blendex.builds.site import Site
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
    watch: Watch
    lints: Lints
    verifier: Verifier


def get_house(request: Request) -> House:
    """The house of the app that got this request."""
    house: House = request.app.state.house
    return house


HouseOf = Annotated[House, Depends(get_house)]
