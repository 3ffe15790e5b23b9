"""What discovery finds in a blend."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from blendex.blend.world import has_scheme
from blendex.errors import BlendexError, Code

Pointer = tuple[str | int, ...]
"""Where an entry stands in the tree, with every nested file thought inlined at its ``input_cfg``."""


@dataclass(frozen=True, slots=True, order=True)
class Source:
    """One thing that gets an index: its kind and its path."""

    kind: str
    path: str


@dataclass(frozen=True, slots=True)
class Derivation:
    """How a source is made from other ones of its entry.

    Args:
        source: what is derived.
        inputs: what it is derived from, in the order that its bytes depend on.
        parameters: JSON-able; everything else that decides its bytes.
    """

    source: Source
    inputs: tuple[Source, ...]
    parameters: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Gathered:
    """One collection of an entry.

    Args:
        role: what training looks for: manifest, tar, tar_collection, paths, wds_tar.
        kind: of its sources.
        spec: the configured value.
        sources: in order, as often as they are named.
    """

    role: str
    kind: str
    spec: Any
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True)
class Packing:
    """What of one leaf goes into a pack.

    Args:
        collections: in upstream's order.
        native: whether manifest and tars are matched row by row, which takes a route.
        refusal: why it cannot be packed; then there are no collections.
        paths: whether the tars go into it by their paths alone, and are not read.
    """

    collections: tuple[Gathered, ...] = ()
    native: bool = False
    refusal: BlendexError | None = None
    paths: bool = False

    @property
    def remote(self) -> Source | None:
        """A source of rows that is not on a filesystem."""
        rows = (source for item in self.collections if item.kind == "jsonl" for source in item.sources)
        return next((source for source in rows if has_scheme(source.path)), None)


@dataclass(frozen=True)
class Problem:
    """Something wrong with one entry; ``pointer`` is that of the leaf or entry it belongs to."""

    code: Code
    message: str
    file: str | None = None
    line: int | None = None
    pointer: Pointer = ()
    next_step: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The JSON form: the keys that have a value, and the pointer."""
        fields = {**self.error().as_dict(), "pointer": list(self.pointer)}
        return {key: value for key, value in fields.items() if value is not None}

    def error(self) -> BlendexError:
        """The same as an exception."""
        return BlendexError(self.code, self.message, file=self.file, line=self.line, next_step=self.next_step)


@dataclass(frozen=True)
class Leaf:
    """One entry that names data, or that stands for data which could not be reached.

    Args:
        pointer: where it stands.
        type: its ``type`` as written, or the type that classic keys amount to; empty when there is none.
        file: the YAML that declares it.
        line: 1-based line in ``file``.
        weight: its own weight, when it is a number.
        share: of all that training draws from its list and those around it; None where training refuses a list.
        sources: what gets an index, in upstream's order, each once.
        needs_index: False for types whose readers use no index.
        manifests: those of the sources that hold rows about audio, each time they are named.
        tars: the tars beside ``manifests``, each time they are named.
        cuts: those of the sources that hold cuts.
        derived: those of the sources that are made from others.
        packing: what of it goes into a pack.
    """

    pointer: Pointer
    type: str
    file: str
    line: int
    weight: float | None
    sources: tuple[Source, ...]
    needs_index: bool
    manifests: tuple[Source, ...] = ()
    tars: tuple[Source, ...] = ()
    cuts: tuple[Source, ...] = ()
    derived: tuple[Derivation, ...] = ()
    packing: Packing = field(default_factory=Packing)
    share: float | None = None


@dataclass(frozen=True)
class Dataset:
    """One outer entry of an outermost ``input_cfg`` list, or one section with classic keys."""

    position: int
    name: str
    pointer: Pointer
    type: str
    file: str
    line: int
    leaves: tuple[Leaf, ...]
    weight: float | None = None
    share: float | None = None


@dataclass(frozen=True)
class Discovery:
    """All that was found. ``entries`` counts the leaves: indexed, without need of an index, with problems."""

    datasets: tuple[Dataset, ...]
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]
    entries: int
