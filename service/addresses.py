"""Where people reach this service: in links and snippets, never from what a request says of itself."""

from __future__ import annotations

from starlette.requests import Request


def public(request: Request) -> str:
    """The address of the service, without a slash at its end: of the setting, else where this process listens."""
    given: str | None = request.app.state.house.site.settings.public_url
    if given is not None:
        return given
    host, port = request.scope.get("server") or ("127.0.0.1", None)
    named = f"[{host}]" if ":" in host else host
    return f"http://{named}:{port}" if port else f"http://{named}"


def secure(request: Request) -> bool:
    """Whether browsers reach the service by https, so that its cookies go no other way."""
    return public(request).startswith("https://")
