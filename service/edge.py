"""The outermost layer: headers of every answer, HEAD, requests from foreign pages, the unforeseen."""

from __future__ import annotations

import logging
import os
import re
import time
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from blendex.errors import BlendexError, Code
from blendex.observability import logs, metrics, traces
from service.problems import internal, reply

logger = logging.getLogger("blendex.service")
access = logs.get_logger("blendex.access")

REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
# Methods that are words of HTTP; any other one would be a label of the caller's making.
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

# Of address and headers together; the server itself lets go of a client that sends more than twice as much unended.
HEAD_BYTES = 32 * 1024

NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
# data: is for the icons inside swagger-ui.css; scripts and styles come from us alone.
PAGE = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
# The dashboard: scripts, styles and pictures of our own files, forms that lead to us.
SITE = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
# Files carry a mark of what is in them in their address, and without one are asked for again after a while.
STATIC_CACHE, MARKED_CACHE = "public, max-age=300", "public, max-age=31536000, immutable"


class Edge:
    """Wraps the whole app."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, whatever happens."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        number = _request_id(headers.get("x-request-id"))
        span = traces.begin("blendex.request", headers.get("traceparent"), method=scope["method"], request=number)
        head = scope["method"] == "HEAD"
        # The same number stands in the log, in the answer, and beside what a request changed.
        scope = {**scope, "state": {**scope.get("state", {}), "number": number}} | ({"method": "GET"} if head else {})
        with logs.bound(request=number), traces.within(span):
            try:
                await self._answer(scope, receive, send, number, head)
            finally:
                traces.end(span, route=getattr(scope.get("route"), "path", "none"))

    async def _answer(self, scope: Scope, receive: Receive, send: Send, number: str, head: bool) -> None:
        began = time.monotonic()
        started = ended = False

        async def dressed(message: Message) -> None:
            nonlocal started, ended
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                _dress(headers, scope, message["status"])
                headers["X-Request-Id"] = number
                _note(scope, "HEAD" if head else scope["method"], message["status"], time.monotonic() - began)
                await send(message)
            elif not head:
                await send(message)
            elif not ended:
                ended = True
                await send({"type": "http.response.body", "body": b"", "more_body": False})

        async def until_headers() -> Message:
            # A stream asked for by HEAD ends with its headers.
            return {"type": "http.disconnect"} if started else await receive()

        request = Request(scope)
        try:
            if (size := _head(scope)) > HEAD_BYTES:
                await reply(request, _too_long(size), status=431)(scope, receive, dressed)
                return
            if (refusal := _foreign(scope)) is not None:
                await reply(request, refusal, status=403)(scope, receive, dressed)
                return
            await self._app(scope, until_headers if head else receive, dressed)
        except Exception:
            logger.exception("internal error: %s %s", scope["method"], scope["path"])
            if not started:
                await internal(request)(scope, receive, dressed)


def _request_id(given: str | None) -> str:
    """The caller's own number, if it may stand in a header and a log line; else a new one."""
    return given if given is not None and REQUEST_ID.fullmatch(given) else os.urandom(8).hex()


def _note(scope: Scope, method: str, status: int, seconds: float) -> None:
    """Count an answer, by the route it matched: what callers write into addresses is no label."""
    route = getattr(scope.get("route"), "path", "none")
    method = method if method in METHODS else "other"
    metrics.REQUESTS.labels(method, route, str(status)).inc()
    metrics.REQUEST_SECONDS.labels(method, route).observe(seconds)
    quiet = route in ("/healthz", "/readyz", "/metrics")
    log = access.debug if quiet else access.info
    log("answered", method=method, route=route, status=status, milliseconds=round(seconds * 1000, 1))


def _dress(headers: MutableHeaders, scope: Scope, status: int) -> None:
    path = scope["path"]
    headers["X-Content-Type-Options"] = "nosniff"
    is_page = headers.get("content-type", "").startswith("text/html")
    # With no-referrer a browser says of our own forms that they come from nowhere (Origin: null).
    headers["Referrer-Policy"] = "same-origin" if is_page else "no-referrer"
    headers["Content-Security-Policy"] = PAGE if path == "/docs" else SITE if is_page else NOTHING
    if path.startswith("/static/") and status in (200, 304):
        marked = scope["query_string"].startswith(b"v=")
        headers.setdefault("Cache-Control", MARKED_CACHE if marked else STATIC_CACHE)
    headers.setdefault("Cache-Control", "no-store")
    headers.add_vary_header("Accept")


def _head(scope: Scope) -> int:
    """Bytes of a request's address and headers."""
    address = len(scope.get("raw_path") or b"") + len(scope["query_string"])
    return address + sum(len(name) + len(value) for name, value in scope["headers"])


def _too_long(size: int) -> BlendexError:
    return BlendexError(
        Code.BAD_REQUEST,
        f"address and headers have {size} bytes, and {HEAD_BYTES} at most are read.",
        next_step="Leave out headers, or send fewer variables.",
    )


def _foreign(scope: Scope) -> BlendexError | None:
    """Refuse what a page of another site makes a browser send: it must not start or cancel builds here."""
    if scope["method"] in ("GET", "OPTIONS"):
        return None
    headers = Headers(scope=scope)
    origin = headers.get("origin")
    same = origin is None or urlsplit(origin).netloc == headers.get("host")
    if same and headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
        return None
    return BlendexError(
        Code.BAD_REQUEST,
        "this request was sent by a page of another site.",
        next_step="Use curl, the CLI, or the page /docs of this service.",
    )
