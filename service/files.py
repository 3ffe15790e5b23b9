"""The files that pages load: the small ones from memory, packed for whoever takes them so.

A file from the disk costs four hops between threads: beside the five files of a page they made its sheet, for which
the first paint waits, come last. Answers of pages are not packed: they hold a token of their reader beside what the
address said, and the size of a packed answer would tell of it.
"""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.staticfiles import NotModifiedResponse, StaticFiles
from starlette.types import Scope

# Everything that the pages load; the description of the API, which few look at, has 1.7 MB in one file.
MOST_BYTES = 100_000
# What gains nothing by packing is sent as it is.
LEAST_BYTES = 1_000


class Files(StaticFiles):
    """A folder of files that stay as they are while this process runs."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory=directory)
        self._plain: dict[str, tuple[bytes, str]] = {}  # with its tag
        self._packed: dict[str, tuple[bytes, str]] = {}
        for path in directory.rglob("*"):
            if path.is_file() and path.stat().st_size <= MOST_BYTES:
                name, data = path.relative_to(directory).as_posix(), path.read_bytes()
                tag = hashlib.sha256(data).hexdigest()[:16]
                self._plain[name] = data, f'"{tag}"'
                if len(data) >= LEAST_BYTES:
                    self._packed[name] = gzip.compress(data, mtime=0), f'"{tag}-gz"'

    async def get_response(self, path: str, scope: Scope) -> Response:
        """A file, or what is to be said instead of it."""
        if path not in self._plain or scope["method"] != "GET":
            return await super().get_response(path, scope)
        asked = Headers(scope=scope)
        headers = {"Vary": "Accept-Encoding"}
        data, headers["ETag"] = self._plain[path]
        if path in self._packed and "gzip" in asked.get("accept-encoding", ""):
            data, headers["ETag"] = self._packed[path]
            headers["Content-Encoding"] = "gzip"
        answer = Response(data, headers=headers, media_type=mimetypes.guess_type(path)[0])
        return NotModifiedResponse(answer.headers) if self.is_not_modified(answer.headers, asked) else answer
