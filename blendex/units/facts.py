"""Facts: what bundles say of sources besides their sidecars.

Whoever asks in the order of paths opens each bundle about once.
"""

from __future__ import annotations

from typing import Any

from blendex.errors import BlendexError, Code
from blendex.formats.bundle import read_directory
from blendex.storage.root import Root

# Directories kept at a time; one of a unit of 512 sources takes half a megabyte.
KEPT = 16


class Facts:
    """Reads the directories of bundles when they are asked for."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._known: dict[str, dict[int, dict[str, Any]]] = {}

    def of(self, name: str, offset: int) -> dict[str, Any]:
        """The facts of the sidecar at ``offset`` of a bundle; nothing when the bundle is gone."""
        if name not in self._known:
            if len(self._known) >= KEPT:
                del self._known[next(iter(self._known))]
            try:
                entries = read_directory(self._root.object(name))
            except (BlendexError, OSError):
                entries = []  # told by whoever needs the sidecar; facts only add to it
            self._known[name] = {entry["offset"]: entry["facts"] for entry in entries}
        return self._known[name].get(offset, {})

    def learned(self, name: str, offset: int) -> bytes | None:
        """What was learnt of the records of that source; None when nothing was."""
        place = self.of(name, offset).get("learned")
        if place is None:
            return None
        start, length = place
        with open(self._root.object(name), "rb") as file:
            file.seek(start)
            data = file.read(length)
        if len(data) != length:
            raise BlendexError(
                Code.OBJECT_DAMAGED,
                "this object is shorter than its directory says.",
                file=name,
                next_step="Its sources are read once more; look after the disk.",
            )
        return data
