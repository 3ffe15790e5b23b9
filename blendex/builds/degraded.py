"""While the catalog is away: what the root alone tells of what is published.

Such answers say that they are degraded: a name may have moved a moment before, and of what is not in the root nobody
can say whether it runs, failed or never was.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

from blendex.builds import access
from blendex.builds.answers import Answer
from blendex.builds.site import Site
from blendex.catalog import dialect
from blendex.errors import BlendexError, Code
from blendex.mirrors import ondisk
from blendex.units.receipt import read_receipt

# What is away, in the field ``degraded``.
CATALOG = "catalog"
T = TypeVar("T")


def either(site: Site, catalog: Callable[[], T], root: Callable[[], T]) -> T:
    """What the catalog says; what the root says while the catalog is away."""
    if site.work.resting():
        return root()
    try:
        return catalog()
    except dialect.AWAY:
        return root()


def answer(site: Site, build: str) -> Answer:
    """Where the mirror of a published build should be.

    Raises:
        BlendexError: catalog_away, for one that the root does not know, or that whoever asks may not see.
    """
    data = _told(site, "build", build, ondisk.ready_build(site.root, build))
    key = data["key"]
    excluded, team = len(data["excluded"]), data.get("team", "")
    return Answer("ready", build, key=key, path=site.root.mirror(key), excluded=excluded, team=team)


def build_of(site: Site, name: str) -> str:
    """The build that a name points at, by its file.

    Raises:
        BlendexError: catalog_away, for one that the root does not know, or that whoever asks may not see.
    """
    return str(_told(site, "name", name, ondisk.name(site.root, name))["build"])


def _told(site: Site, what: str, name: str, data: dict[str, Any] | None) -> dict[str, Any]:
    """What the root tells of something, for who may see it; of what it does not know the catalog would, and is away."""
    if data is None or not site.who.sees(data.get("team", "")):
        raise BlendexError(
            Code.CATALOG_AWAY,
            f"the database does not answer, and no published {what} {name} is in the root.",
            next_step="Ask again in a few seconds.",
        )
    return data


def build(site: Site, answer: Answer) -> dict[str, Any]:
    """A published build; ``answer`` says whether its mirror is still there.

    Raises:
        BlendexError: catalog_away, for one that the root does not know.
    """
    assert answer.build is not None
    data = _told(site, "build", answer.build, ondisk.ready_build(site.root, answer.build))
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
    data = _told(site, "name", name, ondisk.name(site.root, name))
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
