"""What upstream's types mean for resuming: which have an indexed reader, which count as tarred, which keys they read.

Read in NeMo Speech main at c03be830 (``cutset.py``, ``text_adapters.py``). Kept beside the registry of
``blendex.blend``, which says what gets an index: a type may be known to training, and be nothing to index.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

NATIVE = frozenset(("nemo", "nemo_tarred"))
TEXT = frozenset(("txt_jsonl", "nemo_sft_jsonl", "nemotron_text_converation", "materialized_sft_messages"))
CHAT = frozenset(("multimodal_conversation", "share_gpt"))
SHAR = frozenset(("lhotse", "lhotse_shar"))
TRANSFORMS = frozenset(
    (
        "lhotse_as_conversation",
        "sqa_as_conversation",
        "s2s_as_conversation",
        "s2s_duplex_overlap_as_s2s_duplex",
        "s2s_duplex_reverse_role",
        "lhotse_magpietts_data_as_continuation",
        "nemo_tarred_to_duplex",
    )
)
INDEXED = NATIVE | TEXT | CHAT | SHAR | TRANSFORMS | {"share_gpt_webdataset", "group"}
UNINDEXED = frozenset(("txt", "txt_pair", "multi_speaker_simulator"))
ROW_GROUPS = frozenset(("parquet",))
KNOWN = INDEXED | UNINDEXED | ROW_GROUPS

PATH_KEYS: Mapping[str, str] = {
    "manifest_filepath": "jsonl",
    "tarred_audio_filepaths": "tar",
    "cuts_path": "jsonl",
    "shar_path": "shar",
    "paths": "mixed",
    "data_dir": "folder",
}
"""Keys that name data to index, and what their values are."""


def reads(type_name: str) -> tuple[str, ...]:
    """The path keys that a type reads."""
    if type_name in TEXT:
        return ("paths",)
    if type_name == "share_gpt_webdataset":
        return ("data_dir",)
    if type_name == "lhotse":
        return ("cuts_path", "shar_path")
    if type_name == "lhotse_shar":
        return ("shar_path",)
    if type_name in NATIVE or type_name in CHAT:
        return ("manifest_filepath", "tarred_audio_filepaths")
    if type_name in TRANSFORMS:
        return ("cuts_path", "shar_path", "manifest_filepath", "tarred_audio_filepaths")
    return ()


def native(type_name: str, has: Callable[[str], bool]) -> bool:
    """Whether an entry is read by the NeMo tar reader: rows beside tars."""
    paired = has("manifest_filepath") and has("tarred_audio_filepaths")
    return paired and (type_name in NATIVE or type_name in TRANSFORMS)


def tarred(type_name: str, has: Callable[[str], bool]) -> bool | None:
    """What a type's parser answers for "is it tarred", by which a list is mixed or not; None where it is not known."""
    if type_name == "nemo":
        return has("tarred_audio_filepaths")
    if type_name == "lhotse":
        return has("shar_path")
    if type_name in ("nemo_tarred", "lhotse_shar", "txt", "txt_pair", "share_gpt_webdataset", "parquet") or (
        type_name in TEXT or type_name in CHAT
    ):
        return True
    if type_name in TRANSFORMS and not has("input_cfg"):
        return has("shar_path") or has("tarred_audio_filepaths")
    return None


def shown(value: Any) -> str:
    """A value of a config as text for a finding."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "null"
    if isinstance(value, dict):
        return f"a mapping of {len(value)}"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    text = str(value)
    return text if len(text) <= 200 else text[:199] + "…"
