"""Small things about requests and answers: JSON, one-line texts, what the caller wants to get."""

from __future__ import annotations

import random
import unicodedata
from typing import Any
from urllib.parse import urlencode

import orjson
from starlette.requests import Request
from starlette.responses import Response

LONGEST_LINE = 2_000
# A client's own patience is often 30 s in all: curl gives up at once on a longer Retry-After.
LONGEST_RETRY = 30


class Json(Response):
    """A JSON answer."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The bytes of the body."""
        return orjson.dumps(content)


DEGRADED = "X-Blendex-Degraded"


def told(value: dict[str, Any], status: int = 200) -> Json:
    """JSON that may come from the root alone; the header says so too."""
    return Json(value, status, {DEGRADED: value["degraded"]} if "degraded" in value else None)


def next_page(address: str, limit: int, **query: Any) -> str:
    """The address of the page that follows in a list: ``query`` is where it begins, and what was asked for."""
    given = {name: value for name, value in query.items() if value} | {"limit": limit}
    return f"{address}?{urlencode(given, doseq=True)}"


class ProblemJson(Json):
    """An RFC 9457 answer."""

    media_type = "application/problem+json"


def line(text: str) -> str:
    """``text`` as exactly one line: separators and control characters become blanks."""
    clean = "".join(" " if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") else char for char in text)
    clean = " ".join(clean.split())
    return clean if len(clean) <= LONGEST_LINE else clean[: LONGEST_LINE - 1] + "…"


def retry_after(seconds: float | None) -> str:
    """``Retry-After`` for something expected in ``seconds``: 1 to 30, spread so that callers come apart."""
    expected = min(LONGEST_RETRY, max(2.0, 4.0 if seconds is None else seconds))
    return str(max(1, min(LONGEST_RETRY, round(expected * random.uniform(0.5, 1)))))  # noqa: S311


def _quality(accept: str, wanted: str) -> float:
    best, specific = 0.0, -1
    for item in accept.lower().split(","):
        kind, *parameters = (part.strip() for part in item.split(";"))
        rank = 2 if kind == wanted else 1 if kind == wanted.partition("/")[0] + "/*" else 0 if kind == "*/*" else -1
        if rank <= specific:
            continue
        quality = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    quality = float(parameter[2:])
                except ValueError:
                    quality = 0.0
        best, specific = quality, rank
    return best


def is_snippet(request: Request) -> bool:
    """True when a shell will evaluate the answer, so that even a failure must be harmless there."""
    return "format" in request.query_params


def wants_text(request: Request) -> bool:
    """Whether the answer is a line for a shell: by ``Accept``, and where that is open, by the address."""
    if is_snippet(request):
        return True
    accept = request.headers.get("accept") or "*/*"
    text = _quality(accept, "text/plain")
    json = max(_quality(accept, "application/json"), _quality(accept, "application/problem+json"))
    if text == json:
        return request.url.path.endswith("/path")
    return text > json


def text_reply(request: Request, text: str, status: int, headers: dict[str, str] | None = None) -> Response:
    """One line of text; a comment where a shell may evaluate it."""
    clean = line(text)
    if is_snippet(request):
        clean = f"# {clean}"
    return Response(clean + "\n", status, headers, "text/plain")
