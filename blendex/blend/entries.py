"""What the walk meets: entries, where they stand, and what can be wrong with one of them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from blendex.blend.interpolate import Place, Resolver
from blendex.blend.load import MapNode
from blendex.blend.model import Pointer
from blendex.blend.types import TYPES, TypeSpec, nearest_type
from blendex.errors import BlendexError, Code

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_NAME_LENGTH = 80


@dataclass(frozen=True, slots=True)
class Spot:
    """Where something stands: in the tree with nested files inlined, and in the file that declares it."""

    pointer: Pointer
    place: Place

    @property
    def file(self) -> str:
        """The YAML that declares it."""
        return self.place.document.name

    def child(self, key: str | int) -> Spot:
        """What stands under ``key``, when it is written there."""
        return Spot((*self.pointer, key), self.place.child(key))


@dataclass(slots=True)
class Entry:
    """One leaf on the way. ``spec`` is None when the entry could not be understood.

    ``inherited`` says of keys that the section around the entry gives where they are written.
    """

    spot: Spot
    node: MapNode | None
    type: str
    spec: TypeSpec | None
    line: int
    dataset: int
    classic: bool = False
    inherited: dict[Any, Spot] = field(default_factory=dict)

    def spot_of(self, key: Any) -> Spot:
        """Where the mapping that gives ``key`` stands."""
        return self.inherited.get(key, self.spot)

    @property
    def pointer(self) -> Pointer:
        """Where it stands."""
        return self.spot.pointer

    @property
    def place(self) -> Place:
        """Where its mapping is written."""
        return self.spot.place

    @property
    def file(self) -> str:
        """The YAML that declares it."""
        return self.place.document.name


@dataclass(frozen=True, slots=True)
class Head:
    """What a dataset is before its leaves are known."""

    position: int
    name: str
    pointer: Pointer
    type: str
    file: str
    line: int


@lru_cache(maxsize=256)
def slug(text: str) -> str:
    """``text`` as a part of a file name; may be empty."""
    return _UNSAFE.sub("-", text).strip("-.")[:_NAME_LENGTH]


def weight_of(resolver: Resolver, node: MapNode, place: Place) -> float | None:
    """The weight of an entry, when it is a number that training takes."""
    try:
        value = resolver.value(node.get("weight"), place, "weight")
    except BlendexError:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def given_name(node: MapNode) -> str | None:
    """The name an entry gives itself, made safe for file names."""
    tags = node.get("tags")
    corpus = tags.get("corpus") if isinstance(tags, MapNode) else None
    for value in (node.get("name"), node.get("corpus"), corpus):
        if isinstance(value, str) and "${" not in value:
            made = slug(value)
            if made:
                return made
    return None


def misspelt(type_name: str, wrong: str, right: str) -> BlendexError:
    """A key that is a slip for another one."""
    return BlendexError(
        Code.UNKNOWN_KEY,
        f"{type_name} does not read {wrong[:80]}; the key is {right}.",
        next_step=f"Rename {wrong[:80]} to {right}.",
    )


def no_mapping(item: Any) -> BlendexError:
    """An item of a list of entries that is none."""
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


def unknown_type(name: Any) -> BlendexError:
    """Why an entry of this type cannot be read, and what its author may have meant."""
    near = nearest_type(name) if isinstance(name, str) else None
    return BlendexError(
        Code.UNKNOWN_TYPE,
        f"The type {name[:80]} is unknown." if isinstance(name, str) else "The type is no text.",
        next_step=f"Did you mean {near}?" if near else f"Known are: {', '.join(TYPES)}.",
    )
