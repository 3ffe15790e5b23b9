"""Where things stand in a YAML text, to the character: for columns, and for edits that touch nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import yaml

from blendex.blend.interpolate import Document
from blendex.blend.model import Pointer
from blendex.blend.scalars import NotAScalarError, plain


class _Loader(yaml.CSafeLoader):
    """Composes without looking for tags, which nobody asks for here: that is half of the time."""

    def descend_resolver(self, node: Any, index: Any) -> None:
        """Nothing: no tag depends on where a node stands."""

    def ascend_resolver(self) -> None:
        """Nothing."""

    def resolve(self, kind: type, value: Any, implicit: Any) -> str:
        """Any tag."""
        return ""


_ALIAS = re.compile(r"(?:[\s,:\[\-]|#[^\n]*\n)*(\*[^\s,\]}]+)")


class Span:
    """One key with its value, or one item.

    Args:
        key: the key's node, None for an item of a list.
        node: the value's node.
        holder: the mapping or list that it stands in.
        own: False when a merge key brings it, or an alias stands for the value: there is nothing here to edit.
        alias: where the alias ends, when one stands for the value.
    """

    def __init__(self, key: Any, node: Any, holder: Any, own: bool, alias: tuple[int, int] | None) -> None:
        self.key = key
        self.node = node
        self.holder = holder
        self.own = own
        self.alias = alias

    @property
    def line(self) -> int:
        """1-based line of the key, or of the item."""
        return int((self.key or self.node).start_mark.line) + 1

    @property
    def column(self) -> int:
        """1-based column of the key, or of the item."""
        return int((self.key or self.node).start_mark.column) + 1


class Marks:
    """The nodes of one YAML text, which ``load.parse`` has taken already: its limits hold here too.

    Args:
        text: the text, without a byte order mark.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.root: Any = _Loader(text).get_single_node()

    def find(self, path: Pointer) -> Span | None:
        """What stands at ``path``; None when nothing does."""
        span: Span | None = None
        node, own = self.root, True
        for step in path:
            span = self._step(node, step)
            if span is None:
                return None
            own = own and span.own
            node = span.node
        if span is not None and not own:
            span = Span(span.key, span.node, span.holder, False, span.alias)
        return span

    def at(self, path: Pointer) -> tuple[int, int]:
        """Line and column of what stands at ``path``, or of the nearest thing above it that is written."""
        for length in range(len(path), 0, -1):
            span = self.find(path[:length])
            if span is not None:
                return span.line, span.column
        mark = self.root.start_mark
        return mark.line + 1, mark.column + 1

    def _step(self, node: Any, step: str | int, seen: set[int] | None = None) -> Span | None:
        if isinstance(node, yaml.SequenceNode):
            if not isinstance(step, int) or not 0 <= step < len(node.value):
                return None
            item = node.value[step]
            alias = self._alias(node.value[step - 1].end_mark.index if step else None, item, node)
            return Span(None, item, node, alias is None, alias)
        if not isinstance(node, yaml.MappingNode):
            return None
        for key, value in node.value:
            if key_of(key) == step and not is_merge(key):
                alias = self._alias(key.end_mark.index, value, node)
                return Span(key, value, node, alias is None, alias)
        # Each mapping is looked into once: merge keys can lead to one mapping by very many ways.
        seen = set() if seen is None else seen
        for key, value in node.value:
            if is_merge(key):
                for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    if id(source) in seen:
                        continue
                    seen.add(id(source))
                    found = self._step(source, step, seen)
                    if found is not None:
                        return Span(found.key, found.node, found.holder, False, found.alias)
        return None

    def _alias(self, after: int | None, node: Any, holder: Any) -> tuple[int, int] | None:
        """Where the alias stands that stands for ``node``: composing puts the anchored node in its place."""
        begin = holder.start_mark.index if after is None else after
        if node.start_mark.index >= begin:
            return None
        match = _ALIAS.match(self.text, begin)
        return (match.start(1), match.end(1)) if match else (begin, begin)

    def in_scalar(self, index: int) -> bool:
        """Whether a character belongs to a key or value, and so begins no comment."""
        waiting = [self.root]
        seen: set[int] = set()
        while waiting:
            node = waiting.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            if isinstance(node, yaml.ScalarNode):
                if node.start_mark.index <= index < node.end_mark.index and node.style is not None:
                    return True
            elif node.start_mark.index <= index:
                if isinstance(node, yaml.MappingNode):
                    waiting += [part for pair in node.value for part in pair if part.start_mark.index <= index]
                else:
                    waiting += [item for item in node.value if item.start_mark.index <= index]
        return False


def key_of(node: Any) -> Any:
    """A key as ``load`` reads it."""
    if not isinstance(node, yaml.ScalarNode) or node.style is not None:
        return getattr(node, "value", None)
    try:
        return plain(node.value)
    except NotAScalarError:
        return node.value


def is_merge(node: Any) -> bool:
    """Whether a key is ``<<``."""
    return isinstance(node, yaml.ScalarNode) and node.value == "<<" and node.style is None


class Atlas:
    """The marks of every file of a blend, each made when it is first asked for.

    Args:
        texts: the bytes of a file.
        known: marks of texts that were asked for before; filled here.
    """

    def __init__(self, texts: Callable[[Document], bytes], known: dict[bytes, Marks]) -> None:
        self._texts = texts
        self._known = known

    def marks(self, document: Document) -> Marks:
        """The marks of one file."""
        raw = self._texts(document)
        if raw not in self._known:
            self._known[raw] = Marks(raw.decode("utf-8").removeprefix("\ufeff"))
        return self._known[raw]

    def at(self, document: Document, path: Pointer) -> tuple[int, int]:
        """Line and column."""
        return self.marks(document).at(path)
