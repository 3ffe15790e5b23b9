"""Derive: make a routing index from the manifests and tars of its entry; out comes one bundle, as from an index unit.

The inputs have been indexed before, so what they are is known by their content hashes: each is read once more, the
manifests whole and the tars by their headers, and what does not answer to its hash is a source that changed.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

from blake3 import blake3

from blendex.errors import PASSING, BlendexError, Code
from blendex.formats import sgroute
from blendex.formats.kinds import KINDS, build
from blendex.formats.summary import Origin
from blendex.storage.driver import identity
from blendex.storage.interface import Opened
from blendex.storage.root import Root
from blendex.storage.stores import Stores, open_stores
from blendex.units.bundles import private_bundle, publish


def _input(source: Opened, path: str, known: dict[str, Any]) -> sgroute.Input:
    stat = source.stat
    origin = Origin(path, stat.size, stat.mtime_ns, identity(stat.token))
    return sgroute.Input(origin, stat.device, stat.inode, known["content_hash"])


class _Route:
    """One route on its way."""

    def __init__(self, storage: Stores, spec: dict[str, Any], compat: str) -> None:
        self.storage = storage
        self.spec = spec
        self.compat = compat
        self.racy = False
        self.rows = 0
        count = spec["parameters"]["manifests"]
        self.manifests, self.tars = spec["inputs"][:count], spec["inputs"][count:]
        self.devices: set[int] = set()
        self._now_ns = storage.now_ns()

    def _open(self, known: dict[str, Any]) -> Opened:
        if known.get("error") is not None:
            raise BlendexError(
                Code.ROUTE_BROKEN,
                f"it leads through {known['path']}, which could not be indexed.",
                next_step="Mend that source first.",
            )
        return self.storage.open(known["address"], whole=KINDS[known["kind"]].strength == "full")

    def _done(self, source: Opened, path: str) -> None:
        if not source.unchanged():
            raise BlendexError(
                Code.SOURCE_CHANGED, "the file changed while it was read.", file=path, next_step="Build again."
            )
        self.racy = self.racy or source.stat.racy(self._now_ns)
        if source.stat.device is not None:
            self.devices.add(source.stat.device)

    def bytes(self) -> bytes:
        """The file."""
        parameters = self.spec["parameters"]
        members = sgroute.Members()
        tars = []
        for known in self.tars:
            with self._open(known) as source:
                item = _input(source, known["path"], known)
                members.add(source, item)
                self._done(source, known["path"])
            tars.append(item)
        manifests: list[sgroute.Input] = []
        rows = sgroute.Rows(members, parameters["placeholders"])
        routes = list(self._routes(rows, manifests))
        self.rows = len(routes)
        digests = sgroute.Digests(
            sgroute.spec_digest([known["path"] for known in self.manifests], parameters["specs"]),
            rows.content_digest(),
            sgroute.identity_digest(manifests),
            sgroute.identity_digest(tars),
            sgroute.prefix_digest(parameters["prefix_map"]),
        )
        return sgroute.pack(routes, len(tars), digests)

    def _routes(self, rows: sgroute.Rows, manifests: list[sgroute.Input]) -> Iterator[list[tuple[int, int]]]:
        for known in self.manifests:
            with self._open(known) as source:
                stored = bytearray()
                summary = build("jsonl", source, stored.extend, self.compat)
                if summary.content_hash != known["content_hash"]:
                    raise BlendexError(
                        Code.SOURCE_CHANGED,
                        "the file is not the one that was indexed.",
                        file=known["path"],
                        next_step="Build again.",
                    )
                yield from rows.read(source, memoryview(stored).cast("Q").tolist(), known["path"])
                self._done(source, known["path"])
                manifests.append(_input(source, known["path"], known))


def run(arguments: dict[str, Any], report: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Make one derived source.

    Args:
        arguments: root, roots, attempt (names private files), compat, recipe, sort, spec (as a plan gives it; each
            input an object with kind, path, address, and content_hash or error).
        report: gets {"in_hand": path}, so that a death names its cause.

    Returns:
        As an index unit.
    """
    spec = arguments["spec"]
    root = Root(arguments["root"])
    report({"in_hand": spec["path"], "sort": arguments["sort"]})
    failures = []
    with closing(open_stores(arguments, root.path)) as storage, private_bundle(root, arguments["attempt"]) as writer:
        route = _Route(storage, spec, arguments["compat"])
        try:
            data = route.bytes()
            writer.begin()
            writer.write(data)
            writer.commit(
                {
                    "path": spec["path"],
                    "kind": spec["kind"],
                    "recipe": arguments["recipe"],
                    "strength": KINDS[spec["kind"]].strength,
                    "content_hash": blake3(data).hexdigest(),
                    "size": len(data),
                    "records": route.rows,
                    "findings": [],
                    "facts": {"valid_on": {"host": socket.gethostname(), "devices": sorted(route.devices)}},
                    "address": spec["address"],
                    "token": spec["token"],
                    "racy": route.racy,
                }
            )
        except BlendexError as error:
            if error.code in PASSING:
                raise
            error.file = error.file or spec["path"]
            failures.append(
                {"kind": spec["kind"], "path": spec["path"], "address": spec["address"], "error": error.as_dict()}
            )
        name, size = publish(root, writer)
    return {
        "object": name,
        "size": size,
        "entries": writer.entries,
        "failures": failures,
        "figures": storage.figures.as_dict(),
    }
