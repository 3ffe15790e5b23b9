"""The paths of an entry as they are written, before expansion."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from blendex.blend.entries import Spot
from blendex.blend.interpolate import interpolated
from blendex.blend.load import MapNode, SeqNode
from blendex.blend.model import Pointer
from blendex.errors import BlendexError
from blendex.lint import kinds
from blendex.lint.scopes import Entry

_DEEPEST = 8
_ORDINARY = re.compile(r"[\w/.\-+=@,% ]+\.(?:jsonl?|tar)")


@dataclass(frozen=True, slots=True)
class PathSpec:
    """One path.

    Args:
        key: the key of the entry that names it.
        text: the path, interpolations resolved.
        spot: the mapping or list that holds it.
        step: under which key or number there.
        listed: it is an item of a list.
        paired: it stands in an inner list, ``[path, weight]``.
        lost: what the inner list holds besides, and training drops.
        form: jsonl, tar, or folder.
    """

    key: str
    text: str
    spot: Spot
    step: str | int
    listed: bool
    paired: bool
    lost: int
    form: str

    @property
    def pointer(self) -> Pointer:
        """Where it stands."""
        return (*self.spot.pointer, self.step)


def ordinary(spec: PathSpec) -> bool:
    """Whether a path is one plain file by its looks: no command, URL, range, bracket, glob, compression or folder."""
    if spec.form == "folder" or spec.lost or "_OP_" in spec.text or "_CL_" in spec.text:
        return False
    return _ORDINARY.fullmatch(spec.text) is not None


def specs_of(entry: Entry) -> Iterator[PathSpec]:
    """The paths of an entry, key by key as its type reads them."""
    for key in kinds.reads(entry.type):
        if entry.has(key):
            yield from _under(entry, entry.spot, key, key, entry.node[key], kinds.PATH_KEYS[key])


def _under(entry: Entry, spot: Spot, key: str, step: str | int, raw: Any, form: str) -> Iterator[PathSpec]:
    if isinstance(raw, str) and not interpolated(raw):
        yield PathSpec(key, raw, spot, step, False, False, 0, _form(form, raw))
        return
    try:
        value = entry.resolver.resolve(raw, spot.place, step)
    except BlendexError:
        return
    inside = Spot((*spot.pointer, step), value.place) if value.place is not None else spot
    if isinstance(value.value, str):
        yield PathSpec(key, value.value, spot, step, False, False, 0, _form(form, value.value))
    elif isinstance(value.value, SeqNode):
        yield from _items(entry, inside, key, value.value, form, 0)
    elif isinstance(value.value, MapNode) and form == "shar":
        for name, inner in value.value.items():
            yield from _under(entry, inside, key, name, inner, "field")


def _items(entry: Entry, spot: Spot, key: str, items: SeqNode, form: str, depth: int) -> Iterator[PathSpec]:
    if depth > _DEEPEST:
        return
    resolve = entry.resolver.resolve
    for index, raw in enumerate(items):
        try:
            value = resolve(raw, spot.place, index)
        except BlendexError:
            continue
        if isinstance(value.value, str):
            yield PathSpec(key, value.value, spot, index, True, False, 0, _form(form, value.value))
        elif isinstance(value.value, SeqNode) and value.value and value.place is not None:
            inner = Spot((*spot.pointer, index), value.place)
            first = value.value[0]
            if not isinstance(first, str):
                yield from _items(entry, inner, key, value.value, form, depth + 1)
                continue
            try:
                text = resolve(first, value.place, 0).value
            except BlendexError:
                continue
            rest = value.value[1:]
            weight = len(rest) == 1 and isinstance(rest[0], int | float) and not isinstance(rest[0], bool)
            if isinstance(text, str):
                lost = 0 if weight else len(rest)
                yield PathSpec(key, text, inner, 0, True, True, lost, _form(form, text))


def _form(form: str, text: str) -> str:
    if form == "shar":
        return "folder"
    if form in ("mixed", "field"):
        name = text.rstrip("/").rpartition("/")[2]
        if ".tar" in name or ".tgz" in name:
            return "tar"
        return "jsonl" if ".json" in name or form == "field" else "folder"
    return form
