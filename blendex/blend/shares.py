"""Shares: how much of what training draws comes from an entry.

Upstream mixes list by list: the weights of a list are normalised, raised before to the power of the temperature of
that level if the section sets one (``reweight_temperature``: a number for all levels, or one for each, the outermost
first); a list without weights is drawn from evenly. An entry's share is the product on its way down.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from blendex.blend.entries import weight_of
from blendex.blend.interpolate import Place, Resolver
from blendex.blend.load import MapNode, SeqNode
from blendex.blend.model import Pointer
from blendex.errors import BlendexError


@dataclass(frozen=True, slots=True)
class Sibling:
    """An entry of a list; one that could not be understood has no node."""

    pointer: Pointer
    node: MapNode | None
    place: Place


def normalised(weights: Sequence[float | None], temperature: float = 1.0) -> list[float | None]:
    """Weights of one list as shares of it; None for all where training would refuse the list."""
    if all(weight is None for weight in weights):
        return [1.0 / len(weights) for _ in weights]
    powers = []
    for weight in weights:
        if weight is None or (weight == 0 and temperature <= 0):
            return [None for _ in weights]
        try:
            powers.append(weight**temperature)
        except OverflowError:
            return [None for _ in weights]
    whole = math.fsum(powers)
    return [power / whole if 0 < whole < math.inf else None for power in powers]


class Shares:
    """Shares of entries within their lists, as the walk meets them."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver
        self._within: dict[Pointer, float | None] = {}
        self._above: dict[Pointer, float | None] = {}
        self._weights: dict[Pointer, float] = {}
        self._temperature: Any = None
        self._level = 0

    @contextmanager
    def section(self, node: MapNode, place: Place) -> Iterator[None]:
        """While the ``input_cfg`` of a section is walked: its temperature counts."""
        before = self._temperature, self._level
        self._temperature, self._level = self._read(node, place), 0
        try:
            yield
        finally:
            self._temperature, self._level = before

    @contextmanager
    def within(self, siblings: list[Sibling]) -> Iterator[None]:
        """While a list is walked; ``siblings`` are filled meanwhile."""
        self._level += 1
        try:
            yield
        finally:
            self._level -= 1
            weights = [self._weight(item) for item in siblings]
            temperature = self._of_level(self._level)
            shares = [None for _ in weights] if temperature is None else normalised(weights, temperature)
            for item, weight, share in zip(siblings, weights, shares, strict=True):
                self._within[item.pointer] = share
                if weight is not None:
                    self._weights[item.pointer] = weight

    def of(self, pointer: Pointer) -> float | None:
        """The share of an entry, once the walk has ended; None where training would refuse a list on its way."""
        if not pointer:
            return 1.0
        above = pointer[:-1]
        if above not in self._above:  # one for all entries of a list
            self._above[above] = self.of(above)
        share, part = self._above[above], self._within.get(pointer, 1.0)
        return None if share is None or part is None else share * part

    def weight(self, pointer: Pointer) -> float | None:
        """The weight that an entry has in its list, when that is a number."""
        return self._weights.get(pointer)

    def _weight(self, item: Sibling) -> float | None:
        if item.node is None or "weight" not in item.node:
            return None
        return weight_of(self._resolver, item.node, item.place)

    def _read(self, node: MapNode, place: Place) -> Any:
        """The temperature of a section: None without one, else what is written there."""
        if node.get("reweight_temperature") is None:
            return None
        try:
            value = self._resolver.resolve(node.get("reweight_temperature"), place, "reweight_temperature").value
        except BlendexError:
            return "unknown"
        return value

    def _of_level(self, level: int) -> float | None:
        """The temperature of one level, the outermost first; None where it is no number."""
        value = self._temperature
        if value is None:
            return 1.0
        if isinstance(value, SeqNode):
            value = value[level] if level < len(value) else None
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return None
        return float(value)
