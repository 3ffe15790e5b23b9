"""Errors as answers: RFC 9457 for programs, one line for shells. The only place that knows their statuses."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import compile_path

from blendex.catalog.dialect import AWAY
from blendex.errors import BlendexError, Code
from service.replies import ProblemJson, retry_after, text_reply, wants_text

logger = logging.getLogger("blendex.service")

# 422: the request is understood, and what it names cannot be built from. 409: true now, may change by itself.
STATUS: dict[Code, int] = {
    Code.BLEND_TOO_LARGE: 413,
    Code.BLEND_SYNTAX: 422,
    Code.BLEND_TAG: 422,
    Code.BLEND_DUPLICATE_KEY: 422,
    Code.BLEND_TOO_DEEP: 422,
    Code.BLEND_TOO_MANY_NODES: 422,
    Code.BLEND_RECURSIVE: 422,
    Code.BLEND_SHAPE: 422,
    Code.BLEND_EMPTY: 422,
    Code.UNKNOWN_TYPE: 422,
    Code.UNKNOWN_KEY: 422,
    Code.MISSING_KEY: 422,
    Code.BAD_VALUE: 422,
    Code.UNKNOWN_VARIABLE: 422,
    Code.UNSUPPORTED_INTERPOLATION: 422,
    Code.PATTERN_UNBALANCED: 422,
    Code.PATTERN_TOO_MANY: 422,
    Code.NESTED_MISSING: 422,
    Code.NESTED_CYCLE: 422,
    Code.FOLDER_MISSING: 422,
    Code.FOLDER_EMPTY: 422,
    Code.RELATIVE_WITHOUT_BASE: 422,
    Code.PATH_OUTSIDE_ROOTS: 403,
    Code.PATH_UNSUPPORTED: 422,
    Code.PATH_COMPRESSED: 422,
    Code.INDEX_PATH_COLLISION: 422,
    Code.INDEX_PATH_ESCAPE: 422,
    Code.SOURCE_MISSING: 422,
    Code.SOURCE_UNREADABLE: 422,
    Code.SOURCE_NOT_REGULAR: 422,
    Code.SOURCE_CHANGED: 409,
    Code.SOURCE_REFUSED: 422,
    Code.TAR_EMPTY: 422,
    Code.TAR_BAD_HEADER: 422,
    Code.TAR_TRUNCATED: 422,
    Code.TAR_ODD_MEMBERS: 422,
    Code.WDS_BAD_SAMPLE: 422,
    Code.ROUTE_BROKEN: 422,
    Code.SIDECAR_MISSING: 422,
    Code.SIDECAR_DAMAGED: 422,
    Code.PACK_REFUSED: 422,
    Code.PACK_DAMAGED: 500,
    Code.PACK_VERSION: 422,
    Code.STORE_UNKNOWN: 422,
    Code.STORE_DENIED: 422,
    Code.STORE_UNREACHABLE: 503,
    Code.STORE_BUSY: 503,
    Code.STORE_BROKEN: 502,
    Code.STORE_SETTINGS: 500,
    Code.STORE_SDK: 500,
    Code.OUT_OF_MEMORY: 500,
    Code.CHILD_DIED: 500,
    Code.TIMEOUT: 504,
    Code.NO_SPACE: 507,
    Code.STALLED: 504,
    Code.STORAGE_AWAY: 503,
    Code.NO_RESOURCES: 503,
    Code.EMPTY_BUILD: 422,
    Code.CANCELLED: 409,
    Code.INTERNAL: 500,
    Code.BAD_REQUEST: 400,
    Code.WRONG_STATE: 409,
    Code.NOT_FOUND: 404,
    Code.UNAUTHENTICATED: 401,
    Code.FORBIDDEN: 403,
    Code.BUSY: 429,
    Code.LINT_REFUSED: 422,
    Code.RATE_LIMITED: 429,
    Code.QUOTA_FULL: 429,
    Code.QUOTA_EXCEEDED: 403,
    Code.MIRROR_DAMAGED: 500,
    Code.OBJECT_DAMAGED: 500,
    Code.ROOT_SETTINGS: 503,
    Code.CATALOG_MISMATCH: 503,
    Code.CATALOG_VERSION: 503,
    Code.CATALOG_AWAY: 503,
}


def problem(error: BlendexError, status: int, instance: str, extra: dict[str, Any] | None = None) -> dict[str, Any]:
    """The RFC 9457 document of an error."""
    fields = {
        "type": f"urn:blendex:error:{error.code}",
        "title": str(error.code).replace("_", " ").capitalize(),
        "status": status,
        "code": str(error.code),
        "detail": error.message,
        "file": error.file,
        "line": error.line,
        "byte": error.byte,
        "next_step": error.next_step or None,
        "instance": instance,
    }
    return {key: value for key, value in fields.items() if value is not None} | (extra or {})


def reply(
    request: Request,
    error: BlendexError,
    *,
    status: int | None = None,
    headers: dict[str, str] | None = None,
    extra: dict[str, Any] | None = None,
) -> Response:
    """An error as the caller wants to read it."""
    status = STATUS[error.code] if status is None else status
    headers = dict(headers or {})
    if status in (429, 503):
        headers.setdefault("Retry-After", retry_after(None))
    if status == 401:
        headers.setdefault("WWW-Authenticate", 'Bearer realm="blendex"')
    if wants_text(request):
        return text_reply(request, f"{error.code}: {error}", status, headers)
    return ProblemJson(problem(error, status, request.url.path, extra), status, headers)


def internal(request: Request) -> Response:
    """Something unforeseen: logged where it was caught, never shown."""
    error = BlendexError(
        Code.INTERNAL,
        "the service failed in a way it does not know.",
        next_step="Tell its operator; see its log.",
    )
    return reply(request, error)


def _validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    # Never the input itself: it may be anything.
    wrong = [(".".join(str(part) for part in item["loc"]), str(item["msg"])) for item in error.errors()]
    answer = BlendexError(
        Code.BAD_REQUEST,
        "; ".join(f"{where}: {what}" for where, what in wrong[:5]) + ".",
        next_step="See /docs for what this address takes.",
    )
    return reply(request, answer, extra={"errors": [{"where": where, "what": what} for where, what in wrong]})


def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        answer = BlendexError(Code.NOT_FOUND, "there is nothing at this address.", next_step="See /docs.")
    elif error.status_code == 405:
        answer = BlendexError(
            Code.BAD_REQUEST,
            f"{request.method} is not possible here.",
            next_step="See the header Allow, and /docs.",
        )
    else:
        answer = BlendexError(Code.BAD_REQUEST, str(error.detail), next_step="See /docs.")
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = _allowed(request)
    return reply(request, answer, status=error.status_code, headers=headers)


def _allowed(request: Request) -> str:
    """Every method of an address; the router itself names those of the first route that matches."""
    methods: set[str] = set()
    for template, operations in request.app.openapi()["paths"].items():
        if compile_path(template)[0].match(request.url.path):
            methods |= {method.upper() for method in operations}
    return ", ".join(sorted(methods | {"HEAD"} if "GET" in methods else methods)) or "GET, HEAD"


def _known(request: Request, error: Exception) -> Response:
    assert isinstance(error, BlendexError)
    return reply(request, error)


def _database(request: Request, error: Exception) -> Response:
    logger.error("the database does not answer: %s %s (%s)", request.method, request.url.path, type(error).__name__)
    return reply(request, away())


def away() -> BlendexError:
    """The database does not answer."""
    return BlendexError(
        Code.CATALOG_AWAY,
        "the database does not answer.",
        next_step="Ask again in a few seconds. Published builds, names and mirrors are still found by their addresses.",
    )


def install(app: FastAPI) -> None:
    """Let an app answer errors this way. What is left is caught by ``service.edge``."""
    app.add_exception_handler(BlendexError, _known)
    app.add_exception_handler(RequestValidationError, _validation)
    app.add_exception_handler(HTTPException, _http)
    for kind in AWAY:
        app.add_exception_handler(kind, _database)
