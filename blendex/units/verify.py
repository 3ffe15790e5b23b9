"""Verify: read a mirror whole and compare every byte with what its receipt says."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from blake3 import blake3

from blendex.blend.index_path import sidecar_files
from blendex.errors import BlendexError, Code
from blendex.formats.kinds import KINDS
from blendex.formats.packreader import PackReader
from blendex.formats.packreader import verify as prove
from blendex.storage.stores import open_stores
from blendex.units.receipt import file_digest, read_receipt, read_sources

STEP = 1_000


def _pack_fault(path: str, pack: dict[str, Any]) -> str | None:
    try:
        if file_digest(path) != pack["sha256"]:
            return "holds other bytes than were published"
        with PackReader(path, layout_hash=pack["layout_hash"]) as reader:
            prove(reader)
    except BlendexError as error:
        return error.message.rstrip(".")
    return None


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
        arguments: mirror (folder), sources (True: compare the tokens of the sources too), roots and stores as for
            a build; without roots every path may be read.
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
    # By itself it is a user's own command, which reads what the user may.
    storage = open_stores({"roots": ["/"]} | arguments)
    total = receipt["counts"]["sources"]
    checked = 0
    for line in read_sources(mirror):
        index = sidecar_files(line["kind"], line["path"])[0]
        loose = "pack" not in line
        for file, length, digest in ([index, line["length"], line["digest"]], *line.get("more", ())) if loose else ():
            relative = os.path.join("idx", file)
            if reason := _sidecar_fault(os.path.join(mirror, relative), length, digest):
                faults.append({"path": relative, "reason": reason})
        if arguments["sources"] and not KINDS[line["kind"]].derived:
            try:
                if storage.stat(line["address"]).token != line["token"]:
                    changed.append(line["path"])
            except BlendexError as error:
                if error.code in (Code.PATH_OUTSIDE_ROOTS, Code.STORE_UNKNOWN, Code.STORE_UNREACHABLE):
                    raise
                changed.append(line["path"])
        checked += 1
        if checked % STEP == 0:
            report({"done": checked, "total": total})
    for pack in receipt.get("packs", ()):
        relative = os.path.join("packs", pack["file"])
        if reason := _pack_fault(os.path.join(mirror, relative), pack):
            faults.append({"path": relative, "reason": reason})
    if checked != total:
        faults.append({"path": "sources.jsonl", "reason": f"names {checked} sources, the receipt {total}"})
    return {"key": receipt["key"], "sources": checked, "faults": faults, "changed": changed}
