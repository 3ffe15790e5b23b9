"""The dashboard as a whole: its routers, the way in, and the theme."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from service.addresses import secure
from service.dashboard import build, builds, lint, login, mirrors, operate, sources
from service.dashboard.forms import read_form
from service.dashboard.live import Renders
from service.dashboard.pages import THEME, THEMES, YEAR, PageRoute, see

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/")
async def root() -> Response:
    """Where people land who type the address."""
    return RedirectResponse("/builds")


@router.post("/theme")
async def theme(request: Request) -> Response:
    """Keep which theme was chosen, and go back."""
    form = await read_form(request)
    back = form.get("back")
    answer = see(back if back.startswith("/") and not back.startswith(("//", "/\\")) else "/builds")
    if form.get("theme") in THEMES:
        answer.set_cookie(
            THEME, form.get("theme"), max_age=YEAR, samesite="lax", httponly=True,
            secure=secure(request),
        )  # fmt: skip
    return answer


def install(app: FastAPI) -> None:
    """Serve the pages."""
    app.state.renders = Renders()
    app.include_router(router)
    for part in (builds, build, mirrors, sources, operate, lint, login):
        app.include_router(part.router)
