"""What the root alone tells of published builds and names: for an empty catalog, and while the catalog is away.

A build folder and its pointer are written before the transaction that says ``ready``, a name's file after its own; so
what is found here was published, and a name may be older than its row by as much as a crash between the two left.
"""

from __future__ import annotations

import os
from typing import Any

import orjson

from blendex.storage.root import Root


def read_json(path: str) -> dict[str, Any] | None:
    """The object in a file; None when there is none that can be read."""
    try:
        with open(path, "rb") as file:
            value = orjson.loads(file.read())
    except (OSError, orjson.JSONDecodeError):
        return None
    return value if isinstance(value, dict) else None


def ready_build(root: Root, build: str) -> dict[str, Any] | None:
    """``build.json`` of a build that was published."""
    folder = root.build(build)
    if not os.path.exists(os.path.join(folder, "path")):
        return None
    return read_json(os.path.join(folder, "build.json"))


def name(root: Root, name: str) -> dict[str, Any] | None:
    """Where a name pointed when its file was written, with its history."""
    return read_json(root.name(name) + ".json")
