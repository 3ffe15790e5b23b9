"""A config as rules see it: its sections with what each field means there, its entries, and the run around it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from blendex.blend.entries import Spot
from blendex.blend.interpolate import Place, locate
from blendex.blend.load import MapNode
from blendex.blend.model import Discovery, Packing, Pointer, Source
from blendex.blend.walk import Walk
from blendex.lint.facts import Facts
from blendex.lint.ground import Ground
from blendex.lint.launcher import Launcher
from blendex.lint.looks import Looks
from blendex.lint.lookups import Lookups
from blendex.lint.marks import Atlas
from blendex.lint.model import Unchecked
from blendex.lint.paths import PathSpec, ordinary, specs_of
from blendex.lint.profile import Profile
from blendex.lint.scopes import Around, Entry, Scope, Section, Setting
from blendex.lint.sections import sections

_MOST_UNCHECKED = 1000


@dataclass
class Context:
    """Everything that a rule may look at.

    Args:
        walk: the walk through the blend, with resolver and files.
        discovery: what it found.
        profile: the version of upstream.
        ground: what may be looked at.
        lookups: what was asked of it already.
        looks: what is in sources.
        atlas: lines and columns.
        facts: what is known of the run.
        launcher: the script that starts it.
        unchecked: what rules could not judge.
        rule: the one at hand.
        memory: what several rules share.

    Attributes:
        sections: every mapping that a dataloader is made from, in order.
        entries: every leaf, in order.
    """

    walk: Walk
    discovery: Discovery
    profile: Profile
    ground: Ground
    lookups: Lookups
    looks: Looks
    atlas: Atlas
    facts: Facts
    launcher: Launcher | None = None
    unchecked: list[Unchecked] = field(default_factory=list)
    rule: str = ""
    memory: dict[str, Any] = field(default_factory=dict)
    sections: list[Section] = field(init=False)
    entries: list[Entry] = field(init=False)

    def __post_init__(self) -> None:
        self.sections = sections(self.root) if self.root is not None else []
        self.entries = list(self._entries())

    def unknown(self, what: str, needs: str) -> None:
        """Say that the rule at hand cannot judge something."""
        item = Unchecked(self.rule, what, needs)
        if len(self.unchecked) < _MOST_UNCHECKED and item not in self.unchecked:
            self.unchecked.append(item)

    @cached_property
    def root(self) -> Scope | None:
        """The posted file, when it is a config."""
        node = self.walk.posted.root
        return Scope(self.walk.resolver, Spot((), Place(self.walk.posted)), node) if isinstance(node, MapNode) else None

    @cached_property
    def is_config(self) -> bool:
        """Whether the posted file has sections of a training config."""
        return any(section.role != "blend" for section in self.sections)

    @property
    def training(self) -> list[Section]:
        """Sections that are trained on and name data."""
        return [section for section in self.sections if section.role == "train"]

    @property
    def evaluation(self) -> list[Section]:
        """Sections of validation and test."""
        return [section for section in self.sections if section.role == "eval"]

    def _entries(self) -> Iterator[Entry]:
        sections = {section.spot.pointer: section for section in self.sections}
        leaves = {leaf.pointer: leaf for dataset in self.discovery.datasets for leaf in dataset.leaves}
        of_list: dict[Pointer, Around] = {}
        for leaf in self.walk.leaves:
            pointer = leaf.pointer
            # The items of one list are in one section; only a section with classic keys is a leaf itself.
            section = sections.get(pointer)
            if section is not None:
                around = Around(section, ())
            else:
                above_it = pointer[:-1]
                if above_it not in of_list:
                    section = next(
                        (sections[pointer[:n]] for n in range(len(above_it), -1, -1) if pointer[:n] in sections), None
                    )
                    start = len(section.spot.pointer) if section is not None else 0
                    of_list[above_it] = Around(section, tuple(self._above(pointer, start)))
                around = of_list[above_it]
                section = around.section
            node = leaf.node if leaf.node is not None else MapNode(leaf.line)
            scope = Scope(self.walk.resolver, leaf.spot, node)
            found = leaves.get(pointer)
            sources, packing = (found.sources, found.packing) if found is not None else ((), Packing())
            entry = Entry(scope, leaf.type, around, sources, packing, leaf.classic)
            if section is not None:
                section.entries.append(entry)
            yield entry

    def settings(self, key: str) -> Iterator[tuple[Setting, Entry]]:
        """What a key that is handed down means for entries: of those that inherit it in one list only the first."""
        met: set[Around] = set()
        for entry in self.entries:
            inherits = entry.section is not None and not entry.classic and key not in entry.node
            if inherits and entry.around in met:
                continue
            if inherits:
                met.add(entry.around)
            yield entry.get(key), entry

    @cached_property
    def sources(self) -> dict[Source, None]:
        """Every source, in order."""
        return dict.fromkeys(source for entry in self.entries for source in entry.sources)

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
                    scope = Scope(self.walk.resolver, Spot(pointer, place), node)
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

    def specs(self, entry: Entry) -> list[PathSpec]:
        """The paths of an entry as they are written."""
        found = self._specs.get(entry)
        if found is None:
            found = self._specs[entry] = list(specs_of(entry))
        return found

    @cached_property
    def odd_paths(self) -> list[tuple[Entry, PathSpec]]:
        """Paths that rules about single ones may have something to say of: few, as a rule, of very many."""
        return [(entry, spec) for entry in self.entries for spec in self.specs(entry) if not ordinary(spec)]

    @cached_property
    def _specs(self) -> dict[Entry, list[PathSpec]]:
        return {}

    # The run

    def variable(self, name: str) -> tuple[str | None, bool]:
        """A variable of the training's environment, and whether all of that is known."""
        if self.launcher is not None and name in self.launcher.environment:
            return self.launcher.environment[name].value, True
        if self.facts.environment is not None:
            return self.facts.environment.get(name), True
        return None, False

    def is_true(self, name: str) -> bool:
        """Whether training takes a variable of its environment for true: this word and no other, in any case."""
        return (self.variable(name)[0] or "").lower() == "true"

    @cached_property
    def remote(self) -> bool:
        """Whether any source lies in an object store."""
        return any("://" in source.path for source in self.sources)

    @property
    def any_sources(self) -> bool:
        """Whether anything is to be read at all."""
        return any(entry.sources for entry in self.entries)
