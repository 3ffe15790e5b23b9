"""What a field means in one place: mappings of a config, and who hands what down to whom."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from blendex.blend.entries import Spot
from blendex.blend.interpolate import Resolver, interpolated
from blendex.blend.load import MapNode
from blendex.blend.model import Packing, Pointer, Source
from blendex.errors import BlendexError
from blendex.lint import kinds
from blendex.lint.model import Edit

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


def once(settings: Iterable[Setting | None]) -> Iterator[Setting]:
    """Each place that says something, or should, the first time that it comes: what many inherit is told once."""
    seen: set[Pointer] = set()
    for setting in settings:
        if setting is not None and setting.pointer not in seen:
            seen.add(setting.pointer)
            yield setting


def dotted(pointer: Pointer) -> str:
    """A pointer as people write it."""
    made = ""
    for step in pointer:
        made += f"[{step}]" if isinstance(step, int) else f".{step}" if made else str(step)
    return made


class Scope:
    """A mapping that rules ask for fields.

    Args:
        resolver: of the config's interpolations.
        spot: where the mapping stands.
        node: the mapping.
    """

    def __init__(self, resolver: Resolver, spot: Spot, node: MapNode) -> None:
        self.resolver = resolver
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
            value = self.resolver.resolve(raw, self.spot.place, key).value
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
            resolved = self.resolver.resolve(self.node.get(key), self.spot.place, key)
        except BlendexError:
            return None
        if not isinstance(resolved.value, MapNode) or resolved.place is None:
            return None
        return Scope(self.resolver, Spot((*self.spot.pointer, key), resolved.place), resolved.value)


class Section(Scope):
    """A mapping that one dataloader is made from.

    Args:
        role: ``train``, ``eval``, or ``blend`` for a blend without a training config.
        outer: the section that this one is a named part of.
        multi: it is one loader of several (``multi_config``).

    Attributes:
        entries: the leaves that it reads.
    """

    def __init__(self, scope: Scope, role: str, outer: Scope | None = None, multi: bool = False) -> None:
        super().__init__(scope.resolver, scope.spot, scope.node)
        self.role = role
        self.outer = outer
        self.multi = multi
        self.entries: list[Entry] = []
        self._known: dict[str, Setting] = {}

    def get(self, key: str, default: Any = None) -> Setting:
        """What ``key`` means for this loader, after what it shares with its siblings."""
        found = self._known.get(key)
        if found is None or default is not None:
            found = self._known[key] = self._find(key, default)
        return found

    def _find(self, key: str, default: Any) -> Setting:
        if self.outer is None:
            return super().get(key, default)
        if self.multi:
            return self.outer.get(key, default) if key in SHARED else super().get(key, default)
        return self.own(key) or self.outer.get(key, default)


class Around:
    """What is around the items of one list: they all inherit the same.

    Args:
        section: that reads them.
        above: the groups between the two, the nearest first.
    """

    def __init__(self, section: Section | None, above: tuple[Scope, ...]) -> None:
        self.section = section
        self.above = above
        self._known: dict[str, Setting | None] = {}

    def get(self, key: str) -> Setting | None:
        """What ``key``, one of those that are handed down, means for an item that does not say it; None without one."""
        if key not in self._known:
            inherited = next((own for scope in self.above if (own := scope.own(key)) is not None), None)
            if inherited is None and self.section is not None:
                inherited = self.section.get(key)
            self._known[key] = inherited
        return self._known[key]


class Entry(Scope):
    """One leaf of a blend, with what the groups and the section around it hand down.

    Args:
        type_name: as it is spelt.
        around: what is around it.
        sources: what it names, as far as it is understood.
        packing: what of it a pack would hold.
        classic: it is a section itself, by keys of its own.
    """

    def __init__(
        self,
        scope: Scope,
        type_name: str,
        around: Around,
        sources: tuple[Source, ...],
        packing: Packing,
        classic: bool,
    ) -> None:
        super().__init__(scope.resolver, scope.spot, scope.node)
        self.type = type_name
        self.around = around
        self.section = around.section
        self.above = around.above
        self.sources = sources
        self.packing = packing
        self.classic = classic

    def get(self, key: str, default: Any = None) -> Setting:
        """What ``key`` means for this entry."""
        found = self.own(key) if key in self.node else None
        if found is not None and not self.classic:
            return found
        if key in PROPAGATED:
            inherited = self.around.get(key)
            if inherited is not None:
                return inherited
        elif self.section is not None and self.classic:
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
