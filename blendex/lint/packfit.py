"""Whether a pack holds what the config names, as training looks it up, and whether its sources are still those."""

from __future__ import annotations

from collections.abc import Iterator

from blendex.blend.model import Packing
from blendex.errors import BlendexError
from blendex.formats.pack import OFFSETS, PATHS, collection_key
from blendex.formats.packreader import PackCollection, PackReader, computed_layout
from blendex.formats.routes import route_collections
from blendex.lint.context import Context
from blendex.lint.kinds import shown
from blendex.lint.scopes import Entry
from blendex.storage.interface import Stat

Judged = tuple[Entry, str, str]
"""An entry, why its pack does not fit it, and why the pack is stale; empty where nothing is wrong."""


def judge(context: Context, users: dict[str, list[Entry]]) -> Iterator[Judged]:
    """Hold each pack against the entries that read it.

    Args:
        context: of the config.
        users: path of a pack → entries.
    """
    for path, entries in users.items():
        try:
            pack = context.lookups.pack(path)
            if pack is None:
                context.unknown(f"whether the pack {path[:200]} fits its entries", "a look at it")
                continue
            with pack:
                odd = computed_layout(pack) != pack.layout_hash
                found = [
                    (entry, "its layout hash is not that of its content", "") if odd else _held(context, pack, entry)
                    for entry in entries
                ]
        except OSError:
            context.unknown(f"whether the pack {path[:200]} fits its entries", "a file server that answers")
            continue
        except BlendexError as error:
            found = [(entry, error.message, "") for entry in entries]
        yield from found


def _held(context: Context, pack: PackReader, entry: Entry) -> Judged:
    why = _misfit(context, pack, entry.packing)
    return entry, why, "" if why else _stale(context, pack, entry.packing)


def by_batch(context: Context) -> bool:
    """Whether training fetches audio by batch, for all that is known."""
    return context.is_true("USE_AIS_GET_BATCH")


def _misfit(context: Context, pack: PackReader, packing: Packing) -> str:
    if packing.refusal is not None:
        return f"training cannot read this entry from one: {packing.refusal.message}"
    if not packing.collections:
        return "training reads no entry of this type from one"
    for item in packing.collections:
        held = pack.collections.get(collection_key(item.role, item.kind, item.spec))
        if held is None:
            return f"it has no {item.role} spelt as here ({shown(item.spec)})"
        why = _other_sources(held, [source.path for source in item.sources])
        if why:
            return f"of the {item.role} {why}"
        if held.holds == PATHS and not by_batch(context):
            return f"it holds the {item.role} without offsets, which takes USE_AIS_GET_BATCH=true"
    return _unrouted(context, pack, packing) if packing.native and len(packing.collections) == 2 else ""


def _other_sources(held: PackCollection, paths: list[str]) -> str:
    if held.shards != len(paths):
        return f"it holds {held.shards:,} sources, and the entry names {len(paths):,}"
    odd = next((number for number, path in enumerate(paths) if held.path(number) != path), None)
    return f"source {odd + 1:,} is {held.path(odd)[:200]}, and here {paths[odd][:200]}" if odd is not None else ""


def _unrouted(context: Context, pack: PackReader, packing: Packing) -> str:
    """A route that training needs and the pack lacks: from rows to tars always, to members in packs of version 3."""
    manifest, tar = packing.collections
    rows = len(pack.collections[collection_key(manifest.role, manifest.kind, manifest.spec)])
    for route in route_collections(manifest.spec, tar.spec, len(manifest.sources), len(tar.sources)):
        held = pack.collections.get(route.key)
        optional = route.role == "native_tar_route" and (pack.version < 3 or by_batch(context))
        if held is None and not optional:
            return f"it has no {route.role}, which says where the audio of a row is"
        if held is not None and len(held) != rows:
            return f"its {route.role} has {len(held):,} rows, and the manifests {rows:,}"
    return ""


def _stale(context: Context, pack: PackReader, packing: Packing) -> str:
    for item in packing.collections:
        held = pack.collections[collection_key(item.role, item.kind, item.spec)]
        if held.holds != OFFSETS:
            continue
        stats = context.lookups.stats([source.path for source in item.sources])
        for number, source in enumerate(item.sources):
            stat, size = stats[source.path], held.source_size(number)
            if isinstance(stat, Stat) and stat.size != size:
                return f"{source.path[:200]} had {size:,} bytes when it was packed; now it has {stat.size:,}"
    return ""
