"""The page ``/docs`` and the description it shows; nothing is loaded from elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.responses import HTMLResponse, Response

from blendex.version import __version__
from service.api.v1.schemas import Problem
from service.files import Files
from service.rules import ADMIN, OPEN, RULES

STATIC = Path(__file__).parent / "static"
PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Blendex: the API</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/static/swagger/swagger-ui.css">
</head>
<body>
<main id="api"><noscript>The description is at <a href="/openapi.json">/openapi.json</a>.</noscript></main>
<script src="/static/swagger/swagger-ui-bundle.js"></script>
<script src="/static/docs.js"></script>
</body>
</html>
"""
ABOUT = """\
A blend in, a mirror path out. Post the YAML that lists the datasets of a training run; get the path of an
immutable folder with the indexes that make them randomly accessible.

Failures are RFC 9457 problems with a stable `code`. With `Accept: text/plain` every answer is one line for a
shell: 200 the path, 503 building (ask again after `Retry-After`), 409 failed, 410 collected, 404 unknown.
"""

router = APIRouter(include_in_schema=False)


@router.get("/docs")
async def docs() -> Response:
    """The description of the API, to read and to try."""
    return HTMLResponse(PAGE)


def describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document: every operation answers failures as problems."""
    if app.openapi_schema:
        return app.openapi_schema
    document = get_openapi(title="Blendex", version=__version__, description=ABOUT, routes=app.routes)
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas["Problem"] = Problem.model_json_schema()
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    shape = {"$ref": "#/components/schemas/Problem"}
    failure = {
        "description": "A problem, or one line of text.",
        "content": {
            "application/problem+json": {"schema": shape},
            "text/plain": {"schema": {"type": "string"}},
        },
    }
    # Where nobody is asked who they are a token is not looked at: that is no security to speak of.
    asks = app.state.gate.asks
    if asks:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    scopes = {(method, path.replace(":path}", "}")): scope for (method, path), scope in RULES.items()}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            scope = scopes.get((method.upper(), path), ADMIN)
            if asks:
                operation["security"] = [] if scope == OPEN else [{"token": []}]
            operation["description"] = f"{operation.get('description', '')}\n\nScope: `{scope}`.".strip()
            operation["responses"].pop("422", None)
            operation["responses"]["default"] = failure
            for answer in operation["responses"].values():
                # FastAPI describes an answer it knows nothing of as JSON of any shape.
                content = answer.get("content", {})
                if content.get("application/json", {}).get("schema") == {} and len(content) > 1:
                    del content["application/json"]
    app.openapi_schema = document
    return document


def install(app: FastAPI) -> None:
    """Serve page, files and description."""
    app.include_router(router)
    app.mount("/static", Files(STATIC), name="static")
    app.openapi = lambda: describe(app)  # type: ignore[method-assign]
