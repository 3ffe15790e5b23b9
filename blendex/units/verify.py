"""Verify: read a mirror whole and compare every byte with what its receipt says."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from blake3 import blake3

from blendex.blend.index_path import sidecar_files
from blendex.errors import BlendexError, Code
from blendex.formats.kinds import KINDS
from blendex.storage.local import LocalStorage
from blendex.units.receipt import file_digest, read_receipt, read_sources

STEP = 1_000


def _sidecar_fault(path: str, length: int, digest: str) -> str | None:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if len(data) != length:
        return f"has {len(data)} bytes instead of {length}"
    if blake3(data).hexdigest() != digest:
        return "holds other bytes than were published"
    return None


def run(arguments: dict[str, Any], report: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Check a mirror.

    Args:
        arguments: mirror (folder), sources (True: compare the tokens of the sources too), roots.
        report: gets {"done": n, "total": n}.

    Returns:
        key, sources (checked), faults ([{path, reason}, …] of the mirror), changed (paths of sources whose token
        is another one now, or that are gone).
    """
    mirror = arguments["mirror"]
    receipt = read_receipt(mirror)
    faults: list[dict[str, str]] = []
    changed: list[str] = []
    if file_digest(os.path.join(mirror, "sources.jsonl")) != receipt["sources_sha256"]:
        faults.append({"path": "sources.jsonl", "reason": "holds other bytes than were published"})
    storage = LocalStorage(arguments.get("roots", ["/"]))
    total = receipt["counts"]["sources"]
    checked = 0
    for line in read_sources(mirror):
        index = sidecar_files(line["kind"], line["path"])[0]
        for file, length, digest in ([index, line["length"], line["digest"]], *line.get("more", ())):
            relative = os.path.join("idx", file)
            if reason := _sidecar_fault(os.path.join(mirror, relative), length, digest):
                faults.append({"path": relative, "reason": reason})
        if arguments["sources"] and not KINDS[line["kind"]].derived:
            try:
                if storage.stat(line["address"]).token != line["token"]:
                    changed.append(line["path"])
            except BlendexError as error:
                if error.code is Code.PATH_OUTSIDE_ROOTS:
                    raise
                changed.append(line["path"])
        checked += 1
        if checked % STEP == 0:
            report({"done": checked, "total": total})
    if checked != total:
        faults.append({"path": "sources.jsonl", "reason": f"names {checked} sources, the receipt {total}"})
    return {"key": receipt["key"], "sources": checked, "faults": faults, "changed": changed}
