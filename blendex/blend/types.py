"""The registry of blend types: what each one reads, and how its sources are found.

The table follows ``build_indexes.py`` of NeMo Speech main at c03be830, and where training reads something else
(``read_cutset_from_config`` and its parsers, same version), training. A new type is one more entry.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Any

JSONL = "jsonl"
NEMO_TAR = "nemo_tar"
TAR_PATH = "tar_path"
"""A tar that is packed by its path and size alone: it is not read, and has no sidecar."""
WDS_TAR = "wds_tar"
WDS_TAR_V2 = "wds_tar_v2"
SHAREGPT_ROUTE = "sharegpt_route"


class Form(Enum):
    """How the value of a key becomes paths."""

    PATHS = "paths"
    """Every path is a source of the key's kind."""
    SHAR = "shar"
    """Lhotse Shar: folders, or a map of fields; kinds by suffix."""
    MIXED = "mixed"
    """JSONL files, tars, or folders of tars."""
    WEBDATASET = "webdataset"
    """Folders or catalogs of WebDataset shards; the kind by ``wds_sample_index_version``."""
    ROUTE = "route"
    """One path of a routing index, which is derived from the other sources of its entry."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key that names data, and the kind of its sources.

    Args:
        name: its spelling.
        form: how its value becomes paths.
        kind: of its sources, where the form does not say.
        when: the key is read only while another one has this value: (other key, value).
        alias: an older spelling of it, read when ``name`` is not set.
        expands: whether training expands ranges in a plain string.
        lists: whether training expands ranges in the items of a list.
    """

    name: str
    form: Form
    kind: str = JSONL
    when: tuple[str, Any] | None = None
    alias: str | None = None
    expands: bool = True
    lists: bool = True


@dataclass(frozen=True, slots=True)
class TypeSpec:
    """One blend type.

    Args:
        name: its spelling.
        keys: the keys that name sources, in the order their sources are listed.
        required: groups of keys of which one must be set.
        reads: further keys that name data without an index.
        children: whether ``input_cfg`` holds further entries.
        first: keys of which training opens only the first group that is set; the others are ignored.

    Attributes:
        known: every key of it that names data.
        competing: the keys in ``first``.
    """

    name: str
    keys: tuple[Key, ...] = ()
    required: tuple[tuple[str, ...], ...] = ()
    reads: tuple[str, ...] = ()
    children: bool = False
    first: tuple[tuple[str, ...], ...] = ()
    known: frozenset[str] = field(init=False, compare=False)
    competing: frozenset[str] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        # Here, since every entry is asked for both.
        aliases = (key.alias for key in self.keys if key.alias)
        known = (*(key.name for key in self.keys), *aliases, *self.reads, *(("input_cfg",) * self.children))
        object.__setattr__(self, "known", frozenset(known))
        object.__setattr__(self, "competing", frozenset(key for group in self.first for key in group))

    @property
    def needs_index(self) -> bool:
        """Whether its readers use an index."""
        return bool(self.keys) or self.children

    def opened(self, node: Mapping[Any, Any]) -> frozenset[str]:
        """The keys of ``node`` that training opens, of those in ``first``; all of them where nothing competes."""
        for group in self.first:
            if node.get(group[0]) is not None:
                return frozenset(group)
        return self.competing

    def ignored(self, node: Mapping[Any, Any]) -> list[str]:
        """The keys of ``node`` that name data which training does not open, because another key is set."""
        opened = self.opened(node)
        return [key for key in node if key in self.competing and key not in opened and node.get(key) is not None]


# read_nemo_manifest hands each item of a list to an iterator that expands it; the adapters of text and of
# conversations pass a list through expand_sharded_filepaths, which leaves lists alone; cuts are opened as written.
_MANIFEST = Key("manifest_filepath", Form.PATHS)
_TARS = Key("tarred_audio_filepaths", Form.PATHS, NEMO_TAR)
_CHATS = Key("manifest_filepath", Form.PATHS, lists=False)
_CHAT_TARS = Key("tarred_audio_filepaths", Form.PATHS, NEMO_TAR, lists=False)
_CUTS = Key("cuts_path", Form.PATHS, expands=False, lists=False)
_SHAR = Key("shar_path", Form.SHAR, lists=False)
_TEXT = Key("paths", Form.MIXED, lists=False)
_ROUTE = Key("tar_routing_filepath", Form.ROUTE, SHAREGPT_ROUTE, ("tar_lookup_mode", "collection"), "tar_routing_index")
_DATA_DIR = Key("data_dir", Form.WEBDATASET, WDS_TAR)

# read_cutset_from_config: input_cfg, else shar_path or cuts_path, else a manifest with its tars
_LHOTSE_FIRST = (("shar_path",), ("cuts_path",))
_FIRST = (("input_cfg",), *_LHOTSE_FIRST, ("manifest_filepath", "tarred_audio_filepaths"))
_ANY = ("input_cfg", "shar_path", "cuts_path", "manifest_filepath")


def _transform(name: str) -> TypeSpec:
    """A type that changes the cuts of whatever source its own entry names."""
    return TypeSpec(name, (_CUTS, _SHAR, _MANIFEST, _TARS), (_ANY,), children=True, first=_FIRST)


_SPECS = (
    TypeSpec("nemo", (_MANIFEST, _TARS), (("manifest_filepath",),)),
    TypeSpec("nemo_tarred", (_MANIFEST, _TARS), (("manifest_filepath",), ("tarred_audio_filepaths",))),
    TypeSpec("lhotse", (_CUTS, _SHAR), (("cuts_path", "shar_path"),), first=_LHOTSE_FIRST),
    TypeSpec("lhotse_shar", (_SHAR,), (("shar_path",),)),
    TypeSpec("multimodal_conversation", (_CHATS, _CHAT_TARS), (("manifest_filepath",),)),
    TypeSpec("share_gpt", (_CHATS, _CHAT_TARS, _ROUTE), (("manifest_filepath",),)),
    TypeSpec("share_gpt_webdataset", (_DATA_DIR,), (("data_dir",),)),
    TypeSpec("txt_jsonl", (_TEXT,), (("paths",),)),
    TypeSpec("nemo_sft_jsonl", (_TEXT,), (("paths",),)),
    TypeSpec("nemotron_text_converation", (_TEXT,), (("paths",),)),
    TypeSpec("materialized_sft_messages", (_TEXT,), (("paths",),)),
    TypeSpec("group", required=(("input_cfg",),), children=True),
    _transform("lhotse_as_conversation"),
    _transform("sqa_as_conversation"),
    _transform("s2s_as_conversation"),
    _transform("s2s_duplex_overlap_as_s2s_duplex"),
    _transform("s2s_duplex_reverse_role"),
    _transform("lhotse_magpietts_data_as_continuation"),
    _transform("nemo_tarred_to_duplex"),
    TypeSpec("txt", reads=("paths",)),
    TypeSpec("txt_pair", reads=("source_paths", "target_paths", "questions_path")),
    TypeSpec("parquet", reads=("manifest_filepath",)),
    TypeSpec("multi_speaker_simulator", reads=("manifest_filepath",)),
)
TYPES: dict[str, TypeSpec] = {spec.name: spec for spec in _SPECS}

BUILDER_FORGETS = frozenset(("nemo_sft_jsonl",))
"""Types that training indexes and upstream's builder does not."""

DATA_KEYS = frozenset(key for spec in _SPECS for key in spec.known)
"""Keys that name data for some type."""

OVERRIDES = ("indexed", "indexes_root", "index_pack", "index_pack_root")
"""Keys that say where indexes are; the ready blend sets them anew."""

_ALL_KEYS = DATA_KEYS | {
    "type", "weight", "tags", "name", "corpus", "noise_path", "rir_path", "audio_root",
    "tar_lookup_mode", "audio_path_prefix_map", "audio_placeholders", "wds_sample_index_version", *OVERRIDES,
}  # fmt: skip
_SLIPS = {"tarred_audio_filepath": "tarred_audio_filepaths"}


def nearest_type(name: str) -> str | None:
    """The type whose spelling is closest to ``name``."""
    close = difflib.get_close_matches(name, TYPES, n=1, cutoff=0.6)
    return close[0] if close else None


def misspelt_keys(spec: TypeSpec, keys: Iterable[object]) -> dict[str, str]:
    """Keys that look like a slip for one that ``spec`` reads: wrong spelling → right spelling.

    Keys that training or other programs read beside the data keys are never taken for slips, nor is a key
    whose right spelling is set as well.
    """
    given = {key for key in keys if isinstance(key, str)}
    slips = ((key, _right_spelling(spec, key)) for key in sorted(given - _ALL_KEYS))
    return {key: right for key, right in slips if right is not None and right not in given}


@lru_cache(maxsize=4096)
def _right_spelling(spec: TypeSpec, key: str) -> str | None:
    known = _SLIPS.get(key)
    if known in spec.known:
        return known
    close = difflib.get_close_matches(key, sorted(spec.known), n=1, cutoff=0.85)
    return close[0] if close else None
