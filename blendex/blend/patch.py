"""Edits of a blend in its own text, by the marks of libyaml: what is not touched stays as it was written.

Ten thousand entries take a second this way; ruamel's scanner takes ten. What needs nodes moved or copied (aliases,
merge keys, excluded entries, lists that an interpolation brings in, files named inside of braces) is left to it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from blendex.blend.interpolate import Document, Place, escape
from blendex.blend.model import Pointer
from blendex.blend.scalars import plain
from blendex.blend.types import DATA_KEYS, OVERRIDES
from blendex.blend.walk import Walk

GONE = object()
_UNSAFE = re.compile(r"[^\t\x20-\x7e\xa0-\u1fff\u2030-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")


@dataclass
class Edit:
    """What happens at one pointer, and below it."""

    graft: Place | None = None
    value: Any = GONE
    removed: bool = False
    indexed: bool = False
    holder: bool = False
    pack: dict[str, Any] = field(default_factory=dict)  # settings that point at the pack of a dataset
    below: dict[str | int, Edit] = field(default_factory=dict)

    def at(self, pointer: Pointer) -> Edit:
        """The edit at ``pointer``, made when there is none."""
        edit = self
        for key in pointer:
            edit = edit.below.setdefault(key, Edit())
        return edit


def settings_of(edit: Edit, given: set[Any], indexes_root: str, *, in_list: bool) -> dict[str, Any] | None:
    """The index settings that a mapping with the keys ``given`` shall have; None when it keeps its own."""
    settings = {"indexed": True, "indexes_root": indexes_root}
    if edit.indexed:
        return settings | edit.pack
    if in_list and (given & DATA_KEYS or "type" in given):
        return {}
    if edit.holder:
        return {key: value for key, value in settings.items() if key in given}
    return None


class UnsupportedError(Exception):
    """The text cannot be edited in place."""


@dataclass(slots=True)
class _Node:
    start: int
    end: int
    column: int
    line: int
    style: str = ""  # of a scalar
    flow: bool = False  # of a collection
    items: list[_Node] | None = None
    pairs: list[tuple[Any, _Node, _Node]] | None = None


_NODES = frozenset((yaml.ScalarEvent, yaml.SequenceStartEvent, yaml.MappingStartEvent))


class _Marks:
    """The nodes of one file with where they stand in its text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.begin = 0  # of what belongs to the document
        self.root = self._read()

    def _read(self) -> _Node:
        stack: list[_Node] = []
        keys: list[tuple[Any, _Node] | None] = []
        root: _Node | None = None
        events: Iterator[Any] = iter(yaml.parse(self.text, yaml.CLoader))
        for event in events:
            what = type(event)
            if what is yaml.AliasEvent or getattr(event, "anchor", None) is not None:
                raise UnsupportedError
            if what is yaml.DocumentStartEvent and event.explicit:
                self.begin = event.end_mark.index
            elif what is yaml.DocumentEndEvent and event.explicit:
                raise UnsupportedError
            elif what is yaml.SequenceEndEvent or what is yaml.MappingEndEvent:
                done = stack.pop()
                keys.pop()
                done.end = event.end_mark.index if done.flow else _last(done)
            if what not in _NODES:
                continue
            mark = event.start_mark
            node = _Node(mark.index, event.end_mark.index, mark.column, mark.line)
            if stack and (parent := stack[-1]).pairs is not None:
                pending = keys[-1]
                if pending is None:
                    if what is not yaml.ScalarEvent or self._question(mark.index):
                        raise UnsupportedError
                    keys[-1] = (_key(event), node)
                else:
                    keys[-1] = None
                    parent.pairs.append((*pending, node))
            elif stack:
                assert stack[-1].items is not None
                stack[-1].items.append(node)
            else:
                root = node
            if what is yaml.ScalarEvent:
                node.style = event.style or ""
                continue
            node.flow = bool(event.flow_style)
            if what is yaml.SequenceStartEvent:
                node.items = []
            else:
                node.pairs = []
            stack.append(node)
            keys.append(None)
        if root is None:
            raise UnsupportedError
        return root

    def _question(self, at: int) -> bool:
        """Whether a key is written with a question mark."""
        return self.text[max(at - 8, 0) : at].rstrip(" ").endswith("?")


def _last(node: _Node) -> int:
    """Where a block collection ends: its own mark stands at the next token, behind comments."""
    if node.items:
        return node.items[-1].end
    return node.pairs[-1][2].end if node.pairs else node.end


def _key(event: Any) -> Any:
    if event.style in ('"', "'", "|", ">"):
        return event.value
    if event.value == "<<":
        raise UnsupportedError
    return plain(event.value)


class Patcher:
    """Writes the ready blend by editing the texts it is made of.

    Args:
        walk: the walk through the posted blend.
        indexes_root: the folder to point at.
    """

    def __init__(self, walk: Walk, indexes_root: str) -> None:
        self._walk = walk
        self._indexes_root = indexes_root
        self._known: dict[Document, _Marks] = {}

    def patched(self, edits: Edit) -> str:
        """The text of the posted file with ``edits`` applied.

        Raises:
            UnsupportedError: it cannot be edited in place.
        """
        marks = self._marks(self._walk.posted)
        if "%YAML" in marks.text:
            raise UnsupportedError
        return _Text(self, marks).apply(edits, (), 0)

    def _marks(self, document: Document) -> _Marks:
        if document not in self._known:
            text = self._walk.files.text(document).decode("utf-8").removeprefix("\ufeff")
            if "\r" in text or "\x85" in text or "\u2028" in text or "\u2029" in text:
                raise UnsupportedError  # lines would be counted in several ways
            self._known[document] = _Marks(text)
        return self._known[document]

    def body(self, graft: Place, edit: Edit, pointer: Pointer) -> str:
        """What stands in a nested file, edited, from its first line of content on."""
        if graft.path:
            raise UnsupportedError
        marks = self._marks(graft.document)
        text = marks.text
        if "%YAML" in text or "\t" in text:
            raise UnsupportedError
        begin = marks.begin
        if begin:
            begin = text.find("\n", begin) + 1
            if not begin or begin > marks.root.start:
                raise UnsupportedError
        return _Text(self, marks).apply(edit, pointer, begin)

    @property
    def indexes_root(self) -> str:
        """The folder to point at."""
        return self._indexes_root


class _Text:
    """One text on its way to another one."""

    def __init__(self, patcher: Patcher, marks: _Marks) -> None:
        self._patcher = patcher
        self._marks = marks
        self._source = marks.text
        self._changes: list[tuple[int, int, str]] = []

    def apply(self, edit: Edit, pointer: Pointer, begin: int) -> str:
        self._node(self._marks.root, edit, pointer, None)
        parts, at = [], begin
        for start, end, new in sorted(self._changes, key=lambda change: change[:2]):
            if start < at:
                raise UnsupportedError
            parts += [self._source[at:start], new]
            at = end
        return "".join((*parts, self._source[at:]))

    def _node(self, node: _Node, edit: Edit, pointer: Pointer, parent: _Node | None) -> None:
        if edit.removed:
            raise UnsupportedError
        if edit.value is not GONE:
            if node.items is not None or node.pairs is not None or node.style in ("|", ">") or node.start == node.end:
                raise UnsupportedError
            self._changes.append((node.start, node.end, spelled(edit.value)))
            return
        if edit.graft is not None and pointer:
            self._graft(node, edit, edit.graft, pointer, parent)
            return
        if node.items is not None:
            for index, item in enumerate(node.items):
                if index in edit.below:
                    self._node(item, edit.below[index], (*pointer, index), node)
        elif node.pairs is not None:
            self._mapping(node, node.pairs, edit, pointer)

    def _graft(self, node: _Node, edit: Edit, graft: Place, pointer: Pointer, parent: _Node | None) -> None:
        """A nested file goes below the key that names it, indented."""
        if parent is None or parent.pairs is None or parent.flow or node.items is not None or node.pairs is not None:
            raise UnsupportedError
        start = node.start
        while self._source[start - 1] == " ":
            start -= 1
        inner = Edit(below=edit.below, indexed=edit.indexed, holder=edit.holder, pack=edit.pack)
        lines = self._patcher.body(graft, inner, pointer).rstrip("\n").split("\n")
        if self._source[start - 1] != ":" or "\n" in self._source[start : node.end]:
            raise UnsupportedError
        indent = " " * (parent.column + 2)
        self._changes.append((start, node.end, ""))
        at = self._line_end(node.end)
        self._changes.append((at, at, "".join(f"\n{indent}{line}" if line else "\n" for line in lines)))

    def _mapping(self, node: _Node, pairs: list[tuple[Any, _Node, _Node]], edit: Edit, pointer: Pointer) -> None:
        in_list = bool(pointer) and isinstance(pointer[-1], int)
        wanted = settings_of(edit, {key for key, _, _ in pairs}, self._patcher.indexes_root, in_list=in_list)
        kept, gone = [], []
        for number, (key, mark, value) in enumerate(pairs):
            if wanted is not None and key in OVERRIDES:
                if key not in wanted:
                    gone.append(number)
                    continue
                self._node(value, Edit(value=wanted.pop(key)), (*pointer, key), node)
            elif key in edit.below:
                self._node(value, edit.below[key], (*pointer, key), node)
            kept.append((key, mark, value))
        for number in gone:
            self._remove(node, pairs, number, gone)
        if wanted:
            self._insert(node, kept, wanted)

    def _remove(self, node: _Node, pairs: list[tuple[Any, _Node, _Node]], number: int, gone: list[int]) -> None:
        _, key, value = pairs[number]
        if value.items is not None or value.pairs is not None or value.style in ("|", ">") or len(gone) == len(pairs):
            raise UnsupportedError
        last = number == len(pairs) - 1
        if node.flow or number == 0:
            if last and (number == 0 or number - 1 in gone):
                raise UnsupportedError
            start, end = (pairs[number - 1][2].end, value.end) if last else (key.start, pairs[number + 1][1].start)
            if "#" in self._source[value.end : end]:
                raise UnsupportedError
            self._changes.append((start, end, ""))
            return
        end = self._line_end(value.end)
        if "#" in self._source[value.end : end]:
            raise UnsupportedError
        start = self._source.rfind("\n", 0, key.start)
        if self._source[start + 1 : key.start].strip():
            raise UnsupportedError
        self._changes.append((start, end, ""))

    def _insert(self, node: _Node, pairs: list[tuple[Any, _Node, _Node]], wanted: dict[str, Any]) -> None:
        """New keys go after ``type``, or to the front: comments hang on the last key of an entry."""
        if not pairs:
            raise UnsupportedError
        new = [f"{key}: {spelled(value)}" for key, value in wanted.items()]
        at = next((index + 1 for index, (key, _, _) in enumerate(pairs) if key == "type"), 0)
        at = at if at < len(pairs) else len(pairs) - 1
        before = pairs[at - 1][2] if at else None
        if node.flow:
            text = ", ".join(new)
            place, text = (before.end, f", {text}") if before is not None else (pairs[0][1].start, f"{text}, ")
            self._changes.append((place, place, text))
            return
        indent = " " * pairs[0][1].column
        if before is None:
            text = "".join(f"{line}\n{indent}" for line in new)
            self._changes.append((pairs[0][1].start, pairs[0][1].start, text))
            return
        if (before.items is not None or before.pairs is not None) and not before.flow:
            raise UnsupportedError
        if before.style in ("|", ">"):
            raise UnsupportedError
        place = self._line_end(before.end)
        self._changes.append((place, place, "".join(f"\n{indent}{line}" for line in new)))

    def _line_end(self, at: int) -> int:
        end = self._source.find("\n", at)
        return len(self._source) if end < 0 else end


def spelled(value: Any) -> str:
    """Plain data in a spelling that YAML 1.1 and 1.2 read alike, on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_spelled_key(key)}: {spelled(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(spelled, value)) + "]"
    if isinstance(value, str):
        return _quoted(escape(value))
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    shown = repr(float(value))
    return {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}.get(shown, shown)


def _spelled_key(key: Any) -> str:
    return _quoted(key) if isinstance(key, str) else spelled(key)


def _quoted(text: str) -> str:
    def escaped(match: re.Match[str]) -> str:
        code = ord(match.group())
        return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"

    return _UNSAFE.sub(escaped, json.dumps(text, ensure_ascii=False))
