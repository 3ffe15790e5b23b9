"""What one mirror holds and another does not: two sorted lists, read side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from blendex.units.receipt import read_sources

SHOWN = 200


@dataclass(slots=True)
class Difference:
    """Counts of what differs, and the first of each sort: (kind, path)."""

    added: int = 0
    removed: int = 0
    changed: int = 0
    same: int = 0
    first: dict[str, list[tuple[str, str]]] = field(default_factory=lambda: {"added": [], "removed": [], "changed": []})

    def _note(self, what: str, item: dict[str, Any]) -> None:
        setattr(self, what, getattr(self, what) + 1)
        if len(self.first[what]) < SHOWN:
            self.first[what].append((item["kind"], item["path"]))


def difference(before: str, after: str) -> Difference:
    """What has to be done to the mirror in folder ``before`` to get the one in ``after``.

    Raises:
        BlendexError: mirror_damaged.
    """
    found = Difference()
    left, right = read_sources(before), read_sources(after)
    old, new = next(left, None), next(right, None)
    while old is not None or new is not None:
        if new is None or (old is not None and _place(old) < _place(new)):
            assert old is not None
            found._note("removed", old)
            old = _next(left, old)
        elif old is None or _place(new) < _place(old):
            found._note("added", new)
            new = _next(right, new)
        else:
            if old["content_hash"] == new["content_hash"] and old["recipe"] == new["recipe"]:
                found.same += 1
            else:
                found._note("changed", new)
            old, new = _next(left, old), _next(right, new)
    return found


def _place(item: dict[str, Any]) -> tuple[str, str]:
    return item["kind"], item["path"]


def _next(lines: Iterator[dict[str, Any]], before: dict[str, Any]) -> dict[str, Any] | None:
    item = next(lines, None)
    assert item is None or _place(before) < _place(item)  # receipts are sorted
    return item
