"""How a page is made: templates, what every page gets, errors, and the protection of forms.

A form carries a token that is also in a cookie of the same site (double submit): a page elsewhere can send neither.
That other origins are refused at all is the edge's doing. The pages read and act without any script.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from blendex.catalog import states, trace
from blendex.catalog.dialect import AWAY
from blendex.errors import BlendexError, Code
from blendex.version import __version__
from service import problems
from service.addresses import secure
from service.callers import Caller
from service.dashboard import drawing, words
from service.house import House

STATIC = Path(__file__).parent.parent / "static"
CSRF = "blendex_csrf"
THEME = "blendex_theme"
THEMES = ("auto", "light", "dark")
_TOKEN = re.compile(r"[0-9a-f]{32}")
# Pages that are shown in answer to their own form, too.
FORMS = ("/builds/new", "/lint")
YEAR = 365 * 86_400
NAVIGATION = (
    ("/builds", "Builds"),
    ("/mirrors", "Mirrors"),
    ("/sources", "Sources"),
    ("/workers", "Workers"),
    ("/lint", "Lint"),
    ("/health", "Health"),
)


def _asset(name: str) -> str:
    """The address of a file that a page loads, with a mark of what is in it: it may be kept for ever."""
    mark = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]
    return f"/static/{name}?v={mark}"


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("service.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=words.finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "n": words.count,
        "size": words.size,
        "span": words.span,
        "moment": words.moment,
        "state": words.state,
        "weight": words.weight,
        "percent": words.percent,
        "hours": words.hours,
        "short": words.short,
        "query": urlencode,
        "worst": lambda cell: trace.worst(cell["units"]),
        "map_pairs": lambda items: [(item["name"], item["seconds"]) for item in items],
    }
    names = (
        "htmx/htmx.min.js", "htmx/hx-sse.min.js", "uplot/uPlot.iife.min.js", "uplot/uPlot.min.css",
        "dashboard/app.css", "dashboard/app.js", "dashboard/icon.svg",
    )  # fmt: skip
    made.globals |= {
        "asset": {name: _asset(name) for name in names},
        "share": words.share,
        "bar": drawing.bar,
        "stages_bar": drawing.stages,
        "strip": drawing.strip,
        "navigation": NAVIGATION,
        "themes": THEMES,
        "version": __version__,
    }
    return made


ENVIRONMENT = _environment()


def token_of(request: Request) -> str:
    """The token for the forms of this browser: the one it has, else a new one."""
    given = request.cookies.get(CSRF, "")
    return given if _TOKEN.fullmatch(given) else secrets.token_hex(16)


def check_token(request: Request, fields: dict[str, str]) -> None:
    """Refuse a form that was not made for this browser.

    Raises:
        BlendexError: forbidden, as a bad request that says what to do.
    """
    given = request.cookies.get(CSRF, "")
    if not _TOKEN.fullmatch(given) or not hmac.compare_digest(given.encode(), fields.get("csrf", "").encode()):
        raise BlendexError(
            Code.BAD_REQUEST,
            "this form was not made for this browser, or cookies are off.",
            next_step="Open the page again, and send the form from there.",
        )


def theme_of(request: Request) -> str:
    """The theme that was chosen."""
    chosen = request.cookies.get(THEME, "auto")
    return chosen if chosen in THEMES else "auto"


def render(template: str, now: float, **values: Any) -> str:
    """A part of a page that is the same for whoever looks."""
    return ENVIRONMENT.get_template(template).render(now=now, ago=lambda at: words.ago(at, now), **values)


def page(request: Request, template: str, now: float, status: int = 200, **values: Any) -> Response:
    """A whole page."""
    token = token_of(request)
    here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    if request.method != "GET" and request.url.path not in FORMS:
        here = "/builds"  # where there is only a form to be sent to, there is nothing to come back to
    values |= {"caller": known_caller(request)}
    text = render(template, now, token=token, theme=theme_of(request), here=here, path=request.url.path, **values)
    answer = HTMLResponse(text.encode("utf-8", "backslashreplace"), status)
    if request.cookies.get(CSRF) != token:
        answer.set_cookie(CSRF, token, httponly=True, samesite="strict", secure=secure(request))
    return answer


def clock(house: House) -> float:
    """The catalog's clock: whatever a page tells of times is told by it."""
    with house.site.work.read() as session:
        return states.now(session)


def known_caller(request: Request) -> Caller | None:
    """Who is logged in; None without accounts, and while nobody is."""
    found: Caller | None = getattr(request.state, "caller", None)
    return found if found is not None and found.team else None


def login_address(request: Request) -> str:
    """Where to log in, to come back to what was asked for."""
    here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return f"/login?{urlencode({'next': here})}"


def see(address: str) -> Response:
    """What a form is answered with: look there."""
    return RedirectResponse(address, 303)


def trouble(request: Request, error: BlendexError, status: int) -> Response:
    """An error as a page. It asks nothing of the catalog, which may be what is in trouble."""
    return page(request, "error.html", 0.0, status, error=error, missing=status == 404)


class PageRoute(APIRoute):
    """A route whose errors are pages."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, with errors caught."""
        inner = super().get_route_handler()

        async def handler(request: Request) -> Response:
            try:
                return await inner(request)
            except BlendexError as error:
                if error.code is Code.UNAUTHENTICATED and request.method == "GET":
                    return see(login_address(request))
                return trouble(request, error, problems.STATUS[error.code])
            except RequestValidationError as error:
                wrong = "; ".join(".".join(str(part) for part in item["loc"][1:]) for item in error.errors()[:5])
                told = BlendexError(
                    Code.BAD_REQUEST, f"this address cannot be read: {wrong}.", next_step="Go back and choose again."
                )
                return trouble(request, told, 400)
            except AWAY:
                problems.logger.exception("the database does not answer: %s", request.url.path)
                return trouble(request, problems.away(), 503)

        return handler
