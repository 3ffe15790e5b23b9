"""What of an entry goes into a pack: its collections, or why training could not read them from one.

The rules are those of ``convert_indexes_to_idxpack.py`` (NeMo Speech main, 0b44a03b), which makes one pack of one
outer entry. A collection is named by the configured value, its interpolations resolved and its patterns as they are
written, since training computes its key from that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import Any

from blendex.blend.entries import Entry
from blendex.blend.interpolate import Place, interpolated
from blendex.blend.load import MapNode, SeqNode
from blendex.blend.model import Gathered, Packing, Source
from blendex.blend.patterns import count
from blendex.blend.types import JSONL, NEMO_TAR, WDS_TAR_V2
from blendex.blend.walk import Walk
from blendex.errors import BlendexError, Code

_DIGITS = re.compile(r"\d+")
_MANIFEST, _TARS, _PATHS = "manifest_filepath", "tarred_audio_filepaths", "paths"
_NATIVE = frozenset(("nemo", "nemo_tarred"))
_CHATS = frozenset(("multimodal_conversation", "share_gpt"))
_TEXTS = frozenset(("nemotron_text_converation", "materialized_sft_messages"))


def packing(walk: Walk, entry: Entry, by_key: dict[str, list[Source]]) -> Packing:
    """The collections of one leaf.

    Args:
        walk: the walk that met it.
        entry: a leaf.
        by_key: its sources, under the keys that name them.
    """
    if entry.spec is None or entry.node is None or not entry.spec.needs_index:
        return Packing()
    try:
        return _Gatherer(walk, entry, by_key).gather()
    except BlendexError as error:
        return Packing(refusal=error)


def _refused(message: str, next_step: str) -> BlendexError:
    return BlendexError(Code.PACK_REFUSED, message, next_step=next_step)


class _Gatherer:
    def __init__(self, walk: Walk, entry: Entry, by_key: dict[str, list[Source]]) -> None:
        self.walk = walk
        self.entry = entry
        self.by_key = by_key
        self.type = entry.type or "nemo"
        self._items = 0

    def gather(self) -> Packing:
        entry = self.entry
        assert entry.spec is not None
        if self.type in _NATIVE or entry.spec.children:
            return self._native()
        if self.type in _CHATS:
            return self._chats()
        if self.type in _TEXTS:
            return self._texts()
        if self.type == "share_gpt_webdataset":
            return self._webdataset()
        raise _refused(
            f"training reads no {self.type} from a pack.", "Nothing to do: the dataset keeps its loose sidecars."
        )

    def _native(self) -> Packing:
        """nemo, nemo_tarred, and transforms over manifests of their own."""
        if _MANIFEST not in self.by_key:
            raise _refused(
                f"training reads no cuts of {self.type} from a pack.",
                "Nothing to do: the dataset keeps its loose sidecars.",
            )
        manifests = self._collection("manifest", _MANIFEST, JSONL)
        if _TARS not in self.by_key:
            return Packing((manifests,))
        tars = self._collection("tar", _TARS, NEMO_TAR)
        lists = [isinstance(item.spec, list) for item in (manifests, tars)]
        if lists[0] != lists[1]:
            raise _refused(
                f"{_MANIFEST} and {_TARS} are not both plain text or both lists.", "Write both in the same form."
            )
        if lists[0]:
            self._aligned_lists(manifests.spec, tars.spec)
        else:
            _aligned(manifests.sources, tars.sources)
        return Packing((manifests, tars), native=True)

    def _aligned_lists(self, manifests: Sequence[str], tars: Sequence[str]) -> None:
        counts = [[count(spec) for spec in specs] for specs in (manifests, tars)]
        if counts[0] != counts[1]:
            raise _refused(
                f"the items of {_MANIFEST} and {_TARS} stand for different numbers of shards.",
                "Let each item of one list match the same item of the other.",
            )

    def _chats(self) -> Packing:
        if self._mode() == "collection":
            manifests = self._collection("manifest", _MANIFEST, JSONL)
            return Packing((manifests, self._collection("tar_collection", _TARS, NEMO_TAR)))
        if _TARS in self.by_key:
            raise _refused(
                f"training reads no {self.type} with tars of its own from a pack.",
                "Nothing to do: the dataset keeps its loose sidecars.",
            )
        manifests = self._collection("manifest", _MANIFEST, JSONL)
        if isinstance(manifests.spec, list):
            raise _refused(f"{_MANIFEST} of a packed {self.type} is a list.", "Write it as one path or one range.")
        return Packing((manifests,))

    def _mode(self) -> Any:
        return self._value("tar_lookup_mode") if self.type == "share_gpt" else None

    def _texts(self) -> Packing:
        kinds = {source.kind for source in self.by_key.get(_PATHS, ())}
        if len(kinds) > 1:
            raise _refused("paths mixes JSON lines with tars.", "Give each kind an entry of its own.")
        return Packing((self._collection("paths", _PATHS, next(iter(kinds), JSONL)),))

    def _webdataset(self) -> Packing:
        sources = [source for source in self.by_key.get("data_dir", ()) if source.kind == WDS_TAR_V2]
        if not sources:
            raise _refused(
                "training reads WebDataset shards from a pack only by their second index.",
                "Set wds_sample_index_version: 2.",
            )
        return Packing((Gathered("wds_tar", WDS_TAR_V2, self._value("data_dir"), tuple(sources)),))

    def _collection(self, role: str, key: str, kind: str) -> Gathered:
        spec = self._value(key)
        flat = isinstance(spec, list) and spec and all(isinstance(item, str) for item in spec)
        if not isinstance(spec, str) and not flat and key != _PATHS:
            raise _refused(
                f"{key} is neither text nor a flat list of it; lists in lists and weights cannot be packed.",
                "Write one entry for each weight, or one flat list.",
            )
        return Gathered(role, kind, spec, tuple(self.by_key.get(key, ())))

    def _value(self, key: str) -> Any:
        assert self.entry.node is not None
        raw = self.entry.node.get(key)
        if isinstance(raw, str) and not interpolated(raw):
            return raw  # nearly always
        found = self.walk.resolver.resolve(raw, self.entry.spot_of(key).place, key)
        return self._plain(found.value, found.place)

    def _plain(self, value: Any, place: Place | None, depth: int = 0) -> Any:
        """``value`` with the interpolations in it resolved, as training sees it."""
        if place is None or not isinstance(value, MapNode | SeqNode):
            return value
        self._items += len(value)
        if depth > self.walk.limits.depth or self._items > self.walk.limits.paths:
            raise BlendexError(
                Code.BLEND_RECURSIVE,
                "Interpolated lists lead into each other without an end.",
                next_step="Write the values out.",
            )
        items: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, MapNode) else enumerate(value)
        made = {}
        for key, raw in items:
            inner = self.walk.resolver.resolve(raw, place, key)
            made[key] = self._plain(inner.value, inner.place, depth + 1)
        return made if isinstance(value, MapNode) else list(made.values())


def _aligned(manifests: Sequence[Source], tars: Sequence[Source]) -> None:
    """One manifest for all tars, or one for each, with the same number at the end of its name."""
    if len(manifests) == 1 and tars:
        return
    if len(manifests) != len(tars):
        raise _refused(
            f"{len(manifests):,} manifests stand beside {len(tars):,} tars.",
            "Give each tar a manifest, or all of them one whose rows have a shard_id.",
        )
    for manifest, tar in zip(manifests, tars, strict=True):
        numbers = [_number(source.path) for source in (manifest, tar)]
        if numbers[0] is None or numbers[0] != numbers[1]:
            raise _refused(
                f"{manifest.path} stands beside {tar.path}, whose number is another one.",
                "Let manifests and tars count alike.",
            )


def _number(path: str) -> int | None:
    """The last number in the stem of a path."""
    found = _DIGITS.findall(PurePosixPath(path).stem)
    return int(found[-1][-4000:]) if found else None
