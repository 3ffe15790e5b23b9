"""What entries are: types and keys that training cannot read by index."""

from __future__ import annotations

from collections.abc import Iterator

from blendex.lint import kinds
from blendex.lint.context import Context
from blendex.lint.model import Severity
from blendex.lint.rule import CODE, NOTES, OURS, Example, Hit, at, on, rule
from blendex.lint.rules.examples import GOOD, one_entry
from blendex.lint.scopes import Entry, Setting, once


def _needs_index(entry: Entry) -> bool:
    return (entry.type in kinds.INDEXED and entry.get("indexed").value is not False) or entry.training


@rule(
    "IDX010", Severity.FATAL,
    title="No extra_fields on entries", where="entry.extra_fields",
    why="Indexed readers refuse fields that come from beside the manifest, row by row.",
    otherwise="The run ends at its start (ValueError).",
    source=NOTES, blend=True,
    example=Example(
        bad=one_entry("{type: nemo, manifest_filepath: /d/a.json, extra_fields: [{type: text_sample, path: /d/t}]}"),
        good=GOOD,
    ),
)  # fmt: skip
def extra_fields(context: Context) -> Iterator[Hit]:
    """``extra_fields`` is set."""
    for entry in context.entries:
        if entry.has("extra_fields") and _needs_index(entry) and (entry.training or entry.alone):
            yield on(
                entry, "extra_fields cannot be read by index.", key="extra_fields", value="set",
                fix="Write the fields into the manifest once, then drop extra_fields.",
            )  # fmt: skip


@rule(
    "IDX011",
    Severity.FATAL,
    title="No slices at reading time",
    where="entry.slice_length, train_ds.slice_length",
    why="Indexed readers refuse to take parts of shards.",
    otherwise="The run ends at its start (ValueError).",
    source=NOTES,
    blend=True,
    example=Example(bad=one_entry("{type: nemo, manifest_filepath: /d/a.json, slice_length: 100}"), good=GOOD),
)
def slice_length(context: Context) -> Iterator[Hit]:
    """``slice_length`` is set, on an entry or above it."""
    settings: list[Setting] = [part.get("slice_length") for part in context.training]
    inherited = context.settings("slice_length")
    settings += [setting for setting, entry in inherited if entry.training or entry.alone]
    for setting in once(settings):
        if setting.value is not None:
            yield at(setting, "Slices cannot be read by index.", fix="Make smaller shards, then drop slice_length.")


@rule(
    "IDX016",
    Severity.FATAL,
    title="Every source can be parted",
    where="entry.type",
    why="`txt`, `txt_pair`, `multi_speaker_simulator` and types of one's own have no indexed reader.",
    otherwise="In iterable training every rank and worker reads all of it.",
    source=NOTES,
    example=Example(
        bad=one_entry("{type: txt, paths: /d/a.txt}"), good=one_entry("{type: txt_jsonl, paths: /d/a.jsonl}")
    ),
)
def unpartitioned(context: Context) -> Iterator[Hit]:
    """A type without an indexed reader stands in iterable training."""
    for entry in context.entries:
        if entry.type not in kinds.UNINDEXED:
            continue
        if entry.training and entry.get("force_map_dataset").value is not True:
            yield on(
                entry, f"{entry.type} has no indexed reader, so every rank and worker would read all of it.",
                key="type", value=entry.type,
                fix="Make it a type with an index (text: txt_jsonl), or take it out of this training.",
            )  # fmt: skip
        elif entry.alone:
            yield on(
                entry, f"{entry.type} has no indexed reader; it cannot be part of iterable training.",
                key="type", value=entry.type, severity=Severity.WARNING,
                fix="Make it a type with an index (text: txt_jsonl), if the blend shall be trained on.",
            )  # fmt: skip


_PAIR = ("nemotron_text_conversation", "nemotron_text_converation")


@rule(
    "IDX017",
    Severity.FATAL,
    title="Types are known to upstream",
    where="entry.type",
    why="Training asserts on an unknown type, and upstream's builder of indexes passes over it in silence. "
    "The registered "
    "name of one is itself misspelt.",
    otherwise="The run ends at its start, after an index build that said nothing.",
    source=f"{OURS}; {CODE}, parse_group",
    patch="renames `nemotron_text_conversation` to `nemotron_text_converation`, and no other",
    blend=True,
    example=Example(
        bad=one_entry("{type: nemotron_text_conversation, paths: /d/a.jsonl}"),
        good=one_entry("{type: nemotron_text_converation, paths: /d/a.jsonl}"),
        fixed=one_entry('{type: "nemotron_text_converation", paths: /d/a.jsonl}'),
    ),
)
def unknown_type(context: Context) -> Iterator[Hit]:
    """The type is in no table of upstream."""
    from blendex.blend.types import nearest_type

    for entry in context.entries:
        setting = entry.own("type")
        if setting is None or not setting.known or entry.classic or setting.value in kinds.KNOWN:
            continue
        if setting.value == _PAIR[0]:
            yield at(setting, f"The registered name is spelt {_PAIR[1]}.", wanted=_PAIR[1],
                     fix=f"Write type: {_PAIR[1]}.", edits=(setting.set(_PAIR[1]),))  # fmt: skip
            continue
        near = nearest_type(setting.value) if isinstance(setting.value, str) else None
        yield at(
            setting, f"The type {kinds.shown(setting.value)[:80]} is unknown to upstream.", wanted=near or "",
            fix=f"Did you mean {near}?" if near else "Correct it; for a type of your own, write the exception down.",
        )  # fmt: skip


@rule(
    "IDX018",
    Severity.WARNING,
    title="Types that upstream's builder forgets",
    where="entry.type",
    why="Training reads `nemo_sft_jsonl` by index, and build_indexes.py yields nothing for it.",
    otherwise="Its indexes are built by every rank at the start.",
    source=f"{OURS}; {CODE}, build_indexes.py",
    example=Example(
        bad=one_entry("{type: nemo_sft_jsonl, paths: /d/a.jsonl}"),
        good=one_entry("{type: txt_jsonl, paths: /d/a.jsonl}"),
    ),
)
def forgotten(context: Context) -> Iterator[Hit]:
    """``nemo_sft_jsonl``."""
    for entry in context.entries:
        if entry.type == "nemo_sft_jsonl":
            yield on(entry, "Upstream's builder of indexes passes over nemo_sft_jsonl.", key="type", value=entry.type,
                     fix="Build its indexes with Blendex, or by hand.")  # fmt: skip
