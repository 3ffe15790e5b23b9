"""The walk through a blend: nested files, groups, sections of a training config; every entry met once.

The rules are those of ``build_indexes.py`` (NeMo Speech main, c03be830), with its silences turned into
problems: a blend given as a path is followed, an entry that is no mapping, has no type or an unknown one is
reported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from blendex.blend import checks
from blendex.blend.entries import (
    Entry,
    Head,
    Spot,
    given_name,
    misspelt,
    no_mapping,
    slug,
    unknown_type,
)
from blendex.blend.extent import Extent
from blendex.blend.interpolate import Document, Place, Resolver, interpolated
from blendex.blend.load import Limits, MapNode, Node, Reader, SeqNode
from blendex.blend.model import Pointer, Problem
from blendex.blend.nested import Files
from blendex.blend.shares import Shares, Sibling
from blendex.blend.types import (
    DATA_KEYS,
    TYPES,
    TypeSpec,
    misspelt_keys,
)
from blendex.blend.world import World
from blendex.errors import BlendexError, Code

_CLASSIC = ("cuts_path", "shar_path", "manifest_filepath", "tarred_audio_filepaths")
_AUXILIARY = ("noise_path", "rir_path")
# What the sets of a section take over from it, beside data: it decides how the data is found.
_FLAVOURS = frozenset(("input_cfg", *_CLASSIC))


class Walk:
    """One walk through one blend.

    Args:
        text: the posted YAML.
        file: its name; when absolute, relative ``input_cfg`` are looked for beside it.
        world: what the submission brought along.
        reader: how nested files are read.
        limits: what the blend may ask for.
        trees: of texts that were parsed before, within the same limits.

    Attributes:
        on_leaf: called once for each leaf that was understood, in document order.
        grafts: where the list or mapping at a pointer is written, when that is elsewhere.
        overridden: pointers of the entries that say themselves where indexes are.
        definitions: pointers of entries outside of every list that only serve others.

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
        trees: dict[bytes, Node] | None = None,
    ) -> None:
        self.world = world
        self.reader = reader
        self.limits = limits
        self.on_leaf: Callable[[Entry], None] | None = None
        self.heads: list[Head] = []
        self.leaves: list[Entry] = []
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self.grafts: dict[Pointer, Place] = {}
        self.overridden: list[Pointer] = []
        self.definitions: list[Pointer] = []
        self.files = Files(text, file, world, reader, limits, trees)
        self.posted = self.files.posted
        self._active: list[Place] = []
        self._loose: list[tuple[MapNode, Spot]] = []
        self._seen: set[int] = set()
        self._names: set[str] = set()
        self._numbers: dict[str, int] = {}
        self._met = 0
        self._inherited: dict[Pointer, dict[Any, Spot]] = {}
        self.resolver = Resolver(world, self.posted)
        self.shares = Shares(self.resolver)
        self._extent = Extent(self.resolver, self.files, limits)

    def run(self) -> Walk:
        """Walk; returns itself, filled."""
        root, spot = self.posted.root, Spot((), Place(self.posted))
        if isinstance(root, SeqNode):
            self._entries(root, spot, None)
        else:
            self._hydra(root, spot)
            self._section(root, spot, data=True)
            # A typed mapping elsewhere counts too, unless it is a definition that an entry has referred to.
            for node, where in self._loose:
                if id(node) in self._seen:
                    self.definitions.append(where.pointer)
                else:
                    self._entry(node, where, None)
        if not self.leaves and not self.problems:
            self.problem(
                Code.BLEND_EMPTY,
                "There are no data sources in the blend.",
                spot,
                root.line,
                "Post a list of entries, or a config with input_cfg or data keys under train_ds.",
            )
        return self

    def problem(self, code: Code, message: str, spot: Spot, line: int | None, next_step: str) -> None:
        """Record what is wrong with the entry at ``spot``."""
        self.problems.append(Problem(code, message, spot.file, line, spot.pointer, next_step))

    def warn(self, code: Code, message: str, spot: Spot, line: int | None, next_step: str) -> None:
        """Record what is odd about the entry at ``spot``."""
        self.warnings.append(Problem(code, message, spot.file, line, spot.pointer, next_step))

    def _hydra(self, root: MapNode, spot: Spot) -> None:
        if "defaults" in root:
            self.warn(
                Code.BLEND_SHAPE,
                "The file has a defaults list: it is a Hydra config that is not composed, and most of it is elsewhere.",
                spot,
                root.lines["defaults"],
                "Post the composed config, as printed by --cfg job --resolve.",
            )

    # Sections: everything outside of input_cfg lists

    def _section(self, node: Any, spot: Spot, *, data: bool) -> None:
        self._budget()
        if len(spot.pointer) > 2 * self.limits.depth:
            error = self._too_deep()
            self.problem(error.code, error.message, spot, node.line, error.next_step)
            return
        if isinstance(node, SeqNode):
            for index, item in enumerate(node):
                if isinstance(item, MapNode | SeqNode):
                    self._section(item, spot.child(index), data=data)
            return
        given = [key for key in node if key in DATA_KEYS]
        if "type" in node and given:
            if data:
                self._entry(node, spot, None)
            else:
                self._loose.append((node, spot))
            return
        sets = node.get("datasets")
        if data and isinstance(sets, MapNode) and sets:
            self._datasets(node, sets, spot)
            return
        classic = [key for key in _CLASSIC if data and node.get(key) is not None]
        if node.get("input_cfg") is not None:
            self.ignored(classic, "input_cfg is set beside it", spot, node)
            with self.shares.section(node, spot.place):
                self._children(node, spot, None)
        elif classic:
            self._classic(node, classic, spot)
        for key, value in node.items():
            if key not in DATA_KEYS:
                self._value(key, value, spot, data=data and spot.pointer != ())

    def _datasets(self, node: MapNode, sets: MapNode, spot: Spot) -> None:
        """Named sets: each takes over what the section says and it does not (the dataloader of NeMo Speech main)."""
        given = {key: value for key, value in node.items() if key in _FLAVOURS and value is not None}
        named = spot.child("datasets")
        for key, raw in sets.items():
            at, item = named.child(key), raw
            try:
                resolved = self.resolver.resolve(raw, named.place, key)
            except BlendexError:
                resolved = None
            if resolved is not None and resolved.place is not None and resolved.place != at.place:
                if not self._enter(resolved.place):
                    continue
                self.grafts[at.pointer] = resolved.place
                at, item = Spot(at.pointer, resolved.place), resolved.value
                self._active.pop()
            if not isinstance(item, MapNode):
                self._failed(no_mapping(item), raw, at, None, sets.lines[key])
                continue
            # A set with data of its own flavour takes nothing over that training would prefer to it.
            inherited = {name: value for name, value in given.items() if name not in item}
            if not inherited:
                self._section(item, at, data=True)
                continue
            merged = MapNode(item.line)
            merged.update({**inherited, **item})
            merged.lines = {**dict.fromkeys(inherited, item.line), **item.lines}
            merged.size = item.size
            self._inherited[at.pointer] = dict.fromkeys(inherited, spot)
            self._section(merged, at, data=True)
        for key, value in node.items():
            if key not in DATA_KEYS and key != "datasets":
                self._value(key, value, spot, data=spot.pointer != ())

    def _value(self, key: Any, value: Any, spot: Spot, *, data: bool) -> None:
        data = data or (isinstance(key, str) and key.endswith("_ds"))
        if data and key in _AUXILIARY and value is not None:
            named = f" ({value[:200]})" if isinstance(value, str) else ""
            self.warn(
                Code.UNKNOWN_KEY,
                f"{key}{named} names auxiliary audio, which gets no index.",
                spot.child(key),
                None,
                "Nothing to do; training reads it without an index.",
            )
            return
        inner = spot.child(key)
        if isinstance(value, MapNode | SeqNode):
            self._section(value, inner, data=data)
        elif data and interpolated(value):
            self._referred(value, spot, key)

    def _referred(self, value: str, spot: Spot, key: Any) -> None:
        """A part of a data section that is written elsewhere; a plain value is none of ours."""
        try:
            resolved = self.resolver.resolve(value, spot.place, key)
        except BlendexError:
            return
        if resolved.place is None or not self._enter(resolved.place):
            return
        inner = Spot((*spot.pointer, key), resolved.place)
        self.grafts[inner.pointer] = resolved.place
        self._section(resolved.value, inner, data=True)
        self._active.pop()

    def _enter(self, place: Place) -> bool:
        if place in self._active or len(self._active) > self.limits.depth:
            return False
        self._active.append(place)
        return True

    def _classic(self, node: MapNode, given: list[str], spot: Spot) -> None:
        if "cuts_path" in given or "shar_path" in given:
            name = "lhotse_shar" if "shar_path" in given else "lhotse"
        else:
            name = "nemo_tarred" if "tarred_audio_filepaths" in given else "nemo"
        spec = TYPES[name]
        unread = [key for key in given if key not in spec.known]
        self.ignored(unread, f"{given[0]} is set beside it", spot, node)
        entry = Entry(spot, node, name, spec, node.line, self._dataset(node, name, spot))
        entry.classic = True
        entry.inherited = self._inherited.get(spot.pointer, {})
        self._leaf(entry)

    def ignored(self, keys: list[str], why: str, spot: Spot, node: MapNode) -> None:
        """Record keys that name data and are passed over."""
        for key in keys:
            self.warn(
                Code.UNKNOWN_KEY,
                f"{key} is ignored by training, because {why}.",
                spot,
                node.lines.get(key),
                f"Remove {key}, or move it into an entry of its own.",
            )

    # Entries: items of input_cfg lists

    def _children(self, node: MapNode, spot: Spot, dataset: int | None) -> None:
        """Everything under the ``input_cfg`` of ``node``; a failure stands for what could not be reached."""
        depth = len(self._active)
        try:
            self._input_cfg(node, spot, dataset)
        except BlendexError as error:
            if error.code is Code.BLEND_TOO_MANY_NODES and error.file is None:
                raise  # the whole blend is too large, not this entry
            line = error.line if error.file else node.lines.get("input_cfg", node.line)
            self._failed(error, node, spot, dataset, line)
        finally:
            del self._active[depth:]

    def _input_cfg(self, node: MapNode, spot: Spot, dataset: int | None) -> None:
        owner = self._inherited.get(spot.pointer, {}).get("input_cfg", spot)
        written = Spot((*spot.pointer, "input_cfg"), owner.place.child("input_cfg"))
        resolved = self.resolver.resolve(node.get("input_cfg"), owner.place, "input_cfg")
        value, at = resolved.value, resolved.place
        if isinstance(value, str) and value != "???":
            document = self._open(value, owner.place.document, spot, node)
            value, at = document.root, Place(document)
        if value is None or value == "???":
            raise BlendexError(
                Code.MISSING_KEY,
                "input_cfg is not set.",
                next_step="Give it a list of entries, or the path of a YAML that holds one.",
            )
        wrong = isinstance(value, MapNode) and ("type" in value or value.get("input_cfg") is None)
        if wrong or at is None or not isinstance(value, MapNode | SeqNode):
            raise BlendexError(
                Code.BAD_VALUE,
                "input_cfg is neither a list of entries nor the path of a YAML that holds one.",
                next_step="Put the entry into a list.",
            )
        if not self._enter(at):
            raise BlendexError(
                Code.NESTED_CYCLE, "input_cfg leads back to a list it lies in.", next_step="Break the circle."
            )
        if at != written.place:
            self.grafts[written.pointer] = at
            self._measure(value, at)
        inner = Spot(written.pointer, at)
        if isinstance(value, MapNode):
            self._children(value, inner, dataset)
            return
        if not value:
            self.warn(
                Code.BLEND_EMPTY,
                "The input_cfg list is empty, and training fails on it.",
                spot,
                node.lines.get("input_cfg"),
                "Remove the entry.",
            )
        self._entries(value, inner, dataset)

    def _entries(self, items: SeqNode, spot: Spot, dataset: int | None) -> None:
        """``dataset`` is None in an outermost list: each of its entries is a dataset then."""
        weighted = [isinstance(item, MapNode) and "weight" in item for item in items]
        mixed = any(weighted) and not all(weighted)
        siblings: list[Sibling] = []
        with self.shares.within(siblings):
            for index, raw in enumerate(items):
                at, item, line = spot.child(index), raw, items.lines[index]
                if interpolated(raw):
                    try:
                        resolved = self.resolver.resolve(raw, spot.place, index)
                    except BlendexError as error:
                        siblings.append(Sibling(at.pointer, None, at.place))
                        self._failed(error, raw, at, dataset, line)
                        continue
                    if resolved.place is not None and resolved.place != at.place:
                        self.grafts[at.pointer] = resolved.place
                        at, item = Spot(at.pointer, resolved.place), resolved.value
                siblings.append(Sibling(at.pointer, item if isinstance(item, MapNode) else None, at.place))
                if not isinstance(item, MapNode):
                    self._failed(no_mapping(item), raw, at, dataset, line)
                    continue
                if mixed and not weighted[index] and item is raw:
                    self._weightless(at, item)
                self._entry(item, at, dataset)

    def _weightless(self, spot: Spot, node: MapNode) -> None:
        self.warn(
            Code.BAD_VALUE,
            "The entry has no weight while others of its list do; training refuses that.",
            spot,
            node.line,
            "Give every entry of the list a weight, or none.",
        )

    def _entry(self, node: MapNode, spot: Spot, dataset: int | None) -> None:
        self._budget()
        self._seen.add(id(node))
        if len(spot.pointer) > 2 * self.limits.depth:
            self._failed(self._too_deep(), node, spot, dataset, node.line)
            return
        if "type" not in node and node.get("input_cfg") is not None:
            self._children(node, spot, dataset)
            return
        try:
            name, spec = self._type(node, spot.place)
        except BlendexError as error:
            self._failed(error, node, spot, dataset, node.lines.get("type", node.line))
            return
        if dataset is None:
            dataset = self._dataset(node, name, spot)
        checks.odd(self, node, spot, name)
        if not spec.children or (spec.keys and node.get("input_cfg") is None):
            self._leaf(Entry(spot, node, name, spec, node.line, dataset))
            return
        if spec.keys:
            self.ignored(spec.ignored(node), "input_cfg is set beside it", spot, node)
            self._children(node, spot, dataset)
            return
        slips = misspelt_keys(spec, node)
        if slips and "input_cfg" not in node:
            self._failed(misspelt(name, *next(iter(slips.items()))), node, spot, dataset, node.line)
            return
        unread = [key for key in node if key in DATA_KEYS and key not in spec.known]
        self.ignored(unread, "a group reads only input_cfg", spot, node)
        self._children(node, spot, dataset)

    def _type(self, node: MapNode, place: Place) -> tuple[str, TypeSpec]:
        if "type" not in node:
            raise BlendexError(
                Code.MISSING_KEY,
                "The entry has no type.",
                next_step=f"Give it one of: {', '.join(TYPES)}.",
            )
        name = self.resolver.value(node["type"], place, "type")
        if isinstance(name, str) and name in TYPES:
            return name, TYPES[name]
        raise unknown_type(name)

    def _leaf(self, entry: Entry) -> None:
        assert entry.node is not None
        assert entry.spec is not None
        self._budget()
        self.leaves.append(entry)
        checks.keys(self, entry, entry.node, entry.spec)
        if self.on_leaf is not None:
            self.on_leaf(entry)

    def _failed(
        self,
        error: BlendexError,
        node: Any,
        spot: Spot,
        dataset: int | None,
        line: int | None,
    ) -> None:
        """An entry that cannot be understood is a leaf too: it is counted, named, and can be excluded."""
        self._budget()
        file = error.file or spot.file
        self.problems.append(Problem(error.code, error.message, file, line, spot.pointer, error.next_step))
        mapping = node if isinstance(node, MapNode) else None
        name = mapping.get("type", "") if mapping is not None else ""
        name = name if isinstance(name, str) else ""
        start = mapping.line if mapping is not None else line or 0
        if dataset is None:
            dataset = self._dataset(mapping or MapNode(start), name, spot)
        self.leaves.append(Entry(spot, mapping, name, None, start, dataset))

    def _budget(self) -> None:
        self._met += 1
        # The smallest entry is five nodes: the mapping, its type and one key that names data.
        if self._met > self.limits.nodes // 5:
            raise self._too_many()

    def _measure(self, value: MapNode | SeqNode, place: Place) -> None:
        """Refuse what multiplies by inclusion before walking it: each list is counted once, however often it comes."""
        if self._met + self._extent.of(value, place) > self.limits.nodes // 5:
            raise self._too_many()

    def _too_deep(self) -> BlendexError:
        return BlendexError(
            Code.BLEND_TOO_DEEP,
            f"Nested files and groups go deeper than {self.limits.depth} levels.",
            next_step="Flatten the groups.",
        )

    def _too_many(self) -> BlendexError:
        return BlendexError(
            Code.BLEND_TOO_MANY_NODES,
            f"The blend has more than {self.limits.nodes // 5:,} entries with its nested files written out.",
            next_step="Include each file once, or split the blend.",
        )

    def _open(self, path: str, declaring: Document, spot: Spot, node: MapNode) -> Document:
        document, elsewhere = self.files.open(path, declaring)
        if elsewhere:
            self.warn(
                Code.NESTED_MISSING, elsewhere, spot, node.lines.get("input_cfg"),
                "Nothing to do for the ready blend, which has it written out; else write the path in full.",
            )  # fmt: skip
        if any(place.document is document for place in self._active) or document is declaring:
            names = dict.fromkeys(place.document.name for place in self._active)
            raise BlendexError(
                Code.NESTED_CYCLE,
                f"Nested files include each other: {' → '.join([*names, document.name])}.",
                next_step="Break the circle.",
            )
        return document

    def _dataset(self, node: MapNode, type_name: str, spot: Spot) -> int:
        position = len(self.heads)
        name = given_name(node) or f"{slug(type_name) or 'entry'}-{position}"
        unique, number = name, self._numbers.get(name, 2)
        while unique in self._names:
            unique, number = f"{name}-{number}", number + 1
        self._names.add(unique)
        self._numbers[name] = number  # all below are taken: thousands may be named alike
        self.heads.append(Head(position, unique, spot.pointer, type_name, spot.file, node.line))
        return position
