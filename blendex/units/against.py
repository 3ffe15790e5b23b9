"""Against: hold a pack against the sources that a blend names, as training would look them up in it."""

from __future__ import annotations

import hashlib
import os
from typing import Any

from blendex.blend.choosing import by_paths
from blendex.blend.discover import Dataset, discover
from blendex.blend.load import Limits
from blendex.blend.world import World
from blendex.errors import BlendexError, Code
from blendex.formats.kinds import KINDS
from blendex.formats.pack import ARRAY, OFFSETS, PATHS, Collection, add_layout
from blendex.formats.packreader import PackReader
from blendex.formats.routes import route_collections
from blendex.storage.local import LocalStorage
from blendex.units.plan import FolderReader


def against(pack_file: str, blend: str, world: World) -> dict[str, Any]:
    """Which dataset of a blend a pack is the pack of.

    The layout hash is computed from the entries of each dataset and from the sources that they name on this machine,
    as far as they can be expanded here; for routes, with a number for each row of their manifests.

    Args:
        pack_file: the pack.
        blend: the ready blend, or any that names the same sources in the same spelling.
        world: what its relative paths and interpolations mean.

    Returns:
        dataset (its name, or None), faults: why it is the pack of none, by the dataset that comes nearest.

    Raises:
        BlendexError: nested_missing, pack_damaged, or what is wrong with the blend as a whole.
    """
    try:
        with open(blend, "rb") as file:
            text = file.read()
    except OSError as error:
        raise BlendexError(
            Code.NESTED_MISSING,
            f"the blend cannot be read ({error.strerror}).",
            file=blend,
            next_step="Check the path.",
        ) from error
    limits = Limits()
    reader = FolderReader(LocalStorage(["/"]), {}, limits.bytes)
    found = discover(text, os.path.abspath(blend), world, reader, limits)
    with PackReader(pack_file) as pack:
        nearest: tuple[int, list[str]] = (-1, ["No dataset of the blend can be packed."])
        # A pack with paths of tars alone (tars=paths) is held against the blend as it was built.
        alone = any(item.holds == PATHS for item in pack.collections.values())
        for dataset in by_paths(found.datasets, range(len(found.datasets))) if alone else found.datasets:
            collections = _collections(dataset)
            if not collections:
                continue
            faults, shared = _compare(pack, dataset.name, collections)
            if not faults:
                return {"dataset": dataset.name, "faults": []}
            nearest = max(nearest, (shared, faults), key=lambda item: item[0])
    return {"dataset": None, "faults": nearest[1]}


def _collections(dataset: Dataset) -> list[Collection]:
    """What the pack of a dataset holds, in its order: the sources of all entries, then the routes of each pair."""
    made: dict[bytes, Collection] = {}
    pairs = []
    for leaf in dataset.leaves:
        mine = []
        for item in leaf.packing.collections:
            if item.sources:
                paths = tuple(source.path for source in item.sources)
                holds = OFFSETS if KINDS[item.sources[0].kind].loose else PATHS
                collection = Collection(item.role, item.kind, item.spec, paths, holds)
                mine.append(made.setdefault(collection.key, collection))
        if leaf.packing.native and len(mine) == 2 and mine not in pairs:
            pairs.append(mine)
    routes = [
        route
        for manifests, tars in pairs
        for route in route_collections(
            manifests.spec, tars.spec, len(manifests.paths), len(tars.paths), ordinal=tars.holds == OFFSETS
        )
    ]
    return [*made.values(), *routes]


def _compare(pack: PackReader, name: str, wanted: list[Collection]) -> tuple[list[str], int]:
    """Why a pack is not the one of a dataset, and how many of its collections it has."""
    faults = []
    shared = 0
    for item in wanted:
        collection = pack.collections.get(item.key)
        if collection is None:
            faults.append(f"{name}: its {item.role} of kind {item.kind} is not in the pack, or is spelled otherwise.")
            continue
        shared += 1
        if item.holds == ARRAY:
            continue
        paths = [collection.path(shard) for shard in range(collection.shards)]
        for number, (seen, right) in enumerate(zip(paths, item.paths, strict=False)):
            if seen != right:
                faults.append(f"{name}: source {number} of its {item.role} is {right}, in the pack {seen}.")
                break
        else:
            if len(paths) != len(item.paths):
                faults.append(f"{name}: its {item.role} has {len(item.paths)} sources, in the pack {len(paths)}.")
    if not faults and (layout := _layout(pack, wanted)) != pack.layout_hash:
        faults.append(f"{name}: its sources have the layout hash {layout}, the pack {pack.layout_hash}.")
    return faults, shared


def _layout(pack: PackReader, wanted: list[Collection]) -> str:
    """The layout hash of a dataset; a route has a number for each row of its manifests, one shard after another."""
    digest = hashlib.sha256()
    for item in wanted:
        if item.holds == ARRAY:
            add_layout(digest, item.key, ARRAY, _rows(pack, wanted, item))
        else:
            add_layout(digest, item.key, item.holds, item.paths)
    return digest.hexdigest()


def _rows(pack: PackReader, wanted: list[Collection], route: Collection) -> list[int]:
    spec = route.spec["manifest"]
    manifest = next(item for item in wanted if (item.role, item.kind) == ("manifest", "jsonl") and item.spec == spec)
    collection = pack.collection(manifest.key)
    return [int(pack.table[collection.segment(shard)]["items"]) - 1 for shard in range(collection.shards)]
