"""A store at the end of a shaped line, over real sockets: a server of its own process that answers like S3.

A new connection waits one latency (its handshake), each request another one before the answer begins, and bodies go at
so many bytes a second, of all or of each connection. Every key is the same object, whose bytes are made as they are
sent. What else costs time is real: sockets, the client's and the server's code, and the wait for a core, which is
counted (``core_waits``), since a line is the bottleneck only while nobody waits long for a processor.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

PIECE = 128 * 1024


@contextmanager
def elsewhere(target: Callable[..., None], *arguments: Any) -> Iterator[tuple[str, int]]:
    """A server in a process of its own; its URL and process id."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=target, args=(theirs, *arguments), daemon=True)
    process.start()
    assert process.pid is not None
    try:
        yield ours.recv(), process.pid
    finally:
        process.kill()
        process.join()


def core_waits(*processes: int) -> float:
    """Seconds that the living threads of processes were ready to run and had no core (Linux tells in schedstat)."""
    waited = 0
    for process in processes:
        for thread in Path(f"/proc/{process}/task").iterdir():
            try:
                waited += int((thread / "schedstat").read_text().split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended meanwhile
    return waited / 1e9


class Pace:
    """So many bytes a second, whoever sends."""

    def __init__(self, bandwidth: float) -> None:
        self._bandwidth = bandwidth
        self._free = 0.0
        self._lock = threading.Lock()

    def send(self, count: int) -> None:
        """Returns when the bytes may have arrived."""
        with self._lock:
            self._free = max(self._free, time.monotonic()) + count / self._bandwidth
            ahead = self._free - time.monotonic()
        if ahead > 0.0005:
            time.sleep(ahead)


def ranges(
    pipe: Connection, piece: Callable[[int, int], bytearray], size: int, latency: float, bandwidth: float, shared: bool
) -> None:
    """Serve one object under every key, in ranges; tells its URL by ``pipe``."""
    line = Pace(bandwidth)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            self.line = line if shared else Pace(bandwidth)
            time.sleep(latency)

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            time.sleep(latency)
            start, stop, status = 0, size, 200
            if asked := self.headers.get("Range"):
                first, _, last = asked.removeprefix("bytes=").partition("-")
                start, stop, status = int(first), min(int(last) + 1 if last else size, size), 206
            self.send_response(status)
            self.send_header("ETag", '"one"')
            self.send_header("Last-Modified", "Sat, 01 Nov 2025 00:00:00 GMT")
            self.send_header("Content-Length", str(stop - start))
            if status == 206:
                self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{size}")
            self.end_headers()
            if self.command == "HEAD":
                return
            try:
                for at in range(start, stop, PIECE):
                    count = min(PIECE, stop - at)
                    self.line.send(count)
                    self.wfile.write(piece(at, at + count))
            except OSError:
                self.close_connection = True

        do_HEAD = do_GET  # noqa: N815

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 64

    server = Server(("127.0.0.1", 0), Handler)
    pipe.send(f"http://127.0.0.1:{server.server_address[1]}")
    server.serve_forever()
