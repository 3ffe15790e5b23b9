"""One unit of manifests and tars, indexed out of a store, and what may come of it when something goes wrong."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from blendex.errors import BlendexError, Code
from blendex.formats.bundle import read_directory
from blendex.storage.reader import OpenedObject
from blendex.storage.root import Root
from blendex.units.index import run
from tests.support.corpus import manifest, tar

PATIENCE = {"patience_seconds": 4.0, "read_seconds": 0.7, "connect_seconds": 0.7}
MANIFESTS, TARS = 24, 2


def objects() -> dict[str, bytes]:
    """Manifests of a few kilobytes, and tars that take several ranges."""
    made = {f"m/{number:02}.jsonl": manifest(20 + number, f"é{number}_") for number in range(MANIFESTS)}
    for number in range(TARS):
        made[f"t/{number}.tar"] = tar([f"a{item}.wav" for item in range(60)], size=9_000 + 512 * number)
    return made


OBJECTS = objects()
TOTAL = sum(map(len, OBJECTS.values()))


def hop(monkeypatch: pytest.MonkeyPatch, operation: str) -> None:
    """Ranges are met where tars are hopped through: on a busy machine, where answers begin late, they are streamed."""
    if operation == "range":
        monkeypatch.setattr(OpenedObject, "forced", "hop")


def index(root: Path, profile: dict[str, Any], scheme: str, bucket: str) -> dict[str, Any]:
    """What one unit makes of all the objects: entries by path, failures by path, the rest as it is."""
    place = Root(root)
    place.prepare()
    name = profile.get("name", "lab")
    sources = [
        ["jsonl" if key.endswith("l") else "nemo_tar", f"/{key}", f"{name}:{scheme}://{bucket}/{key}", False, ""]
        for key in OBJECTS
    ]
    arguments = {
        "root": str(root), "roots": [], "stores": [profile | {"name": name}], "attempt": "b.1-1", "compat": "",
        "sources": sources,
    }  # fmt: skip
    began = time.monotonic()
    result = run(arguments, lambda _: None)
    entries = read_directory(place.object(result["object"])) if result["object"] else []
    return result | {
        "entries": {entry["path"]: (entry["content_hash"], entry["digest"], entry["records"]) for entry in entries},
        "failures": {item["path"]: BlendexError.from_dict(item["error"]) for item in result["failures"]},
        "seconds": time.monotonic() - began,
    }


def judge(found: dict[str, Any], right: dict[str, Any], codes: set[Code]) -> None:
    """Entries are right, and what failed says what, why and what now."""
    for path, entry in found["entries"].items():
        assert entry == right[path], path
    assert set(found["entries"]) | set(found["failures"]) == set(right)
    assert {error.code for error in found["failures"].values()} == codes
    for path, error in found["failures"].items():
        assert error.file == path
        assert error.message
        assert error.next_step
    assert found["figures"]["bytes_read"] <= 2 * TOTAL
    assert found["seconds"] < 30


MENDED: set[Code] = set()
