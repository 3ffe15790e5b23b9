"""Which shards belong together: manifests and tars, the fields of Shar."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from blendex.blend.patterns import expand
from blendex.errors import BlendexError
from blendex.lint.context import Context
from blendex.lint.model import Severity
from blendex.lint.paths import ordinary
from blendex.lint.rule import CODE, OURS, Example, Hit, on, rule
from blendex.lint.rules.examples import one_entry as example
from blendex.lint.scopes import Entry

_MANIFEST = re.compile(r"manifest[^/]*_(\d+)[^/]*\.json")
_AUDIO = re.compile(r"audio[^/]*_(\d+)[^/]*\.tar")


def _loose(entry: Entry) -> bool:
    return entry.get("index_pack").value is None


@rule(
    "IDX019",
    Severity.FATAL,
    title="One manifest for many tars takes a pack",
    where="entry.manifest_filepath, tarred_audio_filepaths",
    why="Loose indexed reading repeats the manifest once per tar.",
    otherwise="Rows meet tars that they do not belong to.",
    source=f"{OURS}; {CODE}, nemo_adapters.py",
    example=Example(
        bad=example(
            '{type: nemo_tarred, manifest_filepath: /d/manifest.json, tarred_audio_filepaths: "/d/audio_{0..3}.tar"}'
        ),
        good=example(
            '{type: nemo_tarred, manifest_filepath: "/d/manifest_{0..3}.json", tarred_audio_filepaths: '
            '"/d/audio_{0..3}.tar"}'
        ),
    ),
)
def aggregate(context: Context) -> Iterator[Hit]:
    """One manifest stands beside several tars, and no pack routes its rows."""
    for entry in _several(context):
        for manifests, tars in _groups(context, entry):
            if len(manifests) == 1 and len(tars) > 1 and _loose(entry) and (entry.training or entry.alone):
                yield on(
                    entry, f"One manifest serves {len(tars):,} tars, and no pack says which row belongs where.",
                    key="tarred_audio_filepaths", value=f"1 manifest, {len(tars):,} tars",
                    fix="Split the manifest by shard_id, or give the dataset a pack of version 3.",
                    severity=None if entry.training else Severity.WARNING,
                )  # fmt: skip
                break


def _several(context: Context) -> list[Entry]:
    """Entries of manifests and tars, but for those that are one plain file beside another, which need no pairing."""
    if "several" not in context.memory:
        native = ((entry, context.specs(entry)) for entry in context.entries if entry.native)
        context.memory["several"] = [
            entry for entry, specs in native if len(specs) != 2 or not all(ordinary(spec) for spec in specs)
        ]
    found: list[Entry] = context.memory["several"]
    return found


def _groups(context: Context, entry: Entry) -> Iterator[tuple[list[str], list[str]]]:
    """The manifests and tars of an entry that one reader gets: all of them, or list item by list item."""
    specs = context.specs(entry)
    manifests = [spec for spec in specs if spec.key == "manifest_filepath"]
    tars = [spec for spec in specs if spec.key == "tarred_audio_filepaths"]
    both_lists = all(spec.listed for spec in manifests + tars) and len(manifests) == len(tars)
    try:
        left = [expand(spec.text, 1_000_000) for spec in manifests]
        right = [expand(spec.text, 1_000_000) for spec in tars]
    except BlendexError:
        return
    if both_lists:
        yield from zip(left, right, strict=True)
    elif left and right:
        yield [path for part in left for path in part], [path for part in right for path in part]


@rule(
    "IDX020",
    Severity.FATAL,
    title="Manifests and tars pair by the number in their names",
    where="entry.manifest_filepath, tarred_audio_filepaths",
    why="Loose reading pairs by the parsed number (`manifest…_<n>….json`, `audio…_<n>….tar`), a pack by position.",
    otherwise="Shards are left out, or rows look for audio in the wrong tar.",
    source=f"{OURS}; {CODE}, nemo_adapters.py",
    example=Example(
        bad=example(
            '{type: nemo_tarred, manifest_filepath: "/d/manifest_{0..1}.json", tarred_audio_filepaths: '
            '"/d/audio_{1..2}.tar"}'
        ),
        good=example(
            '{type: nemo_tarred, manifest_filepath: "/d/manifest_{0..1}.json", tarred_audio_filepaths: '
            '"/d/audio_{0..1}.tar"}'
        ),
    ),
)
def pairing(context: Context) -> Iterator[Hit]:
    """Names carry no numbers, or the numbers differ."""
    for entry in _several(context):
        if not (entry.training or entry.alone):
            continue
        for manifests, tars in _groups(context, entry):
            why = _mismatch(manifests, tars, _loose(entry))
            if why:
                yield on(
                    entry, f"Manifests and tars do not pair: {why}.", key="manifest_filepath",
                    value=f"{len(manifests):,} manifests, {len(tars):,} tars",
                    fix="Name both sides with the same numbers, and check both ranges.",
                )  # fmt: skip
                break


def _mismatch(manifests: list[str], tars: list[str], loose: bool) -> str:
    if len(manifests) < 2:
        return ""  # one manifest carries the number of the shard in its rows, or has one tar
    if len(manifests) != len(tars):
        return f"{len(manifests):,} manifests stand beside {len(tars):,} tars"
    if not loose:
        left, right = [_last_number(path) for path in manifests], [_last_number(path) for path in tars]
        odd = next((pair for pair in zip(left, right, strict=True) if pair[0] != pair[1]), None)
        return f"number {odd[0]} stands beside {odd[1]}" if odd else ""
    for path, pattern, shape in [
        *((path, _MANIFEST, "manifest…_<n>….json") for path in manifests),
        *((path, _AUDIO, "audio…_<n>….tar") for path in tars),
    ]:
        if not pattern.search(path):
            return f"{path[-120:]} is not named {shape}"
    left_ids = sorted(_parsed(_MANIFEST, path) for path in manifests)
    right_ids = sorted(_parsed(_AUDIO, path) for path in tars)
    if left_ids != right_ids:
        odd_ids = sorted(set(left_ids) ^ set(right_ids))
        return f"number {odd_ids[0]} is on one side only" if odd_ids else "numbers repeat differently"
    return ""


def _parsed(pattern: re.Pattern[str], path: str) -> int:
    found = pattern.findall(path)
    return int(found[-1][:18]) if found else -1


def _last_number(path: str) -> int | None:
    digits = re.findall(r"\d+", PurePosixPath(path).stem)
    return int(digits[-1][:18]) if digits else None


@rule(
    "IDX117",
    Severity.ERROR,
    title="Shar fields have the same number of shards",
    where="entry.shar_path",
    why="Shards of fields are read beside each other.",
    otherwise="Shards at the end are left out, or reading ends with an error.",
    source=OURS,
    example=Example(
        bad=example(
            '{type: lhotse_shar, shar_path: {cuts: "/d/cuts.{0..2}.jsonl", recording: "/d/recording.{0..1}.tar"}}'
        ),
        good=example(
            '{type: lhotse_shar, shar_path: {cuts: "/d/cuts.{0..1}.jsonl", recording: "/d/recording.{0..1}.tar"}}'
        ),
    ),
)
def shar_fields(context: Context) -> Iterator[Hit]:
    """The fields of a Shar map differ in their number of shards."""
    for entry in context.entries:
        if not entry.has("shar_path"):
            continue
        counts: dict[str, int] = {}
        for spec in context.specs(entry):
            if spec.key == "shar_path" and spec.form in ("jsonl", "tar"):
                after = spec.pointer[len(entry.spot.pointer) + 1]
                try:
                    counts[str(after)] = counts.get(str(after), 0) + len(expand(spec.text, 1_000_000))
                except BlendexError:
                    counts.clear()
                    break
        if len(set(counts.values())) > 1:
            told = ", ".join(f"{name[:40]} {count:,}" for name, count in counts.items())
            yield on(entry, f"The fields differ in their number of shards: {told}.", key="shar_path", value=told,
                     fix="Check the ranges.")  # fmt: skip
