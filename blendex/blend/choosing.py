"""Which datasets of a blend are packed, and why others that were asked for are not."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from blendex.blend.model import Dataset, Gathered, Leaf, Packing, Source
from blendex.blend.types import TAR_PATH
from blendex.blend.world import has_scheme
from blendex.errors import BlendexError, Code

EVERY = ("auto", "all", "none")


@dataclass(slots=True)
class Choice:
    """What of a blend shall be packed.

    Attributes:
        wanted: positions of datasets.
        told: for datasets that were asked for and cannot be packed: name and reasons, one per leaf.
        problem: what is wrong with the request itself.
    """

    wanted: list[int] = field(default_factory=list)
    told: list[dict[str, Any]] = field(default_factory=list)
    problem: BlendexError | None = None

    def as_dict(self) -> dict[str, Any]:
        """As it is stored with the plan."""
        return {"wanted": self.wanted, "told": self.told}


def choose(datasets: Sequence[Dataset], asked: str, threshold: int, *, paths: bool = False) -> Choice:
    """Decide by the blend alone.

    Args:
        datasets: of the blend.
        asked: auto, all, none, or names of datasets with commas between.
        threshold: fewest sources of a dataset that is packed by ``auto``.
        paths: whether tars shall be packed by their paths alone.
    """
    choice = Choice()
    names = set(asked.split(","))
    if not names & set(EVERY):
        unknown = sorted(names - {dataset.name for dataset in datasets})
        if unknown:
            choice.problem = BlendexError(
                Code.BAD_REQUEST,
                f"packs={unknown[0]} names no dataset of this blend.",
                next_step=f"They are called {', '.join(dataset.name for dataset in datasets)[:2000]}.",
            )
            return choice
    for position, dataset in enumerate(datasets):
        if asked == "none" or (asked not in EVERY and dataset.name not in names):
            continue
        leaves = [leaf for leaf in dataset.leaves if leaf.needs_index]
        if asked == "auto" and sum(len(leaf.sources) for leaf in leaves) < threshold:
            continue
        reasons = [_told(leaf, error) for leaf in leaves if (error := _against(leaf, paths=paths)) is not None]
        if reasons:
            choice.told.append({"dataset": dataset.name, "reasons": reasons})
        elif any(leaf.packing.collections for leaf in leaves):
            choice.wanted.append(position)
    return choice


def _told(leaf: Leaf, error: BlendexError) -> dict[str, Any]:
    place = {"blend_file": leaf.file, "blend_line": leaf.line, "pointer": list(leaf.pointer)}
    return place | error.as_dict()


def _against(leaf: Leaf, *, paths: bool) -> BlendexError | None:
    """Why training could not read a leaf from a pack."""
    packing = leaf.packing
    if packing.refusal is not None:
        return packing.refusal
    if packing.remote is not None:
        return BlendexError(
            Code.PACK_REFUSED,
            "training reads no packed rows of manifests that lie in a store.",
            file=packing.remote.path,
            next_step="Copy the manifests to a filesystem; the tars may stay where they are.",
        )
    return _against_paths(packing) if paths else None


def _against_paths(packing: Packing) -> BlendexError | None:
    """Why the tars of a leaf cannot be packed by their paths alone."""
    for item in packing.collections:
        if item.role == "tar_collection":
            return BlendexError(
                Code.PACK_REFUSED,
                "the route of a collection needs the offsets of its tars; their paths alone (tars=paths) do not do.",
                file=item.sources[0].path if item.sources else None,
                next_step="Build it with tars=offsets.",
            )
        local = next((source for source in item.sources if item.role == "tar" and not has_scheme(source.path)), None)
        if local is not None:
            return BlendexError(
                Code.PACK_REFUSED,
                "tars that are packed by their paths alone (tars=paths) are fetched by AIStore's GetBatch, which "
                "fetches nothing from a filesystem.",
                file=local.path,
                next_step="Build it with tars=offsets, or name the tars by their URLs in AIStore.",
            )
    return None


def by_paths(datasets: Sequence[Dataset], wanted: Collection[int]) -> tuple[Dataset, ...]:
    """The datasets, with tars of those ``wanted`` that are not read: a pack holds their paths and sizes alone.

    Such tars are sources of a kind of their own, so one that another dataset reads by its offsets is read for it.
    """
    return tuple(
        replace(dataset, leaves=tuple(map(_by_paths, dataset.leaves))) if position in wanted else dataset
        for position, dataset in enumerate(datasets)
    )


def _by_paths(leaf: Leaf) -> Leaf:
    if not leaf.packing.native:
        return leaf
    manifests, tars = leaf.packing.collections
    known = {source: Source(TAR_PATH, source.path) for source in tars.sources}
    gathered: Gathered = replace(tars, sources=tuple(known[source] for source in tars.sources))
    # One manifest for several tars still says of each row which tar it means.
    routed = len(manifests.sources) == 1 and len(tars.sources) > 1
    return replace(
        leaf,
        sources=tuple(known.get(source, source) for source in leaf.sources),
        tars=(),
        packing=replace(leaf.packing, collections=(manifests, gathered), native=routed, paths=True),
    )
