"""Which scope every route asks for: the whole of it, on one page. A route that is not here is for nobody but admins,
and a test fails.
"""

from __future__ import annotations

OPEN = "open"  # for whoever reaches the port: tells nothing of anybody
LOOKUP, READ, BUILD, ADMIN = "lookup", "read", "build", "admin"

_API = {
    LOOKUP: """
        GET /v1/builds/{build}/path
        GET /v1/mirrors/{key}/path
        GET /v1/names/{name}/path
    """,
    READ: """
        GET /v1/builds
        GET /v1/builds/{build}
        GET /v1/builds/{build}/blend
        GET /v1/builds/{build}/blend.diff
        GET /v1/builds/{build}/events
        GET /v1/builds/{build}/findings
        GET /v1/builds/{build}/log
        GET /v1/builds/{build}/problems
        GET /v1/mirrors
        GET /v1/mirrors/{key}
        GET /v1/mirrors/{key}/holds
        GET /v1/mirrors/{key}/receipt
        POST /v1/mirrors/resolve
        GET /v1/sources
        GET /v1/names
        GET /v1/names/{name}
        POST /v1/lint
        GET /v1/usage
        GET /v1/workers
    """,
    BUILD: """
        POST /v1/builds
        POST /v1/builds/{build}/accept
        POST /v1/builds/{build}/cancel
        POST /v1/builds/{build}/packs
        POST /v1/builds/{build}/rebind
        POST /v1/builds/{build}/retry
        POST /v1/mirrors/{key}/holds
        POST /v1/mirrors/{key}/verify
        DELETE /v1/mirrors/{key}/holds/{kind}/{holder:path}
        PUT /v1/names/{name}
    """,
    ADMIN: """
        GET /v1/audit
        GET /v1/teams
        PUT /v1/teams/{team}
        GET /v1/tokens
        POST /v1/tokens
        DELETE /v1/tokens/{token}
    """,
    OPEN: """
        GET /healthz
        GET /readyz
        GET /metrics
        GET /docs
    """,
}
_PAGES = {
    OPEN: """
        GET /
        POST /theme
        GET /login
        POST /login
        POST /logout
    """,
    READ: """
        GET /builds
        GET /builds/live
        GET /builds/{build}
        GET /builds/{build}/live
        GET /builds/{build}/plot.json
        GET /builds/{build}/units
        GET /builds/{build}/posted
        GET /builds/{build}/findings
        GET /mirrors
        GET /mirrors/live
        GET /mirrors/{key}
        GET /sources
        GET /lint
        POST /lint
        POST /lint/report
    """,
    BUILD: """
        GET /builds/new
        POST /builds/new
        POST /builds/{build}/cancel
        POST /builds/{build}/retry
        POST /builds/{build}/accept
        POST /mirrors/{key}/verify
    """,
    ADMIN: """
        GET /workers
        GET /workers/live
        GET /workers/memory.json
        GET /health
    """,
}

#: (method, path) of every route: the scope that it asks for
RULES: dict[tuple[str, str], str] = {
    (method, path): scope
    for table in (_API, _PAGES)
    for scope, lines in table.items()
    for method, path in (line.split() for line in lines.strip().splitlines())
}
