"""Forms: read with or without files, and done by the API itself, in this process."""

from __future__ import annotations

import io
import posixpath
import secrets
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

import httpx
import orjson
from starlette.requests import Request

from blendex.errors import BlendexError, Code
from service.callers import FORWARDED
from service.dashboard.pages import check_token
from service.multipart import parts

MULTIPART = "multipart/form-data"
# The API waits at most a minute by itself, and lints within its own limits.
SECONDS = 300.0
# A lint that is downloaded sends its files back, two fields each.
MOST_FIELDS = 2_100


@dataclass(slots=True)
class Form:
    """What was filled in: fields by name, files by the name of their field."""

    fields: dict[str, str] = field(default_factory=dict)
    files: dict[str, list[tuple[str, bytes]]] = field(default_factory=dict)

    def get(self, name: str) -> str:
        """A field, without blanks around it."""
        return self.fields.get(name, "").strip()

    def lines(self, name: str) -> list[str]:
        """A field of several lines, without empty ones."""
        return [line.strip() for line in self.fields.get(name, "").splitlines() if line.strip()]


async def read_form(request: Request) -> Form:
    """The form in a request, when it was made for this browser.

    Raises:
        BlendexError: it cannot be read, or its token is not the one in the cookie.
    """
    body = await request.body()
    kind = request.headers.get("content-type", "")
    form = Form()
    if kind.partition(";")[0].strip().lower() == MULTIPART:
        for name, file, content in parts(kind, body):
            if file:
                form.files.setdefault(name, []).append((file.replace("%22", '"'), content))
            elif name in form.fields or content:
                form.fields[name] = content.decode("utf-8", "replace").replace("\r\n", "\n")
    else:
        try:
            pairs = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=MOST_FIELDS)
        except ValueError:
            raise BlendexError(
                Code.BAD_REQUEST, f"a form has at most {MOST_FIELDS} fields.", next_step="Send fewer files at once."
            ) from None
        form.fields = {name: value.replace("\r\n", "\n") for name, value in pairs}
    check_token(request, form.fields)
    return form


@dataclass(frozen=True, slots=True)
class Answer:
    """What the API said."""

    status: int
    body: bytes

    @property
    def value(self) -> dict[str, Any]:
        """Its JSON."""
        value: dict[str, Any] = orjson.loads(self.body)
        return value

    def check(self) -> dict[str, Any]:
        """Its JSON, when it is no failure.

        Raises:
            BlendexError: what it refused.
        """
        if self.status < 400:
            return self.value
        raise refused(self.value)


def refused(problem: dict[str, Any]) -> BlendexError:
    """The error in a problem document."""
    return BlendexError(
        Code(problem["code"]),
        problem["detail"],
        file=problem.get("file"),
        line=problem.get("line"),
        byte=problem.get("byte"),
        next_step=problem.get("next_step", ""),
    )


def credentials(request: Request) -> dict[str, str]:
    """What a request says of who asks, under its own number."""
    proxy = request.app.state.house.site.settings.proxy
    names = ["authorization", "cookie", *FORWARDED, *([proxy.user_header, proxy.team_header] if proxy else [])]
    said = {name: request.headers[name] for name in names if name in request.headers}
    return said | {"X-Request-Id": request.state.number}


async def ask(
    request: Request,
    address: str,
    *,
    query: Iterable[tuple[str, str]] = (),
    content: bytes = b"",
    kind: str = "application/json",
) -> Answer:
    """POST to the API of this very app: a page can do what the API can, and nothing else."""
    client_address = (request.client.host, request.client.port) if request.client else ("", 0)
    transport = httpx.ASGITransport(request.app, raise_app_exceptions=False, client=client_address)
    async with httpx.AsyncClient(transport=transport, base_url="http://inside", timeout=SECONDS) as client:
        headers = credentials(request) | {"Content-Type": kind, "Accept": "application/json"}
        answer = await client.post(address, params=list(query), content=content, headers=headers)
        return Answer(answer.status_code, answer.content)


def multipart(fields: Iterable[tuple[str, str, bytes]]) -> tuple[str, bytes]:
    """(content type, body) of parts: name, file name, content each."""
    mark = secrets.token_hex(16)
    pieces = []
    for name, file, content in fields:
        safe = file.replace("\\", "_").replace('"', "_").replace("\r", "_").replace("\n", "_")
        head = f'--{mark}\r\nContent-Disposition: form-data; name="{name}"; filename="{safe}"\r\n\r\n'
        pieces += [head.encode(), content, b"\r\n"]
    return f"{MULTIPART}; boundary={mark}", b"".join([*pieces, f"--{mark}--\r\n".encode()])


def packed(files: list[tuple[str, bytes]]) -> bytes:
    """Files as a tar, under their plain names."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in files:
            item = tarfile.TarInfo(posixpath.basename(name.replace("\\", "/")))
            item.size = len(content)
            archive.addfile(item, io.BytesIO(content))
    return stream.getvalue()
