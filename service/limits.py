"""How much a request may send: counted while it streams, since Content-Length may lie or be absent."""

from __future__ import annotations

import asyncio
import contextlib

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
SUBMISSIONS = ("/v1/builds", "/v1/mirrors/resolve", "/v1/lint", "/builds/new", "/lint", "/lint/report")


class _TooLargeError(Exception):
    """The body went over its limit; never leaves this module."""


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
    """Answers 413 instead of letting an endpoint see more than it may.

    Args:
        app: what is protected.
        submission: most bytes of a submission; other bodies are small.
    """

    def __init__(self, app: ASGIApp, submission: int) -> None:
        self._app = app
        self._submission = submission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, counting."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = self._submission if scope["path"].rstrip("/") in SUBMISSIONS else SMALL_BODY
        declared = Headers(scope=scope).get("content-length", "")
        too_large = declared.isdigit() and int(declared) > limit
        started = False
        seen = 0

        async def counted() -> Message:
            nonlocal seen, too_large
            message = await receive()
            if message["type"] == "http.request":
                seen += len(message.get("body", b""))
                if seen > limit:
                    too_large = True
                    raise _TooLargeError
            return message

        async def watched(message: Message) -> None:
            nonlocal started
            if too_large:  # whatever the app made of the exception, the answer is ours
                return
            started = True
            await send(message)

        if not too_large:
            with contextlib.suppress(_TooLargeError):
                await self._app(scope, counted, watched)
        if too_large and not started:
            error = BlendexError(
                Code.BLEND_TOO_LARGE,
                f"the body has more than {limit} bytes.",
                next_step="Post a smaller one: a tar needs only the YAML files, without data."
                if limit != SMALL_BODY
                else "Send only what /docs names.",
            )
            answer = reply(Request(scope), error, headers={"Connection": "close"})
            await answer(scope, receive, _Drained(receive, send))
