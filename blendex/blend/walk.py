"""The walk through a blend: nested files, groups, sections of a training config; every entry met once.

The rules are those of ``build_indexes.py`` (NeMo Speech main, c03be830), with its silences turned into problems:
a blend given as a path is followed, an entry that is no mapping, has no type or an unknown one is reported.
"""

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from blendex.blend.interpolate import Document, Place, Resolver, interpolated
from blendex.blend.load import Limits, MapNode, Reader, SeqNode, parse
from blendex.blend.model import Pointer, Problem
from blendex.blend.types import (
    DATA_KEYS,
    NOT_READ_YET,
    OVERRIDES,
    TYPES,
    TypeSpec,
    misspelt_keys,
    nearest_type,
)
from blendex.blend.world import World, has_scheme
from blendex.errors import BlendexError, Code

_CLASSIC = ("cuts_path", "shar_path", "manifest_filepath", "tarred_audio_filepaths")
_AUXILIARY = ("noise_path", "rir_path")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_NAME_LENGTH = 80


@dataclass(slots=True)
class Entry:
    """One leaf on the way. ``spec`` is None when the entry could not be understood."""

    pointer: Pointer
    place: Place
    node: MapNode | None
    type: str
    spec: TypeSpec | None
    line: int
    dataset: int
    classic: bool = False

    @property
    def file(self) -> str:
        """The YAML that declares it."""
        return self.place.document.name


@dataclass(frozen=True, slots=True)
class Head:
    """What a dataset is before its leaves are known. ``section`` marks classic keys."""

    position: int
    name: str
    pointer: Pointer
    type: str
    file: str
    line: int


class Walk:
    """One walk through one blend.

    Args:
        text: the posted YAML.
        file: its name; when absolute, relative ``input_cfg`` are looked for beside it.
        world: what the submission brought along.
        reader: how nested files are read.
        limits: what the blend may ask for.
        on_leaf: called once for each leaf that was understood, in document order.

    Raises:
        BlendexError: the posted text cannot be read at all.
    """

    def __init__(
        self,
        text: bytes,
        file: str,
        world: World,
        reader: Reader,
        limits: Limits,
        on_leaf: Callable[[Entry], None] | None = None,
    ) -> None:
        self.world = world
        self.reader = reader
        self.limits = limits
        self.on_leaf = on_leaf
        self.heads: list[Head] = []
        self.leaves: list[Entry] = []
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self.grafts: dict[Pointer, Place] = {}
        self.holders: list[Pointer] = []
        self.nested: dict[str, bytes] = {}
        self._documents: dict[str, Document] = {}
        self._active: list[tuple[Any, ...]] = []
        self._names: set[str] = set()
        self._met = 0
        self._nodes = 0
        folder = posixpath.dirname(file) if file.startswith("/") else world.base
        root = self._tree(text, file)
        self.posted = Document(file, folder, root)
        self.resolver = Resolver(world, self.posted)

    def run(self) -> Walk:
        """Walk; returns itself, filled."""
        root, place = self.posted.root, Place(self.posted)
        if isinstance(root, SeqNode):
            self._entries(root, (), place, None)
        else:
            self._hydra(root)
            self._section(root, (), place, data=True)
        if not self.leaves and not self.problems:
            self.problem(
                Code.BLEND_EMPTY,
                "There are no data sources in the blend.",
                (),
                place,
                root.line,
                "Post a list of entries, or a config with input_cfg or data keys under train_ds.",
            )
        return self

    def problem(
        self, code: Code, message: str, pointer: Pointer, place: Place, line: int | None, next_step: str
    ) -> None:
        """Record what is wrong with the entry at ``pointer``."""
        self.problems.append(Problem(code, message, place.document.name, line, pointer, next_step))

    def warn(
        self, code: Code, message: str, pointer: Pointer, place: Place, line: int | None, next_step: str
    ) -> None:
        """Record what is odd about the entry at ``pointer``."""
        self.warnings.append(Problem(code, message, place.document.name, line, pointer, next_step))

    def _hydra(self, root: MapNode) -> None:
        if "defaults" in root:
            self.warn(
                Code.BLEND_SHAPE,
                "The file has a defaults list: it is a Hydra config that is not composed, and most of it is "
                "elsewhere.",
                (),
                Place(self.posted),
                root.lines["defaults"],
                "Post the composed config, as printed by --cfg job --resolve.",
            )

    # Sections: everything outside of input_cfg lists

    def _section(self, node: Any, pointer: Pointer, place: Place, *, data: bool) -> None:
        if isinstance(node, SeqNode):
            for index, item in enumerate(node):
                if isinstance(item, MapNode | SeqNode):
                    self._section(item, (*pointer, index), place.child(index), data=data)
            return
        given = [key for key in node if key in DATA_KEYS]
        if "type" in node and given:
            self._entry(node, pointer, place, None)
            return
        classic = [key for key in _CLASSIC if data and node.get(key) is not None]
        if node.get("input_cfg") is not None:
            self._ignored(classic, "input_cfg is set beside it", pointer, place, node)
            self._children(node, pointer, place, None)
        elif classic:
            self._classic(node, classic, pointer, place)
        for key, value in node.items():
            if key not in DATA_KEYS:
                self._value(key, value, pointer, place, data=data and pointer != ())

    def _value(self, key: Any, value: Any, pointer: Pointer, place: Place, *, data: bool) -> None:
        data = data or (isinstance(key, str) and key.endswith("_ds"))
        if data and key in _AUXILIARY and value is not None:
            self.warn(
                Code.UNKNOWN_KEY,
                f"{key} names auxiliary audio, which gets no index.",
                (*pointer, key),
                place,
                None,
                "Nothing to do; training reads it without an index.",
            )
            return
        at = place.child(key)
        if data and interpolated(value):
            try:
                resolved = self.resolver.resolve(value, place, key)
            except BlendexError:
                return
            if resolved.place is None:
                return
            value, at = resolved.value, resolved.place
            if not self._enter((at.document, at.path)):
                return
            self.grafts[(*pointer, key)] = at
            self._section(value, (*pointer, key), at, data=data)
            self._active.pop()
        elif isinstance(value, MapNode | SeqNode):
            self._section(value, (*pointer, key), at, data=data)

    def _enter(self, mark: tuple[Any, ...]) -> bool:
        if mark in self._active or len(self._active) > self.limits.depth:
            return False
        self._active.append(mark)
        return True

    def _classic(self, node: MapNode, given: list[str], pointer: Pointer, place: Place) -> None:
        if "cuts_path" in given or "shar_path" in given:
            name = "lhotse" if "cuts_path" in given else "lhotse_shar"
        else:
            name = "nemo_tarred" if "tarred_audio_filepaths" in given else "nemo"
        spec = TYPES[name]
        unread = [key for key in given if key not in spec.known]
        self._ignored(unread, f"{given[0]} is set beside it", pointer, place, node)
        entry = Entry(pointer, place, node, name, spec, node.line, self._dataset(node, name, pointer, place))
        entry.classic = True
        self._leaf(entry)

    def _ignored(self, keys: list[str], why: str, pointer: Pointer, place: Place, node: MapNode) -> None:
        for key in keys:
            self.warn(
                Code.UNKNOWN_KEY,
                f"{key} is ignored by training, because {why}.",
                pointer,
                place,
                node.lines.get(key),
                f"Remove {key}, or move it into an entry of its own.",
            )

    # Entries: items of input_cfg lists

    def _children(self, node: MapNode, pointer: Pointer, place: Place, dataset: int | None) -> None:
        """Everything under the ``input_cfg`` of ``node``; a failure stands for what could not be reached."""
        depth = len(self._active)
        try:
            self._input_cfg(node, pointer, place, dataset)
        except BlendexError as error:
            line = error.line if error.file else node.lines.get("input_cfg", node.line)
            self._failed(error, node, pointer, place, dataset, line)
        finally:
            del self._active[depth:]

    def _input_cfg(self, node: MapNode, pointer: Pointer, place: Place, dataset: int | None) -> None:
        inner = (*pointer, "input_cfg")
        resolved = self.resolver.resolve(node.get("input_cfg"), place, "input_cfg")
        value, at = resolved.value, resolved.place
        if isinstance(value, str) and value != "???":
            document = self._open(value, place.document)
            value, at = document.root, Place(document)
        if value is None or value == "???":
            raise BlendexError(
                Code.MISSING_KEY,
                "input_cfg is not set.",
                next_step="Give it a list of entries, or the path of a YAML that holds one.",
            )
        if at is None or not isinstance(value, MapNode | SeqNode) or (
            isinstance(value, MapNode) and ("type" in value or value.get("input_cfg") is None)
        ):
            raise BlendexError(
                Code.BAD_VALUE,
                "input_cfg is neither a list of entries nor the path of a YAML that holds one.",
                next_step="Put the entry into a list.",
            )
        if not self._enter((at.document, at.path)):
            raise BlendexError(
                Code.NESTED_CYCLE, "input_cfg leads back to a list it lies in.", next_step="Break the circle."
            )
        if at != place.child("input_cfg"):
            self.grafts[inner] = at
        if isinstance(value, MapNode):
            self._children(value, inner, at, dataset)
            return
        if not value:
            self.warn(
                Code.BLEND_EMPTY,
                "The input_cfg list is empty, and training fails on it.",
                pointer,
                place,
                node.lines.get("input_cfg"),
                "Remove the entry.",
            )
        self._entries(value, inner, at, dataset)

    def _entries(self, items: SeqNode, pointer: Pointer, place: Place, dataset: int | None) -> None:
        """``dataset`` is None in an outermost list: each of its entries is a dataset then."""
        if dataset is None:
            self.holders.append(pointer)
        weighted = [isinstance(item, MapNode) and "weight" in item for item in items]
        mixed = any(weighted) and not all(weighted)
        for index, raw in enumerate(items):
            where, at, item = (*pointer, index), place.child(index), raw
            line = items.lines[index]
            try:
                resolved = self.resolver.resolve(raw, place, index)
            except BlendexError as error:
                self._failed(error, raw, where, at, dataset, line)
                continue
            if resolved.place is not None and resolved.place != at:
                self.grafts[where] = at = resolved.place
                item = resolved.value
            if not isinstance(item, MapNode):
                self._failed(_no_mapping(item), raw, where, at, dataset, line)
                continue
            if mixed and not weighted[index] and item is raw:
                self._weightless(where, at, item)
            self._entry(item, where, at, dataset)

    def _weightless(self, pointer: Pointer, place: Place, node: MapNode) -> None:
        self.warn(
            Code.BAD_VALUE,
            "The entry has no weight while others of its list do; training refuses that.",
            pointer,
            place,
            node.line,
            "Give every entry of the list a weight, or none.",
        )

    def _entry(self, node: MapNode, pointer: Pointer, place: Place, dataset: int | None) -> None:
        self._budget()
        if len(pointer) > 2 * self.limits.depth:
            self._failed(
                BlendexError(
                    Code.BLEND_TOO_DEEP,
                    f"Nested files and groups go deeper than {self.limits.depth} levels.",
                    next_step="Flatten the groups.",
                ),
                node,
                pointer,
                place,
                dataset,
                node.line,
            )
            return
        if "type" not in node and node.get("input_cfg") is not None:
            self._children(node, pointer, place, dataset)
            return
        try:
            name, spec = self._type(node, place)
        except BlendexError as error:
            self._failed(error, node, pointer, place, dataset, node.lines.get("type", node.line))
            return
        if dataset is None:
            dataset = self._dataset(node, name, pointer, place)
        self._remarks(node, pointer, place)
        if not spec.children:
            self._leaf(Entry(pointer, place, node, name, spec, node.line, dataset))
            return
        slips = misspelt_keys(spec, node)
        if slips and "input_cfg" not in node:
            self._failed(_misspelt(name, *next(iter(slips.items()))), node, pointer, place, dataset, node.line)
            return
        unread = [key for key in node if key in DATA_KEYS and key not in spec.known]
        self._ignored(unread, "a group reads only input_cfg", pointer, place, node)
        self._children(node, pointer, place, dataset)

    def _type(self, node: MapNode, place: Place) -> tuple[str, TypeSpec]:
        if "type" not in node:
            raise BlendexError(
                Code.MISSING_KEY,
                "The entry has no type.",
                next_step=f"Give it one of: {', '.join(TYPES)}.",
            )
        name = self.resolver.resolve(node["type"], place, "type").value
        if isinstance(name, str) and name in TYPES:
            return name, TYPES[name]
        if isinstance(name, str) and name in NOT_READ_YET:
            raise BlendexError(
                Code.UNKNOWN_TYPE,
                f"Blendex does not read the type {name} yet.",
                next_step="Exclude the entry, or build its indexes with NeMo's build_indexes.py.",
            )
        near = nearest_type(name) if isinstance(name, str) else None
        raise BlendexError(
            Code.UNKNOWN_TYPE,
            f"The type {name[:80]} is unknown." if isinstance(name, str) else "The type is no text.",
            next_step=f"Did you mean {near}?" if near else f"Known are: {', '.join(TYPES)}.",
        )

    def _leaf(self, entry: Entry) -> None:
        assert entry.node is not None
        assert entry.spec is not None
        self._budget()
        self.leaves.append(entry)
        self._check_keys(entry, entry.node, entry.spec)
        if self.on_leaf is not None:
            self.on_leaf(entry)

    def _check_keys(self, entry: Entry, node: MapNode, spec: TypeSpec) -> None:
        slips = misspelt_keys(spec, node)
        for wrong, right in slips.items():
            error = _misspelt(entry.type, wrong, right)
            line = node.lines[wrong]
            self.problem(error.code, error.message, entry.pointer, entry.place, line, error.next_step)
        for group in spec.required:
            if any(node.get(key) is not None for key in group) or set(group) & set(slips.values()):
                continue
            others = sorted(str(key)[:80] for key in node if key != "type")
            self.problem(
                Code.MISSING_KEY,
                f"{entry.type} needs {' or '.join(group)}; the entry has {', '.join(others) or 'nothing'}.",
                entry.pointer,
                entry.place,
                entry.line,
                f"Set {' or '.join(group)}.",
            )
        unread = [key for key in node if key in DATA_KEYS and key not in spec.known and not entry.classic]
        self._ignored(unread, f"{entry.type} does not read it", entry.pointer, entry.place, node)

    def _remarks(self, node: MapNode, pointer: Pointer, place: Place) -> None:
        set_here = [key for key in OVERRIDES if key in node]
        if set_here:
            self.warn(
                Code.UNKNOWN_KEY,
                f"The entry sets {', '.join(set_here)}; the ready blend sets its own.",
                pointer,
                place,
                node.lines[set_here[0]],
                "Nothing to do; the difference is shown.",
            )
        if "weight" in node and weight_of(self.resolver, node, place) is None:
            self.warn(
                Code.BAD_VALUE,
                "The weight is not a finite number of at least 0; training refuses it or reads it differently.",
                pointer,
                place,
                node.lines["weight"],
                "Write the weight as a plain number.",
            )

    def _failed(
        self,
        error: BlendexError,
        node: Any,
        pointer: Pointer,
        place: Place,
        dataset: int | None,
        line: int | None,
    ) -> None:
        """An entry that cannot be understood is a leaf too: it is counted, named, and can be excluded."""
        self._budget()
        file = error.file or place.document.name
        self.problems.append(Problem(error.code, error.message, file, line, pointer, error.next_step))
        mapping = node if isinstance(node, MapNode) else None
        name = mapping.get("type", "") if mapping is not None else ""
        name = name if isinstance(name, str) else ""
        start = mapping.line if mapping is not None else line or 0
        if dataset is None:
            dataset = self._dataset(mapping or MapNode(start), name, pointer, place)
        self.leaves.append(Entry(pointer, place, mapping, name, None, start, dataset))

    def _budget(self) -> None:
        self._met += 1
        if self._met > self.limits.nodes:
            raise self._too_many(f"more than {self.limits.nodes:,} entries with its nested files written out")

    def _too_many(self, what: str) -> BlendexError:
        return BlendexError(
            Code.BLEND_TOO_MANY_NODES, f"The blend has {what}.", next_step="Include each file once, or split the blend."
        )

    def _dataset(self, node: MapNode, type_name: str, pointer: Pointer, place: Place) -> int:
        position = len(self.heads)
        name = _name(node) or f"{_UNSAFE.sub('-', type_name)[:_NAME_LENGTH] or 'entry'}-{position}"
        unique, number = name, 2
        while unique in self._names:
            unique, number = f"{name}-{number}", number + 1
        self._names.add(unique)
        self.heads.append(Head(position, unique, pointer, type_name, place.document.name, node.line))
        return position

    # Nested files

    def _open(self, path: str, declaring: Document) -> Document:
        if has_scheme(path) or path.startswith("pipe:"):
            raise BlendexError(
                Code.PATH_UNSUPPORTED,
                f"The nested YAML {path} is no file path.",
                next_step="Name a copy on a shared filesystem.",
            )
        if not path.startswith("/") and declaring.folder is None:
            raise BlendexError(
                Code.RELATIVE_WITHOUT_BASE,
                f"The nested YAML {path} is relative, and the submission has no base.",
                next_step="Say which absolute folder relative paths mean (base), or write an absolute path.",
            )
        seen = posixpath.normpath(posixpath.join(declaring.folder or "", path))
        address = self.world.address(seen)
        if address not in self._documents:
            text = self.reader.read(address)
            self.nested[address] = text
            self._documents[address] = Document(seen, posixpath.dirname(seen), self._tree(text, seen))
        document = self._documents[address]
        if any(mark[0] is document for mark in self._active):
            chain = [mark[0].name for mark in self._active if mark[1] == ()]
            raise BlendexError(
                Code.NESTED_CYCLE,
                f"Nested files include each other: {' → '.join([*chain, seen])}.",
                next_step="Break the circle.",
            )
        return document

    def _tree(self, text: bytes, name: str) -> MapNode | SeqNode:
        root = parse(text, name, self.limits)
        if not isinstance(root, MapNode | SeqNode):
            raise BlendexError(
                Code.BLEND_SHAPE,
                "The YAML is a single value; expected a mapping or a list.",
                file=name,
                line=1,
                next_step="Post a list of entries or a config.",
            )
        self._nodes += root.size
        if self._nodes > self.limits.nodes:
            raise self._too_many(f"more than {self.limits.nodes:,} nodes in all its files together")
        return root


def weight_of(resolver: Resolver, node: MapNode, place: Place) -> float | None:
    """The weight of an entry, when it is a number that training takes."""
    try:
        value = resolver.resolve(node.get("weight"), place, "weight").value
    except BlendexError:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _name(node: MapNode) -> str | None:
    tags = node.get("tags")
    corpus = tags.get("corpus") if isinstance(tags, MapNode) else None
    for value in (node.get("name"), node.get("corpus"), corpus):
        if isinstance(value, str) and "${" not in value:
            slug = _UNSAFE.sub("-", value).strip("-.")[:_NAME_LENGTH]
            if slug:
                return slug
    return None


def _misspelt(type_name: str, wrong: str, right: str) -> BlendexError:
    return BlendexError(
        Code.UNKNOWN_KEY,
        f"{type_name} does not read {wrong[:80]}; the key is {right}.",
        next_step=f"Rename {wrong[:80]} to {right}.",
    )


def _no_mapping(item: Any) -> BlendexError:
    if isinstance(item, str):
        return BlendexError(
            Code.BAD_VALUE,
            "An entry is a plain string, which training does not follow.",
            next_step="To include a file, write {type: group, input_cfg: <path>}.",
        )
    return BlendexError(
        Code.BAD_VALUE,
        "An entry is no mapping.",
        next_step="Write each entry as a mapping with a type.",
    )
