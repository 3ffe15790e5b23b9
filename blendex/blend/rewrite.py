"""The ready blend: the posted YAML, standing alone and pointing at a mirror's indexes."""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Iterator, Mapping
from copy import copy
from types import MappingProxyType
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode

from blendex.blend.entries import Entry
from blendex.blend.index_path import sidecar_files
from blendex.blend.interpolate import Document, Place, Resolver, escape, interpolated, locate
from blendex.blend.load import Limits, MapNode, Reader, SeqNode
from blendex.blend.model import Pointer
from blendex.blend.patch import GONE, Edit, Patcher, UnsupportedError, settings_of
from blendex.blend.scalars import plain
from blendex.blend.types import OVERRIDES, Form, Key
from blendex.blend.walk import Walk
from blendex.blend.world import World
from blendex.errors import BlendexError, Code

_STR = "tag:yaml.org,2002:str"
_MAP = "tag:yaml.org,2002:map"
_SEQ = "tag:yaml.org,2002:seq"
_DIRECTIVE = re.compile(r"(?m)^%YAML.*\n(?=(?:[%#].*\n|\s*\n)*---)")


def ready_blend(
    text: bytes,
    file: str,
    world: World,
    reader: Reader,
    *,
    indexes_root: str,
    index_pack_root: str = "",
    index_packs: Mapping[Pointer, str] = MappingProxyType({}),
    exclude: Collection[Pointer] = (),
    limits: Limits | None = None,
) -> str:
    """The posted YAML, changed so that it stands alone and finds its indexes.

    Comments, order and spelling stay. Nested files are written out at their ``input_cfg``; excluded leaves
    go, and with them what becomes empty; every dataset gets ``indexed: true`` and ``indexes_root`` (its
    section does, for classic keys), and every other setting of these is replaced or removed. Interpolations
    in values that name data, and those that only the submission or the nested file could resolve, are
    replaced by what they mean; patterns are not expanded. Aliases and merge keys are written out, because one
    anchor may serve entries that differ now.

    Args:
        text: the posted YAML.
        file: its name, as given to ``discover``.
        world: what the submission brought along.
        reader: how nested files are read; folders are not listed.
        indexes_root: the absolute folder to point at.
        index_pack_root: the absolute folder of the packs.
        index_packs: the pack of each dataset that has one, by its pointer as ``discover`` gives it.
        exclude: pointers of leaves, groups or datasets, as ``discover`` gives them.
        limits: what the blend may ask for.

    Raises:
        BlendexError: the posted text cannot be read; BLEND_EMPTY when nothing is left; BAD_REQUEST when an
            excluded pointer leads nowhere; the problem of an entry that is not excluded.
    """
    walk = Walk(text, file, world, reader, limits or Limits()).run()
    gone = frozenset(tuple(pointer) for pointer in exclude)
    _check_excluded(walk, gone)
    for problem in walk.problems:
        if problem.code is not Code.BLEND_EMPTY and not _covering(problem.pointer, gone):
            raise problem.error()
    kept = [leaf for leaf in walk.leaves if not _covering(leaf.pointer, gone)]
    if not kept:
        raise BlendexError(
            Code.BLEND_EMPTY,
            "No entry is left in the blend.",
            file=file,
            next_step="Exclude fewer entries.",
        )
    edits = _plan(walk, kept, gone, indexes_root)
    for pointer, pack in index_packs.items():
        edits.at(pointer).pack = {"index_pack_root": index_pack_root, "index_pack": pack}
    try:
        return Patcher(walk, indexes_root).patched(edits)
    except UnsupportedError:
        pass
    writer = _Writer(walk, indexes_root)
    root = writer.written(walk.posted, ())
    changed = writer.apply(root, edits, ())
    if changed is None:
        raise BlendexError(Code.BLEND_EMPTY, "No entry is left in the blend.", file=file)
    return writer.text(changed)


def _covering(pointer: Pointer, gone: frozenset[Pointer]) -> set[Pointer]:
    """The excluded pointers that ``pointer`` is, or lies below."""
    return {pointer[:length] for length in range(len(pointer) + 1)} & gone if gone else set()


def _check_excluded(walk: Walk, gone: frozenset[Pointer]) -> None:
    used = {above for leaf in walk.leaves for above in _covering(leaf.pointer, gone)}
    for pointer in sorted(gone - used, key=str):
        raise BlendexError(
            Code.BAD_REQUEST,
            f"Nothing to exclude stands at {'/'.join(str(key)[:80] for key in pointer)}.",
            file=walk.posted.name,
            next_step="Take the pointers from the discovery of the same blend.",
        )


def _plan(walk: Walk, kept: list[Entry], gone: frozenset[Pointer], indexes_root: str) -> Edit:
    edits = Edit()
    for pointer, place in walk.grafts.items():
        edits.at(pointer).graft = place
    for pointer in gone:
        edits.at(pointer).removed = True
    if gone:
        # A definition that an excluded entry refers to would bring its data back.
        for pointer in walk.definitions:
            edits.at(pointer).removed = True
    for pointer in (*walk.overridden, *(leaf.pointer for leaf in kept)):
        edits.at(pointer)
    for head in walk.heads:
        edits.at(head.pointer).indexed = True
        for length in range(len(head.pointer)):
            edits.at(head.pointer[:length]).holder = True
    settler = _Settler(walk, edits, indexes_root)
    for leaf in kept:
        settler.leaf(leaf)
    settler.groups({leaf.pointer for leaf in walk.leaves})
    return edits


class _Settler:
    """Decides which interpolations are replaced by what they mean."""

    def __init__(self, walk: Walk, edits: Edit, indexes_root: str) -> None:
        self.walk = walk
        self.edits = edits
        self.indexes_root = indexes_root
        self.alone = Resolver(World(), walk.posted)
        self.steps = 0

    def leaf(self, entry: Entry) -> None:
        """Values that name data always; the others when the file could not resolve them alone."""
        assert entry.node is not None
        assert entry.spec is not None
        known = entry.spec.known | {"type"}
        for key in entry.node:
            if key in known or not entry.classic:
                spot = entry.spot_of(key)
                self._value(entry.node[key], spot.place, key, (*spot.pointer, key), must=key in known)
        for key in entry.spec.keys:
            if key.form is Form.ROUTE:
                self._route(entry, key)

    def _route(self, entry: Entry, key: Key) -> None:
        """A route always lies in the mirror, wherever the blend would have it."""
        assert entry.node is not None
        assert key.when is not None
        other, wanted = key.when
        mode = self.walk.resolver.resolve(entry.node.get(other), entry.spot_of(other).place, other).value
        for name in (key.name, key.alias or key.name):
            if name in entry.node and mode == wanted:
                path = self.walk.resolver.resolve(entry.node[name], entry.spot_of(name).place, name).value
                if isinstance(path, str) and path:
                    (file,) = sidecar_files(key.kind, path)
                    spot = entry.spot_of(name)
                    self.edits.at((*spot.pointer, name)).value = f"{self.indexes_root}/{file}"

    def groups(self, leaves: set[Pointer]) -> None:
        """The own keys of every group and wrapper that was written out or lies above a leaf."""
        done: set[Pointer] = set(leaves)
        for pointer in leaves:
            for length in range(len(pointer) - 1, 0, -1):
                above = pointer[:length]
                if above in done:
                    break
                done.add(above)
                self._group(above)

    def _group(self, pointer: Pointer) -> None:
        place = self._place(pointer)
        node = locate(place)
        if not isinstance(node, MapNode) or "input_cfg" not in node or pointer[-1:] == ("input_cfg",):
            return
        if not isinstance(pointer[-1], int):
            return
        for key, value in node.items():
            if key != "input_cfg":
                self._value(value, place, key, (*pointer, key), must=key == "type")

    def _place(self, pointer: Pointer) -> Place:
        place = Place(self.walk.posted)
        for length, key in enumerate(pointer, start=1):
            place = self.walk.grafts.get(pointer[:length]) or place.child(key)
        return place

    def _value(self, raw: Any, place: Place, key: Any, pointer: Pointer, *, must: bool) -> None:
        if isinstance(raw, MapNode | SeqNode):
            inside = place.child(key)
            for step, value in _items(raw):
                self._value(value, inside, step, (*pointer, step), must=must)
            return
        if not interpolated(raw):
            return
        try:
            value = self.walk.resolver.resolve(raw, place, key)
            if must or not self._alone(raw, place, key, pointer, value.value):
                self.edits.at(pointer).value = self._settled(value.value, value.place)
        except BlendexError:
            if must:
                raise

    def _alone(self, raw: Any, place: Place, key: Any, pointer: Pointer, wanted: Any) -> bool:
        """Whether the posted file means the same without the submission."""
        if place.document is not self.walk.posted or (*place.path, key) != pointer:
            return False
        try:
            return bool(self.alone.resolve(raw, place, key).value == wanted)
        except BlendexError:
            return False

    def _settled(self, value: Any, place: Place | None, depth: int = 0) -> Any:
        """``value`` as plain data with every interpolation in it resolved."""
        if place is None:
            return value
        self.steps += len(value)
        if depth > self.walk.limits.depth or self.steps > self.walk.limits.nodes:
            raise BlendexError(
                Code.BLEND_RECURSIVE,
                "Interpolated lists and mappings lead into each other without an end.",
                next_step="Write the values out.",
            )
        made = {}
        for key, raw in _items(value):
            inner = self.walk.resolver.resolve(raw, place, key)
            made[key] = self._settled(inner.value, inner.place, depth + 1)
        return made if isinstance(value, MapNode) else list(made.values())


def _items(node: MapNode | SeqNode) -> Iterator[tuple[Any, Any]]:
    return iter(node.items()) if isinstance(node, MapNode) else enumerate(node)


class _Writer:
    """Applies edits to ruamel's node trees, which keep comments, quotes and the spelling of scalars."""

    def __init__(self, walk: Walk, indexes_root: str) -> None:
        self.walk = walk
        self.indexes_root = indexes_root
        self.roots: dict[Document, Any] = {}

    def written(self, document: Document, path: Pointer) -> Any:
        """A copy of the node at ``path`` of a file, without anchors, aliases and merge keys."""
        if document not in self.roots:
            text = self.walk.files.text(document).decode("utf-8").removeprefix("\ufeff")
            # A %YAML line would change how ruamel tags plain scalars, and with it what it writes.
            self.roots[document] = _yaml().compose(io.StringIO(_DIRECTIVE.sub("", text)))
        node = self.roots[document]
        for key in path:
            node = _child(node, key)
        return _copy(node)

    def apply(self, node: Any, edit: Edit, pointer: Pointer) -> Any:
        """``node`` with ``edit`` applied to it and below it; None when it goes."""
        if edit.removed:
            return None
        if edit.value is not GONE:
            return _plain(edit.value, getattr(node, "comment", None))
        if edit.graft is not None:
            node = self.written(edit.graft.document, edit.graft.path)
        if isinstance(node, SequenceNode):
            return self._sequence(node, edit, pointer)
        if isinstance(node, MappingNode):
            return self._mapping(node, edit, pointer)
        return node

    def _sequence(self, node: Any, edit: Edit, pointer: Pointer) -> Any:
        before = len(node.value)
        changed = [
            self.apply(item, edit.below[index], (*pointer, index)) if index in edit.below else item
            for index, item in enumerate(node.value)
        ]
        kept: list[Any] = []
        for item, original in zip(changed, node.value, strict=True):
            if item is not None:
                kept.append(item)
            elif kept:
                _hand_over(original, kept[-1])
        node.value = kept
        return node if kept or not before else None

    def _mapping(self, node: Any, edit: Edit, pointer: Pointer) -> Any:
        pairs = []
        lost = False
        for key_node, value in node.value:
            key = _key(key_node)
            inner = edit.below.get(key)
            changed = value if inner is None else self.apply(value, inner, (*pointer, key))
            if changed is None:
                lost = lost or key == "input_cfg"
                continue
            pairs.append((key_node, changed))
        in_list = bool(pointer) and isinstance(pointer[-1], int)
        if lost and (in_list or pointer[-1:] == ("input_cfg",) or pointer[-2:-1] == ("datasets",)):
            # A group, a file or a validation set without entries: training fails on each.
            return None
        node.value = pairs
        self._settings(node, edit, in_list)
        return node

    def _settings(self, node: Any, edit: Edit, in_list: bool) -> None:
        given = {_key(key_node) for key_node, _ in node.value}
        wanted = settings_of(edit, given, self.indexes_root, in_list=in_list)
        if wanted is None:
            return
        pairs: list[tuple[Any, Any]] = []
        for key_node, value in node.value:
            key = _key(key_node)
            if key not in OVERRIDES:
                pairs.append((key_node, value))
            elif key in wanted:
                pairs.append((key_node, _plain(wanted.pop(key), value.comment)))
            elif pairs and isinstance(pairs[-1][1], ScalarNode) and pairs[-1][1].comment is None:
                # What follows a value, up to the next key, hangs on it.
                pairs[-1][1].comment = value.comment
        node.value = _with(pairs, wanted)

    def text(self, root: Any) -> str:
        """The YAML text of ``root``."""
        out = io.StringIO()
        _yaml().serialize(root, out)
        return out.getvalue()


def _last_scalar(node: Any) -> Any:
    while not isinstance(node, ScalarNode):
        if not node.value or node.flow_style:
            return None
        node = node.value[-1][1] if isinstance(node, MappingNode) else node.value[-1]
    return node


def _hand_over(removed: Any, before: Any) -> None:
    """Comments on lines of their own hang on the scalar above them; they speak of what comes next."""
    source, target = _last_scalar(removed), _last_scalar(before)
    if source is None or target is None or not source.comment or source.comment[0] is None:
        return
    _, newline, rest = source.comment[0].value.partition("\n")
    if not newline or not rest.strip():
        return
    token = copy(source.comment[0])
    own = target.comment[0].value.partition("\n")[0] if target.comment and target.comment[0] else ""
    token.value = f"{own}\n{rest}"
    target.comment = [token, *(target.comment or [None, None])[1:]]


def _with(pairs: list[tuple[Any, Any]], wanted: dict[str, Any]) -> list[tuple[Any, Any]]:
    """``wanted`` goes after ``type``, or to the front: comments hang on the last key of an entry."""
    new = [(_plain_key(key), _plain(value)) for key, value in wanted.items()]
    at = next((index + 1 for index, (key, _) in enumerate(pairs) if _key(key) == "type"), 0)
    at = at if at < len(pairs) else max(len(pairs) - 1, 0)
    return [*pairs[:at], *new, *pairs[at:]]


def _yaml() -> Any:
    yaml = YAML()
    yaml.width = 2**30
    yaml.allow_unicode = True
    return yaml


def _key(node: Any) -> Any:
    """The key as ``load`` reads it; ruamel resolves plain scalars by YAML 1.2."""
    return plain(node.value) if node.style is None and node.value not in ("<<", "=") else node.value


def _child(node: Any, key: str | int) -> Any:
    if isinstance(node, SequenceNode):
        return node.value[int(key)]
    pairs = _flat(node)
    return next(value for key_node, value in pairs if _key(key_node) == key)


def _flat(node: Any) -> list[tuple[Any, Any]]:
    """The pairs of a mapping with its merge keys resolved by the rule of ``load``."""
    own = [(key, value) for key, value in node.value if not _is_merge(key)]
    if len(own) == len(node.value):
        return own
    taken = {_key(key) for key, _ in own}
    merged: dict[Any, tuple[Any, Any]] = {}
    for key, value in node.value:
        if not _is_merge(key):
            continue
        sources = value.value if isinstance(value, SequenceNode) else [value]
        for source in reversed(sources):
            for pair in _flat(source):
                if _key(pair[0]) not in taken:
                    merged[_key(pair[0])] = pair
    return [*merged.values(), *own]


def _is_merge(node: Any) -> bool:
    return isinstance(node, ScalarNode) and node.value == "<<" and node.style is None


def _copy(node: Any) -> Any:
    if isinstance(node, ScalarNode):
        return ScalarNode(node.ctag, node.value, style=node.style, comment=node.comment)
    if isinstance(node, SequenceNode):
        items = [_copy(item) for item in node.value]
        return SequenceNode(node.ctag, items, flow_style=node.flow_style, comment=node.comment)
    pairs = [(_copy(key), _copy(value)) for key, value in _flat(node)]
    return MappingNode(node.ctag, pairs, flow_style=node.flow_style, comment=node.comment)


def _plain_key(key: Any) -> Any:
    if isinstance(key, str):
        return ScalarNode(_STR, key, style=None if key in OVERRIDES else '"')
    return _plain(key)


def _plain(value: Any, comment: Any = None) -> Any:
    """A node for plain data, in a spelling that YAML 1.1 and 1.2 read alike."""
    if isinstance(value, dict):
        pairs = [(_plain_key(key), _plain(item)) for key, item in value.items()]
        return MappingNode(_MAP, pairs, flow_style=True)
    if isinstance(value, list):
        return SequenceNode(_SEQ, [_plain(item) for item in value], flow_style=True)
    if isinstance(value, str):
        return ScalarNode(_STR, escape(value), style='"', comment=comment)
    if value is None:
        return ScalarNode("tag:yaml.org,2002:null", "null", comment=comment)
    if isinstance(value, bool):
        return ScalarNode("tag:yaml.org,2002:bool", str(value).lower(), comment=comment)
    if isinstance(value, int):
        return ScalarNode("tag:yaml.org,2002:int", str(value), comment=comment)
    shown = repr(float(value))
    shown = {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}.get(shown, shown)
    return ScalarNode("tag:yaml.org,2002:float", shown, comment=comment)
