"""What can be odd about single values of an entry, beside the paths it names."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Container, Iterator
from typing import Any

from blendex.blend.entries import Entry
from blendex.blend.interpolate import Resolver
from blendex.blend.load import MapNode, SeqNode
from blendex.errors import BlendexError, Code

Remark = tuple[BlendexError, str, bool]
"""What there is to say, the key it is about, and whether the entry cannot be used so."""

# Keys that older releases read, and the key that took their place
_OLD = {"audio_locator": "audio_locator_tag"}
# Keys of data pipelines that share their corpus lists with training (NeMo Curator); training ignores them
_FOREIGN = ("shard_key_prefix",)
_SHA256 = re.compile(r"[0-9a-f]{64}")


def remarkable(type_name: str, keys: Container[Any]) -> bool:
    """Whether ``remarks`` may have something to say of an entry with these keys."""
    return type_name == "share_gpt" or any(key in keys for key in (*_OLD, *_FOREIGN))


def remarks(resolver: Resolver, entry: Entry) -> Iterator[Remark]:
    """Everything to be said about the values of one leaf."""
    node = entry.node
    assert node is not None
    for old, new in _OLD.items():
        if old in node and new not in node:
            yield (
                _warn(Code.UNKNOWN_KEY, f"{old} is not read any more; the key is {new}.", f"Rename it to {new}."),
                old,
                False,
            )
    for key in _FOREIGN:
        if key in node:
            text = f"{key} is a key of another program; training ignores it."
            yield _warn(Code.UNKNOWN_KEY, text, "Nothing to do, unless it was meant to name data."), key, False
    if entry.type == "share_gpt":
        yield from _share_gpt(resolver, entry, node)


def _warn(code: Code, message: str, next_step: str) -> BlendexError:
    return BlendexError(code, message, next_step=next_step)


def _plain(resolver: Resolver, entry: Entry, key: str) -> Any:
    assert entry.node is not None
    try:
        return resolver.resolve(entry.node.get(key), entry.spot_of(key).place, key).value
    except BlendexError:
        return None


def _share_gpt(resolver: Resolver, entry: Entry, node: MapNode) -> Iterator[Remark]:
    """The rules of ``NeMoMultimodalConversationShareGPTJsonlAdapter`` (NeMo Speech main)."""
    mode = _plain(resolver, entry, "tar_lookup_mode")
    if mode not in (None, "paired", "collection"):
        text = "tar_lookup_mode is neither paired nor collection; training refuses it."
        yield _warn(Code.BAD_VALUE, text, "Say paired or collection, or leave it out."), "tar_lookup_mode", True
    if mode == "paired" and node.get("tarred_audio_filepaths") is None:
        text = "tar_lookup_mode: paired stands without tarred_audio_filepaths."
        yield _warn(Code.MISSING_KEY, text, "Set tarred_audio_filepaths."), "tar_lookup_mode", True
    lines = _plain(resolver, entry, "excluded_manifest_lines")
    if isinstance(lines, SeqNode) and lines:
        yield from _excluded(resolver, entry, lines)


def _excluded(resolver: Resolver, entry: Entry, lines: SeqNode) -> Iterator[Remark]:
    """Excluded rows stay in the index; training refuses a list that does not answer to its digest."""
    key = "excluded_manifest_lines"
    if not all(isinstance(line, int) and not isinstance(line, bool) and line > 0 for line in lines):
        yield (
            _warn(Code.BAD_VALUE, f"{key} holds something other than line numbers from 1 on.", "Correct it."),
            key,
            False,
        )
        return
    if len(set(lines)) != len(lines):
        yield _warn(Code.BAD_VALUE, f"{key} names a line twice.", "Name every line once."), key, False
    digest = hashlib.sha256(f"{json.dumps(sorted(lines), separators=(',', ':'))}\n".encode()).hexdigest()
    told = _plain(resolver, entry, f"{key}_sha256")
    if told is not None and str(told).lower() != digest:
        text = f"{key}_sha256 is not the digest of {key}; training refuses the entry."
        yield _warn(Code.BAD_VALUE, text, f"The digest of these lines is {digest}."), f"{key}_sha256", False
    audit = _plain(resolver, entry, "approved_exclusion_audit_sha256")
    if not isinstance(audit, str) or not _SHA256.fullmatch(audit.lower()):
        text = f"{key} stands without a SHA-256 in approved_exclusion_audit_sha256; training refuses the entry."
        yield _warn(Code.BAD_VALUE, text, "Give the digest of the audit."), key, False
