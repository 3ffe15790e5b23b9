"""Web servers of the tests' own: on loopback, on a free port, for as long as a test wants them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar


class LoopbackServer(ThreadingHTTPServer):
    """A server. ``url`` is what clients talk to."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        self.lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), handler)

    def handle_error(self, *_: Any) -> None:
        """A client that went away is what many tests are about."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


Server = TypeVar("Server", bound=LoopbackServer)


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    """The server, answering."""
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
