"""Telling receivers what became of builds: by HTTP, signed, at least once, and never inside anybody's request.

A thread of its own takes notices one by one and posts them, so that a slow receiver delays nothing but other notices,
and those by no more than ``SEND_SECONDS`` each. The host is resolved once and that address connected to; no redirect
is followed, no proxy of the environment used, and of an answer nothing but its status is read.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import orjson

from blendex.builds import receivers
from blendex.builds.receivers import Receiver
from blendex.builds.site import Site
from blendex.catalog import builds, dialect, notices
from blendex.catalog.models import Build, Notice
from blendex.observability import logs, metrics
from blendex.version import __version__

logger = logs.get_logger("blendex.notify")

# For one attempt in all: looking the host up, connecting, sending, and waiting for a status.
SEND_SECONDS = 10.0
# Taken by one that died: told by another one after this.
TAKEN_SECONDS = 60.0
FIRST_PAUSE, MOST_PAUSE, MOST_ATTEMPTS = 5.0, 900.0, 20
SIGNATURE = "X-Blendex-Signature"


def pause_after(attempts: int) -> float:
    """Seconds until the next attempt, after so many."""
    return min(MOST_PAUSE, FIRST_PAUSE * 2.0 ** (attempts - 1))


def signature(secret: str, at: int, body: bytes) -> str:
    """What a receiver computes to know that a body came from here, lately: the header's value."""
    digest = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


def message(site: Site, notice: Notice, build: Build, template: str) -> tuple[bytes, str]:
    """What is sent, and its type."""
    address = site.settings.public_url
    link = f"{address.rstrip('/')}/builds/{build.id}" if address else None
    error = {name: build.error[name] for name in ("code", "message") if name in build.error} if build.error else None
    if template == "json":
        told: dict[str, Any] = {
            "event": notice.event,
            "delivery": notice.id,
            "at": notice.created_at,
            "build": {
                "id": build.id, "state": build.state, "file": build.file, "owner": build.owner, "names": build.names,
                "mirror": build.mirror, "path": site.root.mirror(build.mirror) if build.mirror else None,
                "sources": build.sources, "excluded": len(build.excluded), "error": error,
            },
            "url": link,
        }  # fmt: skip
        return orjson.dumps(told), "application/json"
    words = {
        "ready": f"is ready: {site.root.mirror(build.mirror or '')}",
        "excluded": f"is ready without {len(build.excluded)} of its entries: {site.root.mirror(build.mirror or '')}",
        "failed": f"failed: {error['message'] if error else 'see its problems'}",
    }
    text = f"Blendex: {', '.join(build.names) or build.file} ({build.id}) {words[notice.event]}"
    text += f" {link}" if link else ""
    if template == "slack":
        # The three letters that mean something to Slack; a blend's file may have any name.
        safe = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        return orjson.dumps({"text": safe}), "application/json"
    return text.encode("utf-8", "backslashreplace") + b"\n", "text/plain; charset=utf-8"


class _Pinned(http.client.HTTPConnection):
    """A connection to one address, whatever the name says a second time."""

    def __init__(self, host: str, port: int, address: str, tls: bool, seconds: float) -> None:
        super().__init__(host, port, timeout=seconds)
        self._address = address
        self._tls = tls

    def connect(self) -> None:
        """Connect, and have the name proven by its certificate."""
        plain = socket.create_connection((self._address, self.port), self.timeout)
        self.sock = ssl.create_default_context().wrap_socket(plain, server_hostname=self.host) if self._tls else plain


def send(receiver: Receiver, body: bytes, headers: Mapping[str, str], seconds: float = SEND_SECONDS) -> int:
    """Post a body; the status of the answer.

    Raises:
        OSError, http.client.HTTPException: nobody took it in time.
    """
    deadline = time.monotonic() + seconds
    parts = urlsplit(receiver.url)
    assert parts.hostname is not None
    tls = parts.scheme == "https"
    port = parts.port or (443 if tls else 80)
    address = receivers.addresses(parts.hostname, port, private=receiver.private)[0]
    connection = _Pinned(parts.hostname, port, address, tls, max(0.1, deadline - time.monotonic()))

    late = threading.Event()

    def give_up() -> None:
        # A receiver that sends a byte a second is never late for a single read.
        late.set()
        with contextlib.suppress(OSError, AttributeError):
            connection.sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(max(0.1, deadline - time.monotonic()), give_up)
    timer.daemon = True
    timer.start()
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", target, body, dict(headers))
        status = connection.getresponse().status
        if late.is_set():
            raise TimeoutError  # what was cut off may pass for headers that ended
        return status
    finally:
        timer.cancel()
        connection.close()


class Notifier:
    """Tells the receivers of one process's settings.

    Args:
        site: root and catalog.
    """

    def __init__(self, site: Site, *, known: dict[str, Receiver] | None = None) -> None:
        self._site = site
        self._known = receivers.receivers_of(site.settings) if known is None else known
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, in a thread; nothing to do where no receiver is known."""
        if self._known:
            self._thread = threading.Thread(target=self._run, name="blendex-notify", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End. What is being told is not waited for: it is told again by somebody else."""
        self._stop.set()

    def _run(self) -> None:
        pause = every = max(1.0, self._site.settings.poll_seconds)
        while not self._stop.wait(pause * random.uniform(0.8, 1.2)):  # noqa: S311 -- so that processes do it in turn
            try:
                while not self._stop.is_set() and self.tell_one():
                    pass
                pause = every
            except dialect.AWAY as error:
                metrics.DATABASE_AWAY.inc()
                logger.warning("database_away", error=type(error).__name__)
                pause = min(pause * 2, 30.0)

    def tell_one(self, clock: Callable[[], float] = time.time) -> bool:
        """Tell one notice that is due; False when there is none."""
        with self._site.work.write() as session:
            notice = notices.take(session, list(self._known), TAKEN_SECONDS)
            if notice is None:
                return False
            build = builds.get(session, notice.build)
            session.expunge_all()
        receiver = self._known[notice.profile]
        if build is None or notice.event not in receiver.events:
            state, result = "given_up", "not wanted"
        else:
            state, result = self._post(receiver, notice, build, int(clock()))
        with self._site.work.write() as session:
            notices.told(session, notice.id, notice.attempts, result, state=state, pause=pause_after(notice.attempts))
            notices.forget(session)
        metrics.NOTICES.labels(state).inc()
        logger.info("notice_told", build=notice.build, profile=notice.profile, notice=notice.id, state=state)
        return True

    def _post(self, receiver: Receiver, notice: Notice, build: Build, at: int) -> tuple[str, str]:
        body, kind = message(self._site, notice, build, receiver.template)
        headers = {
            "Content-Type": kind,
            "User-Agent": f"blendex/{__version__}",
            "X-Blendex-Event": notice.event,
            "X-Blendex-Delivery": str(notice.id),
            "Connection": "close",
        }
        if receiver.secret is not None:
            headers[SIGNATURE] = signature(receiver.secret, at, body)
        try:
            status = send(receiver, body, headers)
        except PermissionError:
            result = "refused: its address is not public (private=true allows that)"
        except (OSError, http.client.HTTPException) as error:
            result = f"no answer ({type(error).__name__})"
        else:
            if 200 <= status < 300:
                return "sent", f"HTTP {status}"
            result = f"HTTP {status}" + (": redirects are not followed" if 300 <= status < 400 else "")
        return ("given_up" if notice.attempts >= MOST_ATTEMPTS else "waiting"), result
