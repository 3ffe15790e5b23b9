"""How large a list of entries is with its nested files written out, before anybody walks it."""

from __future__ import annotations

from typing import Any

from blendex.blend.interpolate import Document, Place, Resolver
from blendex.blend.load import Limits, MapNode, SeqNode
from blendex.blend.model import Pointer
from blendex.blend.nested import Files
from blendex.errors import BlendexError


class Extent:
    """Counts entries by arithmetic: each list once, however often it is included.

    Args:
        resolver: of the blend's interpolations.
        files: its YAML files.
        limits: what it may ask for.
    """

    def __init__(self, resolver: Resolver, files: Files, limits: Limits) -> None:
        self._resolver = resolver
        self._files = files
        self._limits = limits
        self._sizes: dict[tuple[Document, Pointer], int] = {}

    def of(self, value: Any, place: Place, depth: int = 0) -> int:
        """How many entries lie below a list of entries, or below a mapping that holds one."""
        key = (place.document, place.path)
        known = self._sizes.get(key)
        if known is not None:
            return known
        self._sizes[key] = 1  # a circle: the walk names it
        if isinstance(value, MapNode):
            size = self._entry(value, place, depth)
        else:
            size = 0
            for index, raw in enumerate(value):
                size += self._item(raw, place, index, depth)
                if size > self._limits.nodes:
                    break
        self._sizes[key] = size
        return size

    def _item(self, raw: Any, place: Place, index: int, depth: int) -> int:
        if isinstance(raw, str):
            try:
                found = self._resolver.resolve(raw, place, index)
            except BlendexError:
                return 1
            if found.place is None or not isinstance(found.value, MapNode):
                return 1
            return 1 + self._entry(found.value, found.place, depth)
        return 1 + (self._entry(raw, place.child(index), depth) if isinstance(raw, MapNode) else 0)

    def _entry(self, node: MapNode, place: Place, depth: int) -> int:
        inner = node.get("input_cfg")
        if inner is None or depth > self._limits.depth:
            return 0
        try:
            found = self._resolver.resolve(inner, place, "input_cfg")
            value, at = found.value, found.place
            if isinstance(value, str) and value != "???":
                document, _ = self._files.open(value, place.document)
                value, at = document.root, Place(document)
        except BlendexError:
            return 0  # told when the walk comes there
        if at is None or not isinstance(value, MapNode | SeqNode):
            return 0
        return self.of(value, at, depth + 1)
