"""A worker's own small HTTP: ``/metrics`` for Prometheus, ``/healthz`` for whoever restarts what hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from blendex.observability import metrics


class Probe:
    """Answers on a port until it is closed.

    Args:
        port: where; 0 takes a free one.
        healthy: an empty text, or why the process should be restarted.
    """

    def __init__(self, port: int, healthy: Callable[[], str]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:  # the protocol's name
                if self.path == "/metrics":
                    self._answer(200, metrics.CONTENT_TYPE, metrics.render())
                elif self.path == "/healthz":
                    reason = healthy()
                    self._answer(503 if reason else 200, "text/plain", f"{reason or 'ok'}\n".encode())
                else:
                    self._answer(404, "text/plain", b"/metrics or /healthz\n")

            def _answer(self, status: int, kind: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the base's name
                """A probe every few seconds is no news."""

        self._server = ThreadingHTTPServer(("", port), Handler)
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, name="blendex-probe", daemon=True).start()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
