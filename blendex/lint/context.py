"""A config as rules see it: its sections with what each field means there, its entries, and the run around it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from blendex.blend.entries import Spot
from blendex.blend.index_path import index_path
from blendex.blend.interpolate import Place, interpolated, locate
from blendex.blend.load import MapNode, SeqNode
from blendex.blend.model import Discovery, Pointer, Source
from blendex.blend.types import DATA_KEYS
from blendex.blend.walk import Walk
from blendex.errors import BlendexError
from blendex.lint import kinds
from blendex.lint.facts import Facts
from blendex.lint.ground import Ground, Knowledge
from blendex.lint.launcher import Launcher
from blendex.lint.marks import Atlas
from blendex.lint.model import Edit, Unchecked
from blendex.lint.profile import Profile
from blendex.storage.interface import Stat

# The dataloader of NeMo Speech main, c03be830: LhotseDataLoadingConfig.
DEFAULTS: dict[str, Any] = {
    "indexed": None,
    "indexes_root": None,
    "index_pack": None,
    "index_pack_root": None,
    "index_pack_max_open_files": 32,
    "use_stateful_dataloader": False,
    "force_map_dataset": False,
    "force_iterable_dataset": False,
    "force_finite": False,
    "shard_seed": "trng",
    "seed": 0,
    "concurrent_bucketing": True,
    "use_bucketing": False,
    "num_workers": 0,
    "slice_length": None,
    "max_open_streams": None,
    "rir_enabled": False,
}
# What a section with multi_config says wins over what its loaders say (get_lhotse_dataloader_from_multi_config).
SHARED = frozenset(
    (
        "seed", "shard_seed", "shuffle", "num_workers", "force_finite", "use_stateful_dataloader", "indexed",
        "indexes_root", "index_pack_root", "index_pack_max_open_files",
    )
)  # fmt: skip
# What a list of entries hands down to each that does not say it itself (read_dataset_config).
PROPAGATED = frozenset(
    (
        "shard_seed", "force_finite", "max_open_streams", "force_map_dataset", "force_iterable_dataset", "slice_length",
        "indexed", "indexes_root", "index_pack_root", "index_pack_max_open_files", "index_pack",
    )
)  # fmt: skip
_MOST_SECTIONS = 1000
_MOST_UNCHECKED = 1000
_SECTION_DEPTH = 6


@dataclass(frozen=True, slots=True)
class Setting:
    """What one field means in one place.

    Args:
        key: its name.
        value: what it means; the default of upstream where nothing says it.
        written: whether the config says it.
        known: False when it is written, and its interpolation cannot be resolved.
        spot: the mapping that says it, or should.
    """

    key: str
    value: Any
    written: bool
    known: bool
    spot: Spot

    @property
    def pointer(self) -> Pointer:
        """Where it stands, or would."""
        return (*self.spot.pointer, self.key)

    @property
    def shown(self) -> str:
        """Its value as text."""
        if not self.known:
            return "an interpolation that cannot be resolved"
        return kinds.shown(self.value) if self.written else f"not set (default {kinds.shown(self.value)})"

    def set(self, value: Any) -> Edit:
        """The edit that makes it ``value``."""
        return Edit(self.spot.place.document, (*self.spot.place.path, self.key), value)


def dotted(pointer: Pointer) -> str:
    """A pointer as people write it."""
    made = ""
    for step in pointer:
        made += f"[{step}]" if isinstance(step, int) else f".{step}" if made else str(step)
    return made


class Scope:
    """A mapping that rules ask for fields.

    Args:
        context: the config.
        spot: where the mapping stands.
        node: the mapping.
    """

    def __init__(self, context: Context, spot: Spot, node: MapNode) -> None:
        self.context = context
        self.spot = spot
        self.node = node

    @property
    def name(self) -> str:
        """Its dotted path."""
        return dotted(self.spot.pointer)

    def own(self, key: str) -> Setting | None:
        """What the mapping itself says of ``key``."""
        if key not in self.node:
            return None
        raw = self.node[key]
        if not interpolated(raw):
            return Setting(key, raw, True, True, self.spot)
        try:
            value = self.context.walk.resolver.resolve(raw, self.spot.place, key).value
        except BlendexError:
            return Setting(key, None, True, False, self.spot)
        return Setting(key, value, True, True, self.spot)

    def get(self, key: str, default: Any = None) -> Setting:
        """What ``key`` means here."""
        return self.own(key) or Setting(key, DEFAULTS.get(key, default), False, True, self.spot)

    def path(self, *keys: str) -> Setting:
        """What a field further down means."""
        scope: Scope = self
        for key in keys[:-1]:
            inner = scope.inner(key)
            if inner is None:
                return Setting(keys[-1], None, False, True, Spot((*scope.spot.pointer, key), scope.spot.place))
            scope = inner
        return scope.get(keys[-1])

    def inner(self, key: str) -> Scope | None:
        """The mapping under ``key``."""
        try:
            resolved = self.context.walk.resolver.resolve(self.node.get(key), self.spot.place, key)
        except BlendexError:
            return None
        if not isinstance(resolved.value, MapNode) or resolved.place is None:
            return None
        return Scope(self.context, Spot((*self.spot.pointer, key), resolved.place), resolved.value)


class Section(Scope):
    """A mapping that one dataloader is made from.

    Args:
        role: ``train``, ``eval``, or ``blend`` for a blend without a training config.
        outer: the section that this one is a named part of.
        multi: it is one loader of several (``multi_config``).
    """

    def __init__(
        self, context: Context, spot: Spot, node: MapNode, role: str, outer: Scope | None = None, multi: bool = False
    ) -> None:
        super().__init__(context, spot, node)
        self.role = role
        self.outer = outer
        self.multi = multi

    def get(self, key: str, default: Any = None) -> Setting:
        """What ``key`` means for this loader, after what it shares with its siblings."""
        if self.outer is None:
            return super().get(key, default)
        if self.multi:
            return self.outer.get(key, default) if key in SHARED else super().get(key, default)
        return self.own(key) or self.outer.get(key, default)

    @property
    def entries(self) -> list[Entry]:
        """The leaves that it reads."""
        return self.context.entries_of.get(id(self), [])


class Entry(Scope):
    """One leaf of a blend, with what the groups and the section around it hand down."""

    def __init__(
        self,
        context: Context,
        spot: Spot,
        node: MapNode,
        type_name: str,
        section: Section | None,
        above: tuple[Scope, ...],
        sources: tuple[Source, ...],
        understood: bool,
        classic: bool,
    ) -> None:
        super().__init__(context, spot, node)
        self.type = type_name
        self.section = section
        self.above = above
        self.sources = sources
        self.understood = understood
        self.classic = classic

    def get(self, key: str, default: Any = None) -> Setting:
        """What ``key`` means for this entry."""
        found = self.own(key)
        if found is not None and not self.classic:
            return found
        if key in PROPAGATED:
            for scope in self.above:
                inherited = scope.own(key)
                if inherited is not None:
                    return inherited
        if self.section is not None and (key in PROPAGATED or self.classic):
            return self.section.get(key, default)
        return Setting(key, DEFAULTS.get(key, default), False, True, self.spot)

    def has(self, key: str) -> bool:
        """Whether the entry itself gives ``key`` a value."""
        return self.node.get(key) is not None

    @property
    def training(self) -> bool:
        """Whether it is trained on."""
        return self.section is not None and self.section.role == "train"

    @property
    def alone(self) -> bool:
        """Whether no training config is around it."""
        return self.section is None or self.section.role == "blend"

    @property
    def native(self) -> bool:
        """Whether it is rows beside tars."""
        return kinds.native(self.type, self.has)

    def of_kind(self, *names: str) -> list[Source]:
        """Its sources of these kinds."""
        return [source for source in self.sources if source.kind in names]


@dataclass(frozen=True, slots=True)
class PathSpec:
    """One path as it is written, before expansion.

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


@dataclass
class Context:
    """Everything that a rule may look at.

    Args:
        walk: the walk through the blend, with resolver and files.
        discovery: what it found.
        profile: the version of upstream.
        ground: files.
        facts: what is known of the run.
        launcher: the script that starts it.
        knowledge: what is known of contents.
        unchecked: what rules could not judge.
        rule: the one at hand.
        memory: what several rules share.
    """

    walk: Walk
    discovery: Discovery
    profile: Profile
    ground: Ground
    facts: Facts
    launcher: Launcher | None = None
    knowledge: Knowledge | None = None
    unchecked: list[Unchecked] = field(default_factory=list)
    rule: str = ""
    memory: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def atlas(self) -> Atlas:
        """Lines and columns."""
        return Atlas(self.walk.files.text)

    def unknown(self, what: str, needs: str) -> None:
        """Say that the rule at hand cannot judge something."""
        item = Unchecked(self.rule, what, needs)
        if item not in self.unchecked and len(self.unchecked) < _MOST_UNCHECKED:
            self.unchecked.append(item)

    @cached_property
    def root(self) -> Scope | None:
        """The posted file, when it is a config."""
        node = self.walk.posted.root
        return Scope(self, Spot((), Place(self.walk.posted)), node) if isinstance(node, MapNode) else None

    @cached_property
    def is_config(self) -> bool:
        """Whether the posted file has sections of a training config."""
        return any(section.role != "blend" for section in self.sections)

    @cached_property
    def sections(self) -> list[Section]:
        """Every mapping that a dataloader is made from, in order."""
        found: list[Section] = []
        if self.root is not None:
            self._search(self.root, 0, found)
            if not found:
                found.append(Section(self, self.root.spot, self.root.node, "blend"))
        return found

    def _search(self, scope: Scope, depth: int, found: list[Section]) -> None:
        for key in scope.node:
            if not isinstance(key, str) or len(found) > _MOST_SECTIONS or key == "input_cfg":
                continue
            inner = scope.inner(key)
            if inner is None:
                continue
            if key.endswith("_ds"):
                found += self._parts(inner, "train" if key.startswith("train") else "eval")
            elif depth < _SECTION_DEPTH and len(inner.spot.pointer) <= _SECTION_DEPTH:
                self._search(inner, depth + 1, found)

    def _parts(self, scope: Scope, role: str) -> Iterator[Section]:
        """The loaders of one section: itself, its named sets, or the loaders of ``multi_config``."""
        children = [(key, scope.inner(key)) for key in scope.node if isinstance(key, str)]
        inner = {key: child for key, child in children if child is not None}
        if scope.get("multi_config").value is True:
            for key, child in inner.items():
                if _holds_data(child.node) and key != "sampler_weights":
                    yield Section(self, child.spot, child.node, role, scope, multi=True)
            return
        sets = inner.get("datasets")
        if sets is not None and role == "eval":
            for key in sets.node:
                child_set = sets.inner(key) if isinstance(key, str) else None
                if child_set is not None:
                    yield Section(self, child_set.spot, child_set.node, role, scope)
            return
        dataset = inner.get("dataset")
        if dataset is not None and not _holds_data(scope.node) and _holds_data(dataset.node):
            yield Section(self, dataset.spot, dataset.node, role, scope)
            return
        yield Section(self, scope.spot, scope.node, role)

    @property
    def training(self) -> list[Section]:
        """Sections that are trained on and name data."""
        return [section for section in self.sections if section.role == "train"]

    @property
    def evaluation(self) -> list[Section]:
        """Sections of validation and test."""
        return [section for section in self.sections if section.role == "eval"]

    @cached_property
    def entries(self) -> list[Entry]:
        """Every leaf, in order."""
        sections = {section.spot.pointer: section for section in self.sections}
        sources = {leaf.pointer: leaf.sources for dataset in self.discovery.datasets for leaf in dataset.leaves}
        made = []
        of_list: dict[Pointer, Section | None] = {}
        for leaf in self.walk.leaves:
            pointer = leaf.pointer
            # The items of one list are in one section; only a section with classic keys is a leaf itself.
            section = sections.get(pointer)
            if section is None:
                above_it = pointer[:-1]
                if above_it not in of_list:
                    of_list[above_it] = next(
                        (sections[pointer[:n]] for n in range(len(above_it), -1, -1) if pointer[:n] in sections), None
                    )
                section = of_list[above_it]
            start = len(section.spot.pointer) if section is not None else 0
            above = tuple(self._above(pointer, start))
            node = leaf.node if leaf.node is not None else MapNode(leaf.line)
            understood = leaf.spec is not None
            made.append(
                Entry(
                    self, leaf.spot, node, leaf.type, section, above, sources.get(pointer, ()), understood,
                    bool(getattr(leaf, "classic", False)),
                )
            )  # fmt: skip
        return made

    @cached_property
    def entries_of(self) -> dict[int, list[Entry]]:
        """The leaves of each section, by its identity."""
        found: dict[int, list[Entry]] = {}
        for entry in self.entries:
            found.setdefault(id(entry.section), []).append(entry)
        return found

    @cached_property
    def first_leaf(self) -> dict[Pointer, Entry]:
        """The first leaf of each item of a list of entries."""
        found: dict[Pointer, Entry] = {}
        for entry in self.entries:
            pointer = entry.spot.pointer
            for length in range(1, len(pointer) + 1):
                if isinstance(pointer[length - 1], int):
                    found.setdefault(pointer[:length], entry)
        return found

    def _above(self, pointer: Pointer, start: int) -> Iterator[Scope]:
        """The groups between a leaf and its section, the nearest first."""
        for length in range(len(pointer) - 1, start, -1):
            if isinstance(pointer[length - 1], int):
                scope = self._scope_at(pointer[:length])
                if scope is not None:
                    yield scope

    def _scope_at(self, pointer: Pointer) -> Scope | None:
        if pointer not in self._scopes:
            scope = None
            try:
                place = self.place(pointer)
                node = locate(place)
                if isinstance(node, MapNode):
                    scope = Scope(self, Spot(pointer, place), node)
            except (KeyError, IndexError, TypeError):
                scope = None
            self._scopes[pointer] = scope
        return self._scopes[pointer]

    @cached_property
    def _scopes(self) -> dict[Pointer, Scope | None]:
        return {}

    @cached_property
    def _places(self) -> dict[Pointer, Place]:
        return {(): Place(self.walk.posted)}

    def place(self, pointer: Pointer) -> Place:
        """Where the container at a pointer is written."""
        known = self._places.get(pointer)
        if known is None:
            known = self.walk.grafts.get(pointer) or self.place(pointer[:-1]).child(pointer[-1])
            self._places[pointer] = known
        return known

    # Lists of entries

    @cached_property
    def lists(self) -> list[tuple[Pointer, list[Pointer]]]:
        """Every list of entries, with the pointers of its items, in order."""
        found: dict[Pointer, dict[Pointer, None]] = {}
        for leaf in self.walk.leaves:
            pointer = leaf.pointer
            for length in range(len(pointer), 0, -1):
                if isinstance(pointer[length - 1], int):
                    found.setdefault(pointer[: length - 1], {})[pointer[:length]] = None
        return sorted(((key, list(items)) for key, items in found.items()), key=lambda item: len(item[0]))

    def item(self, pointer: Pointer) -> Scope | None:
        """The mapping of one item of a list of entries."""
        leaf = self._leaf_at.get(pointer)
        return leaf if leaf is not None else self._scope_at(pointer)

    @cached_property
    def _leaf_at(self) -> dict[Pointer, Entry]:
        return {entry.spot.pointer: entry for entry in self.entries}

    def section_of(self, pointer: Pointer) -> Section | None:
        """The section that something stands in."""
        fit = [section for section in self.sections if pointer[: len(section.spot.pointer)] == section.spot.pointer]
        return max(fit, key=lambda section: len(section.spot.pointer), default=None)

    # Paths

    def specs(self, entry: Entry) -> list[PathSpec]:
        """The paths of an entry as they are written."""
        if entry not in self._specs:
            self._specs[entry] = list(_specs(self, entry))
        return self._specs[entry]

    @cached_property
    def _specs(self) -> dict[Entry, list[PathSpec]]:
        return {}

    # The disk

    def address(self, path: str) -> str | None:
        """Where a path lies on this machine; None for what does not."""
        if path not in self._addresses:
            try:
                self._addresses[path] = self.walk.world.address(path)
            except BlendexError:
                self._addresses[path] = None
        return self._addresses[path]

    @cached_property
    def _addresses(self) -> dict[str, str | None]:
        return {}

    def index_of(self, path: str, root: str | None) -> str | None:
        """Where the index of a path lies under a root; None where upstream's rule makes none."""
        key = (path, root)
        if key not in self._index_paths:
            try:
                self._index_paths[key] = index_path(path, root)
            except ValueError:
                self._index_paths[key] = None
        return self._index_paths[key]

    @cached_property
    def _index_paths(self) -> dict[tuple[str, str | None], str | None]:
        return {}

    def stats(self, paths: list[str]) -> dict[str, Stat | BlendexError | None]:
        """The stat of each path, what hinders it, or None where it has no address here. Asked for once."""
        missing = [path for path in dict.fromkeys(paths) if path not in self._stats]
        addresses = [(path, self.address(path)) for path in missing]
        self._stats |= {path: None for path, address in addresses if address is None}
        local = [(path, address) for path, address in addresses if address is not None]
        answers = self.ground.stat_many([address for _, address in local])
        for (path, _), answer in zip(local, answers, strict=True):
            self._stats[path] = answer
        return {path: self._stats[path] for path in paths}

    @cached_property
    def _stats(self) -> dict[str, Stat | BlendexError | None]:
        return {}

    # The run

    def variable(self, name: str) -> tuple[str | None, bool]:
        """A variable of the training's environment, and whether all of that is known."""
        if self.launcher is not None and name in self.launcher.environment:
            return self.launcher.environment[name].value, True
        if self.facts.environment is not None:
            return self.facts.environment.get(name), True
        return None, False

    @cached_property
    def remote(self) -> bool:
        """Whether any source lies in an object store."""
        return any("://" in source.path for entry in self.entries for source in entry.sources)

    @property
    def any_sources(self) -> bool:
        """Whether anything is to be read at all."""
        return any(entry.sources for entry in self.entries)


def _holds_data(node: MapNode) -> bool:
    return any(node.get(key) is not None for key in DATA_KEYS)


def _specs(context: Context, entry: Entry) -> Iterator[PathSpec]:
    for key in kinds.reads(entry.type):
        if not entry.has(key):
            continue
        form = kinds.PATH_KEYS[key]
        yield from _under(context, entry.spot, key, key, entry.node[key], form)


def _under(context: Context, spot: Spot, key: str, step: str | int, raw: Any, form: str) -> Iterator[PathSpec]:
    resolve = context.walk.resolver.resolve
    try:
        value = resolve(raw, spot.place, step)
    except BlendexError:
        return
    inside = Spot((*spot.pointer, step), value.place) if value.place is not None else spot
    if isinstance(value.value, str):
        yield PathSpec(key, value.value, spot, step, False, False, 0, _form(form, value.value))
    elif isinstance(value.value, SeqNode):
        yield from _items(context, inside, key, value.value, form, 0)
    elif isinstance(value.value, MapNode) and form == "shar":
        for name, inner in value.value.items():
            yield from _under(context, inside, key, name, inner, "field")


def _items(context: Context, spot: Spot, key: str, items: SeqNode, form: str, depth: int) -> Iterator[PathSpec]:
    if depth > 8:
        return
    resolve = context.walk.resolver.resolve
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
                yield from _items(context, inner, key, value.value, form, depth + 1)
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
