"""A source through time: every content that it is known to have had, and the mirrors that hold each.

The catalog remembers the last few; mirrors remember what they were made of, so a content that the catalog forgot is
still told of by a mirror that holds it.
"""

from __future__ import annotations

import os
from typing import Any

from sqlalchemy.orm import Session

from blendex.builds.site import Site
from blendex.builds.usage import Usage
from blendex.catalog import sources
from blendex.catalog.sources import Seen
from blendex.errors import BlendexError
from blendex.units.receipt import find_source

# The newest mirrors that are asked.
MIRRORS = 20


def contents(site: Site, session: Session, source: Seen, used: Usage, path: str) -> list[dict[str, Any]]:
    """The contents of a source, the newest first.

    Args:
        site: whose mirrors.
        session: of the catalog.
        source: what it is now.
        used: who uses it, under ``path``.
        path: as blends name it.

    Returns:
        content_hash, strength, records, size, token, seen_at, read_at (seconds, when this service read that content
        first and last; None when only a mirror tells), current, mirrors (keys) each.
    """
    found: dict[str, dict[str, Any]] = {}
    if source.content_hash is not None:
        found[source.content_hash] = {
            "content_hash": source.content_hash, "strength": source.strength, "records": source.records,
            "size": source.size, "token": source.token, "seen_at": source.seen_at, "read_at": source.read_at,
            "current": True, "mirrors": [],
        }  # fmt: skip
    for row in sources.former(session, source.address, source.recipe):
        known = found.setdefault(
            row.hash.hex(),
            {
                "content_hash": row.hash.hex(), "strength": row.strength, "records": row.records, "size": row.size,
                "token": row.token, "seen_at": row.seen_at, "read_at": row.read_at, "current": False, "mirrors": [],
            },
        )  # fmt: skip
        if row.seen_at is not None:  # it came back: the first time counts
            known["seen_at"] = min(row.seen_at, known["seen_at"] or row.seen_at)
    for key, line in _held(site, source, used, path):
        known = found.setdefault(
            line["content_hash"],
            {name: line[name] for name in ("content_hash", "strength", "records", "size", "token")}
            | {"seen_at": None, "read_at": None, "current": False, "mirrors": []},
        )
        known["mirrors"].append(key)
    return sorted(found.values(), key=lambda item: (not item["current"], -(item["read_at"] or 0.0)))


def _held(site: Site, source: Seen, used: Usage, path: str) -> list[tuple[str, dict[str, Any]]]:
    """The line of a source in each mirror that holds it under this recipe: (key, line)."""
    kinds = {item["mirror"]: item["kind"] for item in used.uses if item["mirror"]}
    held = []
    for key, kind in list(kinds.items())[:MIRRORS]:
        folder = site.root.mirror(key)
        if not os.path.isdir(folder):
            continue
        try:
            line = find_source(folder, kind, path)
        except BlendexError:
            continue  # damaged: its own page says so
        if line is not None and line["recipe"] == source.recipe:
            held.append((key, line))
    return held


def about(site: Site, session: Session, source: Seen, used: Usage, path: str) -> dict[str, Any]:
    """A source as JSON, with its contents."""
    return {
        "address": source.address, "path": source.path, "recipe": source.recipe, "error": source.error,
        "content_hash": source.content_hash, "strength": source.strength, "size": source.size,
        "records": source.records, "findings": list(source.findings),
        "contents": contents(site, session, source, used, path),
    }  # fmt: skip
