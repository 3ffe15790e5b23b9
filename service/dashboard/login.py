"""Log in with a token, and out. The cookie names a session that is known here: it ends with its token, or before.

Where a listed proxy says who asks there is nothing to log in to.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from blendex.builds.tokens import close_session, digest, included, open_session, well_formed
from blendex.catalog import audit, tokens
from blendex.errors import BlendexError, Code
from service.addresses import secure
from service.callers import SESSION_COOKIE, Gate
from service.dashboard.forms import read_form
from service.dashboard.pages import PageRoute, page, see
from service.house import House, HouseOf
from service.rules import READ

router = APIRouter(route_class=PageRoute, include_in_schema=False)


def local(address: str) -> str:
    """An address of this service, to go on to; nobody is led elsewhere."""
    here = address.startswith("/") and not address.startswith(("//", "/\\")) and address.isprintable()
    return address if here else "/builds"


@router.get("/login")
def form(
    request: Request, house: HouseOf, next: Annotated[str, Query(max_length=4096)] = "/builds"  # noqa: A002
) -> Response:
    """Where a token is shown."""
    if house.site.settings.auth == "none":
        return see("/builds")
    return page(request, "login.html", 0.0, onward=local(next), error=None)


def _open(house: House, secret: str) -> str | None:
    """A session for a token, when it is good and may read."""
    if not well_formed(secret):
        return None
    with house.site.work.write() as session:
        shown = tokens.find(session, digest(secret))
        if shown is None or not shown.valid or shown.id != shown.token or READ not in included(shown.scope):
            return None
        before = house.site.who
        who = audit.Actor(
            shown.owner, shown.team, token=shown.token, request=before.request, address=before.address
        )
        return open_session(session, who, shown, house.site.settings.session_hours * 3600)


@router.post("/login")
async def login(request: Request, house: HouseOf) -> Response:
    """Open a session."""
    filled = await read_form(request)
    onward = local(filled.get("next"))
    secret = await run_in_threadpool(_open, house, filled.get("token"))
    if secret is None:
        error = BlendexError(
            Code.UNAUTHENTICATED,
            "this token opens nothing: it is unknown, was revoked, is over, or may not read.",
            next_step="Ask whoever runs this service for one.",
        )
        return page(request, "login.html", 0.0, 401, onward=onward, error=error)
    answer = see(onward)
    answer.set_cookie(
        SESSION_COOKIE, secret, max_age=int(house.site.settings.session_hours * 3600), httponly=True,
        samesite="strict", secure=secure(request),
    )  # fmt: skip
    return answer


@router.post("/logout")
async def logout(request: Request, house: HouseOf) -> Response:
    """End the session of this browser."""
    await read_form(request)
    secret = request.cookies.get(SESSION_COOKIE, "")
    if well_formed(secret):
        await run_in_threadpool(close_session, house.site, secret)
        gate: Gate = request.app.state.gate
        gate.forget(secret)
    answer = see("/login")
    answer.delete_cookie(SESSION_COOKIE, httponly=True, samesite="strict", secure=secure(request))
    return answer
