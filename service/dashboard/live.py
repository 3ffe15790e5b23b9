"""Live parts of pages: rendered once for each version in this process, and sent to whoever has the page open.

A stream tells the state of now. The process has one poller (``service.watch``); a version is rendered once however many
pages show it. Whoever takes no data for ``SEND_SECONDS`` is dropped, and comes back with the version it saw last
(``Last-Event-ID``): only what is newer is sent.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import SendTimeoutError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from blendex.builds.latest import Latest
from blendex.errors import BlendexError, Code
from service.house import House
from service.watch import MOST_STREAMS

logger = logging.getLogger("blendex.service")

# With the poller's 0.1 s a change is on the page well within a second.
LEAST_SECONDS = 0.3
PING_SECONDS = 15
SEND_SECONDS = 10.0
KEPT = 256
VERSION = re.compile(r"[0-9]{1,9}")
Part = tuple[str, tuple[str, ...]]  # the text, and events that the page itself acts on


class Renders:
    """Texts of the newest versions, each made once."""

    def __init__(self) -> None:
        self._kept = Latest[tuple[str, int], asyncio.Future[tuple[Part, float]]](KEPT)
        self.made = 0

    async def get(self, key: str, version: int, make: Callable[[], Part]) -> tuple[Part, float]:
        """The part of one version, and the seconds that it took to make."""
        found = self._kept.get((key, version))
        if found is None:
            found = asyncio.ensure_future(self._make(make))
            self._kept[key, version] = found
        try:
            return await asyncio.shield(found)
        except Exception:
            self._kept.pop((key, version), None)
            raise

    async def _make(self, make: Callable[[], Part]) -> tuple[Part, float]:
        began = time.monotonic()
        part = await run_in_threadpool(make)
        self.made += 1
        return part, time.monotonic() - began


def stream(request: Request, house: House, subject: str, key: str, make: Callable[[], Part]) -> Response:
    """A stream of one part of a page.

    Args:
        request: who asks; ``Last-Event-ID`` tells what they have seen.
        house: of the app.
        subject: the build, or the subject, that the part shows.
        key: names the part among all that are shown, with everything that it depends on.
        make: reads and renders; the text and the events to tell beside it.

    Raises:
        BlendexError: busy.
    """
    if house.watch.streams >= MOST_STREAMS:
        raise BlendexError(Code.BUSY, "too many pages are open.", next_step="Reload when you want to see more.")
    given = request.headers.get("last-event-id", "")
    seen = int(given) if VERSION.fullmatch(given) else None
    renders: Renders = request.app.state.renders

    who = house.site.who
    # What teams see differs; everybody of one sees the same.
    seen_by = f"{'*' if who.everything else who.team}/{key}"

    async def events() -> AsyncIterator[ServerSentEvent]:
        house.watch.streams += 1
        try:
            async with aclosing(house.watch.follow(subject, seen)) as states:
                async for state in states:
                    (text, told), seconds = await renders.get(seen_by, state.version, make)
                    yield ServerSentEvent(text, id=str(state.version), retry=1000)
                    for event in told:
                        yield ServerSentEvent(event, event=event, id=str(state.version))
                    # What is dear to make is made less often: it never takes more than half of the time.
                    await asyncio.sleep(max(LEAST_SECONDS, seconds))
        finally:
            house.watch.streams -= 1

    return _Stream(events(), ping=PING_SECONDS, send_timeout=SEND_SECONDS)


class _Stream(EventSourceResponse):
    """A stream that ends without any noise when nobody takes what it sends."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until it ends, or until somebody takes nothing for too long."""
        try:
            await super().__call__(scope, receive, send)
        except* SendTimeoutError:
            logger.info("a page took nothing for %s s and was dropped: %s", self.send_timeout, scope["path"])
