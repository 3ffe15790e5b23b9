"""What of the datasets of a build goes into their packs, and what their mirror says of it.

A pack is known by a digest of its collections, of what their sources hold, and of the recipe of packs: the same
dataset in another build has the same pack, whoever asks.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import orjson

from blendex.blend.entries import slug
from blendex.catalog.packs import KnownPack
from blendex.errors import BlendexError, Code
from blendex.formats.kinds import recipe
from blendex.formats.pack import collection_key

RECIPE = "pack/1"
"""Raise it when the same input would make other bytes."""
LOOSE = 0
"""In place of the pack that stands for a sidecar: the source has a sidecar of its own."""


def numbers_of(runs: Iterable[Iterable[int]]) -> Iterator[int]:
    """The row numbers of [start, length] runs."""
    for start, length in runs:
        yield from range(start, start + length)


def learnt_rows(datasets: list[dict[str, Any]], wanted: Iterable[int]) -> set[int]:
    """The rows whose records must have been decoded, or whose names must be known, before there can be a pack."""
    return {
        number
        for position in wanted
        for leaf in datasets[position]["leaves"]
        for _, kind, _, runs in leaf["pack"].get("collections", ())
        if kind == "jsonl" or (leaf["pack"]["native"] and not leaf["pack"].get("paths"))
        for number in numbers_of(runs)
    }


@dataclass(slots=True)
class Asked:
    """One pack that a build wants.

    Attributes:
        position: of its dataset.
        name: of its dataset.
        pointer: of its dataset.
        collections: role, kind, configured value, row numbers each.
        natives: pairs of places in ``collections``: manifests and their tars.
        refusal: why it cannot be had after all.
    """

    position: int
    name: str
    pointer: list[Any]
    collections: list[tuple[str, str, Any, list[int]]] = field(default_factory=list)
    natives: list[tuple[int, int]] = field(default_factory=list)
    refusal: dict[str, Any] | None = None

    def rows(self) -> dict[int, None]:
        """All rows in it, each once, in the order of their first use."""
        return dict.fromkeys(number for *_, numbers in self.collections for number in numbers)


def asked(plan: dict[str, Any], gone: set[tuple[Any, ...]]) -> Iterator[Asked]:
    """The packs that a judged build wants.

    Args:
        plan: with its choice.
        gone: pointers of leaves that are left out.
    """
    for position in plan.get("packing", {"wanted": ()})["wanted"]:
        dataset = plan["datasets"][position]
        item = Asked(position, dataset["name"], dataset["pointer"])
        places: dict[bytes, int] = {}
        for leaf in dataset["leaves"]:
            if leaf["needs_index"] and tuple(leaf["pointer"]) not in gone:
                _gather(item, places, leaf)
        if item.collections:
            yield item


def _gather(item: Asked, places: dict[bytes, int], leaf: dict[str, Any]) -> None:
    mine = []
    for role, kind, spec, runs in leaf["pack"].get("collections", ()):
        numbers = list(numbers_of(runs))
        if not numbers:
            continue
        place = places.setdefault(collection_key(role, kind, spec), len(item.collections))
        if place == len(item.collections):
            item.collections.append((role, kind, spec, numbers))
        elif item.collections[place][3] != numbers:
            error = BlendexError(
                Code.PACK_REFUSED,
                f"two entries of this dataset name different sources by the same {role}.",
                file=leaf["file"],
                line=leaf["line"],
                next_step="Spell one of them differently, or put them into datasets of their own.",
            )
            item.refusal = {"pointer": leaf["pointer"]} | error.as_dict()
        mine.append(place)
    if leaf["pack"].get("native") and len(mine) == 2 and (mine[0], mine[1]) not in item.natives:
        item.natives.append((mine[0], mine[1]))


def digest(item: Asked, rows: list[tuple[str, str]], content: Callable[[int], tuple[str, int]], compat: str) -> str:
    """What the pack is known by.

    Args:
        item: the pack.
        rows: (kind, path) of each row.
        content: content hash and size of a row.
        compat: of the build.
    """
    made = hashlib.sha256(RECIPE.encode())
    for role, kind, spec, numbers in item.collections:
        made.update(collection_key(role, kind, spec))
        made.update(len(numbers).to_bytes(8, "little"))
        name = recipe(rows[numbers[0]][0], compat)
        for number in numbers:
            made.update(orjson.dumps([rows[number][1], name, *content(number)]))
    made.update(orjson.dumps(item.natives))
    return made.hexdigest()


def file_name(item: Asked, rows: list[tuple[str, str]], pack: KnownPack, taken: Mapping[str, str]) -> str:
    """The name of a pack in its mirror: by what it holds, never by what a blend calls it."""
    assert pack.layout_hash is not None
    path = PurePosixPath(rows[next(iter(item.rows()))][1])
    start = slug(path.parent.name) or slug(path.stem) or "pack"
    for length in (8, 16, 64):
        name = f"{start}-{pack.layout_hash[:length]}.idxpack"
        if taken.get(name, pack.layout_hash) == pack.layout_hash:
            break
    return name


def environment(pack: KnownPack) -> dict[str, dict[str, str]]:
    """What training must set to read a pack: one with paths of tars alone has no offsets to read by."""
    return {"environment": {"USE_AIS_GET_BATCH": "true"}} if pack.counts.get("paths") else {}


def no_places(count: int) -> array[int]:
    """For each row the place of the pack that stands for its sidecar: ``LOOSE``, so far."""
    return array("L", bytes(array("L").itemsize * count))


def keep_loose(
    datasets: list[dict[str, Any]], packed: Iterable[list[Any]], gone: set[tuple[Any, ...]], inside: array[int]
) -> list[int]:
    """A source that an unpacked dataset names as well keeps its sidecar: take it out of ``inside``.

    Args:
        datasets: as the plan describes them.
        packed: pointers of the datasets that have a pack.
        gone: pointers of the leaves that are left out.
        inside: for each row the place of its pack, or ``LOOSE``.

    Returns:
        The rows that were taken out.
    """
    pointers = {str(pointer) for pointer in packed}
    again: set[int] = set()
    for dataset in datasets:
        if str(dataset["pointer"]) in pointers:
            continue
        for leaf in dataset["leaves"]:
            if tuple(leaf["pointer"]) not in gone:
                again.update(number for number in numbers_of(leaf["sources"]) if inside[number] != LOOSE)
    for number in again:
        inside[number] = LOOSE
    return sorted(again)


def packed_only(layouts: Iterable[str], again: list[tuple[str, str]]) -> list[str]:
    """What a mirror's key says of the sources that have no loose sidecar.

    Layout hashes say which datasets have none. The same packs with the same sources may still come from a blend in
    which an unpacked dataset names some of them as well: these have one.

    Args:
        layouts: of the packs that stand for loose sidecars.
        again: (kind, path) of the sources in them that have a loose sidecar as well.
    """
    if not again:
        return list(layouts)
    return [*layouts, "loose:" + hashlib.sha256(orjson.dumps(sorted(again))).hexdigest()]
