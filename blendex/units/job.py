"""The job of a publish: a file with one line per source, what the catalog knows of it, sorted by (kind, path)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

JOB_FIELDS = (
    "kind", "path", "address", "token", "recipe", "strength", "content_hash", "size", "records",
    "digest", "object", "offset", "length", "link", "pack",
)  # fmt: skip


def job_line(raw: bytes) -> dict[str, Any]:
    """One line of a job."""
    return dict(zip(JOB_FIELDS, orjson.loads(raw), strict=True))


def read_job(path: str) -> Iterator[dict[str, Any]]:
    """The sources of a job, in order."""
    with open(path, "rb") as file:
        yield from map(job_line, file)
