"""Safe YAML: events in, a tree with line numbers out, within counted limits."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import yaml

from blendex.blend.scalars import NotAScalarError, Scalar, plain
from blendex.errors import BlendexError, Code


class Reader(Protocol):
    """How a blend reaches what lies outside its own text. Paths are addresses (``World.address``)."""

    def read(self, path: str, limit: int | None = None) -> bytes:
        """The bytes of a nested YAML or a catalog, at most ``limit`` of them (None: as of a blend).

        Raises:
            BlendexError: NESTED_MISSING, PATH_OUTSIDE_ROOTS.
        """
        ...

    def list(self, path: str) -> builtins.list[tuple[str, bool]]:
        """(name, is a folder) of everything directly in one folder, sorted by name.

        Raises:
            BlendexError: FOLDER_MISSING, PATH_OUTSIDE_ROOTS.
        """
        ...


@dataclass(frozen=True)
class Limits:
    """What a blend may ask for.

    Args:
        bytes: size of one YAML file.
        depth: nesting of one YAML file.
        nodes: nodes of all files together, an alias counted with the full size of what it points to.
        paths: sources of one blend.
        pattern: paths of one pattern.
    """

    bytes: int = 16 * 1024 * 1024
    depth: int = 64
    nodes: int = 2_000_000
    paths: int = 2_000_000
    pattern: int = 1_000_000


class MapNode(dict[Any, Any]):
    """A YAML mapping. ``line`` is where it starts, ``lines`` where each key stands, ``size`` its nodes."""

    __slots__ = ("line", "lines", "size")

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line
        self.lines: dict[Any, int] = {}
        self.size = 1


class SeqNode(list[Any]):
    """A YAML sequence. ``line`` is where it starts, ``lines`` where each item stands, ``size`` its nodes."""

    __slots__ = ("line", "lines", "size")

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line
        self.lines: list[int] = []
        self.size = 1


Node = MapNode | SeqNode | Scalar


def parse(text: bytes, file: str, limits: Limits | None = None) -> Node:
    """The tree of one YAML document.

    Built from libyaml's events with a stack of our own, so that neither nesting nor aliases cost more than
    their arithmetic. Aliases stay shared objects. Scalars and merge keys mean what OmegaConf 2.4 makes of
    them.

    Args:
        text: the file, UTF-8.
        file: its name in messages.
        limits: what it may ask for.

    Raises:
        BlendexError: BLEND_TOO_LARGE, BLEND_SYNTAX, BLEND_TAG, BLEND_DUPLICATE_KEY, BLEND_TOO_DEEP,
            BLEND_TOO_MANY_NODES, BLEND_RECURSIVE, BLEND_SHAPE, BLEND_EMPTY.
    """
    limits = limits or Limits()
    if len(text) > limits.bytes:
        raise BlendexError(
            Code.BLEND_TOO_LARGE,
            f"The YAML has {len(text):,} bytes; the limit is {limits.bytes:,}.",
            file=file,
            next_step="Use ranges instead of long lists, or split the blend.",
        )
    try:
        decoded = text.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise BlendexError(
            Code.BLEND_SYNTAX,
            "The YAML is not UTF-8.",
            file=file,
            byte=error.start,
            next_step="Save the file as UTF-8.",
        ) from None
    return _Builder(file, limits).build(decoded)


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


class _Frame:
    __slots__ = ("anchor", "before", "key", "key_line", "merges", "node", "waiting")

    def __init__(self, node: MapNode | SeqNode, anchor: str | None, before: int) -> None:
        self.node = node
        self.anchor = anchor
        self.before = before
        self.waiting = False
        self.key: Any = None
        self.key_line = 0
        self.merges: list[MapNode] | None = None


_MERGE = object()


class _Builder:
    def __init__(self, file: str, limits: Limits) -> None:
        self.file = file
        self.limits = limits
        self.nodes = 0
        self.stack: list[_Frame] = []
        self.anchors: dict[str, tuple[Any, int]] = {}
        self.open: set[str] = set()
        self.documents = 0
        self.root: Node = None
        self.handlers: dict[type[yaml.Event], Callable[[Any], None]] = {
            yaml.ScalarEvent: self._scalar,
            yaml.MappingStartEvent: self._mapping,
            yaml.SequenceStartEvent: self._sequence,
            yaml.MappingEndEvent: self._end,
            yaml.SequenceEndEvent: self._end,
            yaml.AliasEvent: self._alias,
            yaml.DocumentStartEvent: self._document,
        }

    def build(self, text: str) -> Node:
        handlers = self.handlers
        for event in self._events(text):
            handler = handlers.get(type(event))
            if handler is not None:
                handler(event)
        if not self.documents or self.root is None:
            raise self._error(Code.BLEND_EMPTY, "There is no YAML document.", None, "Post a blend: a list of entries.")
        return self.root

    def _events(self, text: str) -> Iterator[yaml.Event]:
        try:
            yield from yaml.parse(text, Loader=yaml.CSafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark else None
            raise self._syntax(text, str(error.problem or error.context or "it is no YAML"), line) from None
        except yaml.YAMLError as error:
            reason = str(getattr(error, "reason", "it is no YAML"))
            raise self._syntax(text, reason, None) from None

    def _syntax(self, text: str, reason: str, line: int | None) -> BlendexError:
        if "nesting depth" in reason:
            # libyaml has a limit of its own, which a long run of brackets meets first.
            return self._too_deep(line)
        next_step = "Correct the YAML there."
        if line is not None:
            rows = text.split("\n", line)
            row = rows[line - 1] if line <= len(rows) else ""
            if "\t" in row[: len(row) - len(row.lstrip())]:
                reason = "the line is indented with a tab, which YAML forbids"
                next_step = "Indent with spaces."
        return self._error(Code.BLEND_SYNTAX, f"Not readable as YAML: {reason}.", line, next_step)

    def _error(self, code: Code, message: str, line: int | None, next_step: str) -> BlendexError:
        return BlendexError(code, message, file=self.file, line=line, next_step=next_step)

    def _too_deep(self, line: int | None) -> BlendexError:
        return self._error(
            Code.BLEND_TOO_DEEP,
            f"The YAML is nested deeper than {self.limits.depth} levels.",
            line,
            "Flatten the nesting.",
        )

    def _document(self, event: yaml.DocumentStartEvent) -> None:
        self.documents += 1
        if self.documents > 1:
            raise self._error(
                Code.BLEND_SYNTAX,
                "The file holds several YAML documents; training would read one of them.",
                _line(event),
                "Post one document.",
            )

    def _count(self, size: int, line: int) -> None:
        self.nodes += size
        if self.nodes > self.limits.nodes:
            raise self._error(
                Code.BLEND_TOO_MANY_NODES,
                f"The YAML has more than {self.limits.nodes:,} nodes with its aliases written out.",
                line,
                "Use fewer aliases and merge keys, or split the blend.",
            )

    def _no_tag(self, event: Any) -> None:
        if event.tag is not None:
            raise self._error(
                Code.BLEND_TAG,
                f"The YAML tag {str(event.tag)[:80]} is refused; a blend is plain data.",
                _line(event),
                "Remove the tag; include files by input_cfg.",
            )

    def _anchor(self, anchor: str | None, line: int) -> None:
        if anchor is not None and (anchor in self.anchors or anchor in self.open):
            raise self._error(
                Code.BLEND_SYNTAX, "An anchor is defined twice.", line, "Give each anchor a name of its own."
            )

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        line = _line(event)
        if event.tag is not None or event.anchor is not None:
            self._no_tag(event)
            self._anchor(event.anchor, line)
        self._count(1, line)
        value: Any = event.value
        if event.implicit[0]:
            frame = self.stack[-1] if self.stack else None
            as_key = frame is not None and not frame.waiting and isinstance(frame.node, MapNode)
            if as_key and value in ("<<", "="):
                value = _MERGE if value == "<<" else value
            else:
                value = self._plain(value, line)
        if event.anchor is not None:
            self.anchors[event.anchor] = (value, 1)
        self._add(value, line)

    def _plain(self, text: str, line: int) -> Scalar:
        try:
            return plain(text)
        except NotAScalarError:
            raise self._error(
                Code.BLEND_SYNTAX,
                "An unquoted scalar has a special meaning in YAML that cannot be read.",
                line,
                "Quote it.",
            ) from None

    def _alias(self, event: yaml.AliasEvent) -> None:
        line = _line(event)
        if event.anchor in self.open:
            raise self._error(
                Code.BLEND_RECURSIVE,
                "An alias points to the collection that holds it.",
                line,
                "Write the data out.",
            )
        if event.anchor not in self.anchors:
            raise self._error(Code.BLEND_SYNTAX, "An alias has no anchor before it.", line, "Define the anchor first.")
        value, size = self.anchors[event.anchor]
        self._count(size, line)
        self._add(value, line)

    def _mapping(self, event: yaml.MappingStartEvent) -> None:
        self._push(event, MapNode(_line(event)))

    def _sequence(self, event: yaml.SequenceStartEvent) -> None:
        self._push(event, SeqNode(_line(event)))

    def _push(self, event: Any, node: MapNode | SeqNode) -> None:
        self._no_tag(event)
        self._anchor(event.anchor, node.line)
        if self.stack and isinstance(self.stack[-1].node, MapNode) and not self.stack[-1].waiting:
            raise self._error(Code.BLEND_SHAPE, "A key is a list or a mapping.", node.line, "Use plain text as keys.")
        if len(self.stack) >= self.limits.depth:
            raise self._too_deep(node.line)
        self.stack.append(_Frame(node, event.anchor, self.nodes))
        self._count(1, node.line)
        if event.anchor is not None:
            self.open.add(event.anchor)

    def _end(self, _: yaml.Event) -> None:
        frame = self.stack.pop()
        node = frame.node
        if frame.merges is not None:
            node = _merged(node, frame.merges)  # type: ignore[arg-type]
        node.size = self.nodes - frame.before
        if frame.anchor is not None:
            self.open.discard(frame.anchor)
            self.anchors[frame.anchor] = (node, node.size)
        self._add(node, node.line)

    def _add(self, value: Any, line: int) -> None:
        if not self.stack:
            self.root = value
            return
        frame = self.stack[-1]
        node = frame.node
        if isinstance(node, SeqNode):
            node.append(value)
            node.lines.append(line)
        elif not frame.waiting:
            self._key(frame, value, line)
        elif frame.key is _MERGE:
            self._merge(frame, value, line)
        else:
            node[frame.key] = value
            node.lines[frame.key] = frame.key_line
            frame.waiting = False

    def _key(self, frame: _Frame, key: Any, line: int) -> None:
        if key is None or isinstance(key, dict | list):
            raise self._error(Code.BLEND_SHAPE, "A key is null, a list or a mapping.", line, "Use plain text as keys.")
        if (key is _MERGE and frame.merges is not None) or key in frame.node:
            name = "<<" if key is _MERGE else str(key)[:80]
            raise self._error(
                Code.BLEND_DUPLICATE_KEY,
                f"The key {name} stands twice in one mapping.",
                line,
                "Keep one of them.",
            )
        frame.key, frame.key_line, frame.waiting = key, line, True

    def _merge(self, frame: _Frame, value: Any, line: int) -> None:
        merges = list(value) if isinstance(value, SeqNode) else [value]
        if not all(isinstance(item, MapNode) for item in merges):
            raise self._error(
                Code.BLEND_SHAPE,
                "A merge key (<<) merges something that is no mapping.",
                line,
                "Merge a mapping or a list of mappings.",
            )
        frame.merges = merges
        frame.waiting = False


def _merged(own: MapNode, merges: list[MapNode]) -> MapNode:
    """Own keys win, then the earlier of several merged mappings; merged keys stand first."""
    node = MapNode(own.line)
    for source in reversed(merges):
        for key, value in source.items():
            if key not in own:
                node[key] = value
                node.lines[key] = source.lines[key]
    node.update(own)
    node.lines.update(own.lines)
    return node
