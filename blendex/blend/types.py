"""The registry of blend types: what each one reads, and how its sources are found.

The table follows ``build_indexes.py`` of NeMo Speech main at c03be830. A new type is one more entry.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

JSONL = "jsonl"
NEMO_TAR = "nemo_tar"
WDS_TAR = "wds_tar"


class Form(Enum):
    """How the value of a key becomes paths."""

    PATHS = "paths"
    """Every path is a source of the key's kind."""
    SHAR = "shar"
    """Lhotse Shar: folders, or a map of fields; kinds by suffix."""
    MIXED = "mixed"
    """JSONL files, tars, or folders of tars."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key that names data, and the kind of its sources."""

    name: str
    form: Form
    kind: str = JSONL


@dataclass(frozen=True, slots=True)
class TypeSpec:
    """One blend type.

    Args:
        name: its spelling.
        keys: the keys that name sources, in the order their sources are listed.
        required: groups of keys of which one must be set.
        reads: further keys that name data without an index.
        children: whether ``input_cfg`` holds further entries.
    """

    name: str
    keys: tuple[Key, ...] = ()
    required: tuple[tuple[str, ...], ...] = ()
    reads: tuple[str, ...] = ()
    children: bool = False

    @property
    def needs_index(self) -> bool:
        """Whether its readers use an index."""
        return bool(self.keys) or self.children

    @property
    def known(self) -> frozenset[str]:
        """Every key of it that names data."""
        return frozenset((*(key.name for key in self.keys), *self.reads, *(("input_cfg",) * self.children)))


_MANIFEST = Key("manifest_filepath", Form.PATHS)
_TARS = Key("tarred_audio_filepaths", Form.PATHS, NEMO_TAR)
_CUTS = Key("cuts_path", Form.PATHS)
_SHAR = Key("shar_path", Form.SHAR)
_TEXT = Key("paths", Form.MIXED)

_SPECS = (
    TypeSpec("nemo", (_MANIFEST, _TARS), (("manifest_filepath",),)),
    TypeSpec("nemo_tarred", (_MANIFEST, _TARS), (("manifest_filepath",), ("tarred_audio_filepaths",))),
    TypeSpec("lhotse", (_CUTS, _SHAR), (("cuts_path", "shar_path"),)),
    TypeSpec("lhotse_shar", (_SHAR,), (("shar_path",),)),
    TypeSpec("multimodal_conversation", (_MANIFEST, _TARS), (("manifest_filepath",),)),
    TypeSpec("txt_jsonl", (_TEXT,), (("paths",),)),
    TypeSpec("nemotron_text_converation", (_TEXT,), (("paths",),)),
    TypeSpec("group", required=(("input_cfg",),), children=True),
    TypeSpec("txt", reads=("paths",)),
    TypeSpec("txt_pair", reads=("source_paths", "target_paths")),
    TypeSpec("parquet", reads=("manifest_filepath",)),
    TypeSpec("multi_speaker_simulator", reads=("manifest_filepath",)),
)
TYPES: dict[str, TypeSpec] = {spec.name: spec for spec in _SPECS}

NOT_READ_YET = frozenset(
    (
        "share_gpt",
        "share_gpt_webdataset",
        "materialized_sft_messages",
        "nemo_sft_jsonl",
        "lhotse_as_conversation",
        "sqa_as_conversation",
        "s2s_as_conversation",
        "s2s_duplex_overlap_as_s2s_duplex",
        "s2s_duplex_reverse_role",
        "lhotse_magpietts_data_as_continuation",
        "nemo_tarred_to_duplex",
    )
)
"""Types that upstream reads and Blendex does not."""

DATA_KEYS = frozenset(key for spec in _SPECS for key in spec.known)
"""Keys that name data for some type."""

OVERRIDES = ("indexed", "indexes_root", "index_pack", "index_pack_root")
"""Keys that say where indexes are; the ready blend sets them anew."""

_ALL_KEYS = DATA_KEYS | {
    "type", "weight", "tags", "name", "corpus", "data_dir", "noise_path", "rir_path", "audio_root",
    "questions_path", "tar_routing_filepath", *OVERRIDES,
}  # fmt: skip
_SLIPS = {"tarred_audio_filepath": "tarred_audio_filepaths"}


def nearest_type(name: str) -> str | None:
    """The type whose spelling is closest to ``name``."""
    close = difflib.get_close_matches(name, [*TYPES, *NOT_READ_YET], n=1, cutoff=0.6)
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
