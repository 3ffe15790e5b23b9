"""How much a request may send, and how long that may take: counted while it streams, as Content-Length may lie."""

from __future__ import annotations

import asyncio
import contextlib
import time

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from blendex.errors import BlendexError, Code
from service.problems import reply

# Bodies that are not submissions hold a name, a reason, an id.
SMALL_BODY = 64 * 1024
# What is still read, and thrown away, of a body that was refused.
DRAIN_BYTES = 64 * 2**20
DRAIN_SECONDS = 5.0
# Between two pieces of a body, and for all of it: a connection that says a byte a minute is let go.
IDLE_SECONDS = 30.0
BODY_SECONDS = 600.0
SUBMISSIONS = ("/v1/builds", "/v1/mirrors/resolve", "/v1/lint", "/builds/new", "/lint", "/lint/report")


class _RefusedError(Exception):
    """The body went over a limit; never leaves this module."""


class _Drained:
    """Sends an answer, and ends it only when the client has stopped sending.

    A connection that is closed with unread bytes is reset, and the client may never see the answer.
    """

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send

    async def __call__(self, message: Message) -> None:
        if message["type"] != "http.response.body":
            await self._send(message)
            return
        await self._send({**message, "more_body": True})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                await self._drain()
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _drain(self) -> None:
        left = DRAIN_BYTES
        while left > 0:
            message = await self._receive()
            left -= len(message.get("body", b""))
            if message["type"] != "http.request" or not message.get("more_body", False):
                return


class BodyLimit:
    """Answers 413 instead of letting an endpoint see more than it may, and 408 instead of letting it wait.

    Args:
        app: what is protected.
        submission: most bytes of a submission; other bodies are small.
        idle_seconds, body_seconds: between two pieces of a body, and for all of it.
    """

    def __init__(
        self, app: ASGIApp, submission: int, idle_seconds: float = IDLE_SECONDS, body_seconds: float = BODY_SECONDS
    ) -> None:
        self._app = app
        self._submission = submission
        self._idle_seconds = idle_seconds
        self._body_seconds = body_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, counting."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = self._submission if scope["path"].rstrip("/") in SUBMISSIONS else SMALL_BODY
        declared = Headers(scope=scope).get("content-length", "")
        refusal = _too_large(limit) if declared.isdigit() and int(declared) > limit else None
        started = whole = False
        seen = 0
        deadline = time.monotonic() + self._body_seconds

        async def counted() -> Message:
            nonlocal seen, refusal, whole
            if whole:  # nothing more comes, but that the client goes
                return await receive()
            try:
                async with asyncio.timeout(min(self._idle_seconds, max(0.0, deadline - time.monotonic()))):
                    message = await receive()
            except TimeoutError:
                refusal = _too_late()
                raise _RefusedError from None
            if message["type"] == "http.request":
                whole = not message.get("more_body", False)
                seen += len(message.get("body", b""))
                if seen > limit:
                    refusal = _too_large(limit)
                    raise _RefusedError
            return message

        async def watched(message: Message) -> None:
            nonlocal started
            if refusal is not None:  # whatever the app made of the exception, the answer is ours
                return
            started = True
            await send(message)

        if refusal is None:
            with contextlib.suppress(_RefusedError):
                await self._app(scope, counted, watched)
        if refusal is not None and not started:
            late = refusal.code is Code.BAD_REQUEST
            answer = reply(Request(scope), refusal, status=408 if late else None, headers={"Connection": "close"})
            await answer(scope, receive, send if late else _Drained(receive, send))


def _too_large(limit: int) -> BlendexError:
    return BlendexError(
        Code.BLEND_TOO_LARGE,
        f"the body has more than {limit} bytes.",
        next_step="Post a smaller one: a tar needs only the YAML files, without data."
        if limit != SMALL_BODY
        else "Send only what /docs names.",
    )


def _too_late() -> BlendexError:
    return BlendexError(Code.BAD_REQUEST, "the body did not come in time.", next_step="Send it again, without a pause.")
