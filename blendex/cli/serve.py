"""``blendex serve``: the API; with its workers in the same process, or, with a broker, for workers elsewhere."""

from __future__ import annotations

import ipaddress
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from blendex.builds.loop import ClaimLoop
from blendex.builds.notify import Notifier
from blendex.builds.site import Site, open_catalog, open_site
from blendex.catalog.dialect import AWAY
from blendex.catalog.engine import catalog_id
from blendex.cli import tracing
from blendex.errors import BlendexError, Code
from blendex.observability import logs, traces
from blendex.runtime import heap
from blendex.runtime.slots import Slots
from blendex.settings import settings_for

# Between two tries to open a catalog that was away at the start.
OPEN_SECONDS = 2.0
# Longer than clients keep an idle connection (httpx: 5 s, as uvicorn by itself): chance must not say who closes first.
KEEP_ALIVE = 30
HEAD_BYTES = 64 * 1024

logger = logs.get_logger("blendex.service")


def serve(host: str, port: int, allow_root: list[Path], root: Path | None) -> None:
    """Listen until a signal; what runs then is handed back to the catalog.

    Args:
        host: address.
        port: port; 0 takes a free one, which the first line on standard output tells.
        allow_root: folders in which sources may be read; none means the setting, or the current folder.
        root: the root of mirrors.
    """
    try:
        import uvicorn

        from service.app import create_app
    except ModuleNotFoundError as error:
        raise BlendexError(
            Code.BAD_REQUEST,
            f"serving needs the extra 'serve' ({error.name} is not installed).",
            next_step="pip install 'blendex[serve]'",
        ) from error

    settings = settings_for(root)
    logs.configure(settings.log_format, settings.log_level)
    tracing.begin(settings, "blendex serve")
    roots = tuple(os.path.realpath(path) for path in allow_root) or settings.allowed_roots or (os.getcwd(),)
    site = open_site(settings, roots, "blendex serve", patient=True)
    notifier = Notifier(site)
    if site.warning:
        sys.stderr.write(site.warning + "\n")
    hands = _telling(site, settings.broker_url.get_secret_value()) if settings.broker_url else _working(site)
    previews = Slots(1, "blendex.units")
    listener = listen(host, port)
    sys.stdout.write(f"http://{host}:{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    sys.stderr.write(f"mirrors under {site.root.path}; sources may be read in {', '.join(roots)}\n")
    if settings.auth == "none" and not _is_loopback(host):
        sys.stderr.write(
            f"WARNING: whoever reaches {host} may do everything here: BLENDEX_AUTH is none. See docs/security.md.\n"
        )
    app = create_app(site, previews, hands.wake, alive=hands.alive)
    heap.settle()
    # uvicorn raises the signal that ended it once more, for the handler it found. Without one of ours the process
    # would end there, and what its children had in hand would wait for its leases to run out.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    config = uvicorn.Config(
        app, log_level="warning", log_config=None, access_log=False, timeout_graceful_shutdown=5,
        timeout_keep_alive=KEEP_ALIVE,
        proxy_headers=False,  # who asks is told by the connection, and by listed proxies in their own headers
        # Of its parsers the one that bounds a request's line and headers, together.
        http="h11", h11_max_incomplete_event_size=HEAD_BYTES,
    )  # fmt: skip
    notifier.start()
    opening = _Opening(site) if site.work.away else None
    try:
        uvicorn.Server(config).run(sockets=[listener])
    finally:
        if opening is not None:
            opening.stop()
        notifier.stop()
        hands.stop()
        previews.close()
        traces.close()
    if opening is not None and opening.error is not None:
        raise opening.error


class _Opening:
    """Opens a catalog that did not answer when the process began, when it does; look-ups are answered meanwhile.

    A catalog that turns out to be the wrong one ends the process, as it would have kept it from beginning.
    """

    def __init__(self, site: Site) -> None:
        self.error: BlendexError | None = None
        self._site = site
        self._stop = threading.Event()
        logger.warning("database_away", says="look-ups are answered from the root until it is there")
        threading.Thread(target=self._run, name="blendex-opening", daemon=True).start()

    def _run(self) -> None:
        while not self._stop.wait(OPEN_SECONDS):
            try:
                open_catalog(self._site)
            except AWAY as error:
                logger.info("database_away", error=type(error).__name__)
                continue
            except BlendexError as error:
                self.error = error
                os.kill(os.getpid(), signal.SIGTERM)
            else:
                logger.info("database_there")
            return

    def stop(self) -> None:
        """Look for it no more."""
        self._stop.set()


def listen(host: str, port: int) -> socket.socket:
    """A socket whose connections send at once.

    asyncio sees to that where the protocol is named, and ``create_server`` names none: the body of an answer waited
    until its head was acknowledged, 40 ms for each request of a connection but the first few.
    """
    listener = socket.create_server((host, port), reuse_port=False)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # connections that it accepts inherit it
    return listener


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True, slots=True)
class _Hands:
    """Who does what was written to the catalog."""

    wake: Callable[[], None]
    alive: Callable[[], bool]
    stop: Callable[[], None]


def _working(site: Site) -> _Hands:
    """Workers in this process: the embedded form."""
    slots = site.settings.slots
    loop = ClaimLoop(site, Slots(slots, "blendex.units"), classes=site.settings.classes, threads=slots + 1)
    worker = threading.Thread(target=loop.run, name="blendex-claims", daemon=True)
    worker.start()

    def stop() -> None:
        loop.stop()
        worker.join()

    return _Hands(loop.wake, worker.is_alive, stop)


def _telling(site: Site, broker_url: str) -> _Hands:
    """Workers elsewhere, told through a broker."""
    try:
        from workers.app import create_celery
        from workers.relay import Relay
    except ModuleNotFoundError as error:
        raise BlendexError(
            Code.BAD_REQUEST,
            f"BLENDEX_BROKER_URL needs the extra 'workers' ({error.name} is not installed).",
            next_step="pip install 'blendex[workers]', or unset it to work in this process.",
        ) from error

    app = create_celery(broker_url, catalog_id(site.root.path), patient=False)
    relay = Relay(site.work, app, site.settings.poll_seconds)
    relay.start()
    return _Hands(relay.nudge, relay.thread.is_alive, relay.stop)
