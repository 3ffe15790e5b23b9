"""Builds, mirrors and names as JSON while the catalog is away: by what the root alone tells of what is published."""

from __future__ import annotations

import os
from typing import Any

from blendex.builds import access
from blendex.builds.resolve import Answer, unknown_now
from blendex.builds.site import Site
from blendex.mirrors import ondisk
from blendex.units.receipt import read_receipt

# What is away, in the field ``degraded``.
CATALOG = "catalog"


def build(site: Site, answer: Answer) -> dict[str, Any]:
    """A published build; ``answer`` says whether its mirror is still there.

    Raises:
        BlendexError: catalog_away, for one that the root does not know.
    """
    assert answer.build is not None
    data = ondisk.ready_build(site.root, answer.build)
    if data is None:
        raise unknown_now("build", answer.build)
    told = ("id", "owner", "file", "options", "names", "created_at", "checked_at", "sources", "excluded")
    return {name: data[name] for name in told} | {
        "state": "ready",
        "done": data["sources"],
        "error": None,
        "packs": data.get("packs"),
        "mirror": answer.key,
        "path": answer.path,
        "blend": os.path.join(site.root.build(answer.build), "blend.yaml"),
        "access": access.report(site, answer.build),
        "degraded": CATALOG,
    }


def name(site: Site, name: str, answer: Answer) -> dict[str, Any]:
    """A name, by its file; ``answer`` says where its build is.

    Raises:
        BlendexError: catalog_away, for one that the root does not know.
    """
    data = ondisk.name(site.root, name)
    if data is None:
        raise unknown_now("name", name)
    told = {key: data[key] for key in ("name", "build", "version", "history")}
    updated = data["history"][0]["at"] if data["history"] else None
    return told | {"updated_at": updated, "mirror": answer.key, "path": answer.path, "degraded": CATALOG}


def mirror(site: Site, key: str) -> dict[str, Any]:
    """A mirror by its receipt: while the catalog is away, or when another catalog published it under this root."""
    path = site.root.mirror(key)
    receipt = read_receipt(path, key)
    published = receipt["published_ns"] / 1e9
    return {
        "key": key,
        "state": "published",
        "path": path,
        **receipt["counts"],
        "source_set": receipt["source_set"],
        "content": receipt["content"],
        "created_at": published,
        "used_at": published,
    }
