"""What entries name: things that cannot be read by index, and paths that training reads otherwise than meant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

import orjson

from blendex.blend.index_path import index_path
from blendex.blend.interpolate import locate
from blendex.blend.model import Source
from blendex.blend.patterns import expand, rewritten
from blendex.errors import BlendexError
from blendex.lint import kinds
from blendex.lint.context import Context
from blendex.lint.facts import version_key
from blendex.lint.model import Edit, Severity
from blendex.lint.paths import PathSpec
from blendex.lint.rule import CODE, NOTES, OURS, Example, Hit, at, on, rule, where_path
from blendex.lint.scopes import Entry, Setting

_TAR_SQUEEZED = re.compile(r"\.(?:tgz|tbz2?|txz|tar\.(?:gz|bz2|xz|lz4|zst))$", re.IGNORECASE)
_SQUEEZED = re.compile(r"\.(gz|bz2|xz|lz4|zst)$", re.IGNORECASE)
_SHARD = re.compile(r"_(\d+)[^/\d]*$")
_MANIFEST = re.compile(r"manifest[^/]*_(\d+)[^/]*\.json")
_AUDIO = re.compile(r"audio[^/]*_(\d+)[^/]*\.tar")
_MARKS = "([<{"
_ROW = 256 * 1024
_MOST_SPREAD = 4096
_MOST_ROWS = 2000
# Before it gzip could not be read by index; no version that can has been published under a number so far.
_GZIP_AFTER = version_key("2.0.0a7")


def listing(text: str) -> str:
    """A training config around some entries."""
    return "data:\n  train_ds:\n    input_cfg:\n" + "".join(f"      {line}\n" for line in text.splitlines())


def _entry(rest: str) -> str:
    return listing(f"- {rest}")


_GOOD = _entry("{type: nemo, manifest_filepath: /d/a.json}")


def _needs_index(entry: Entry) -> bool:
    return (entry.type in kinds.INDEXED and entry.get("indexed").value is not False) or entry.training


@rule(
    "IDX010", Severity.FATAL,
    title="No extra_fields on entries", where="entry.extra_fields",
    why="Indexed readers refuse fields that come from beside the manifest, row by row.",
    otherwise="The run ends at its start (ValueError).",
    source=NOTES, blend=True,
    example=Example(
        bad=_entry("{type: nemo, manifest_filepath: /d/a.json, extra_fields: [{type: text_sample, path: /d/t}]}"),
        good=_GOOD,
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
    example=Example(bad=_entry("{type: nemo, manifest_filepath: /d/a.json, slice_length: 100}"), good=_GOOD),
)
def slice_length(context: Context) -> Iterator[Hit]:
    """``slice_length`` is set, on an entry or above it."""
    seen: set[tuple[Any, ...]] = set()
    settings: list[Setting] = [part.get("slice_length") for part in context.training]
    settings += [entry.get("slice_length") for entry in context.entries if entry.training or entry.alone]
    for setting in settings:
        if setting.value is not None and setting.pointer not in seen:
            seen.add(setting.pointer)
            yield at(setting, "Slices cannot be read by index.", fix="Make smaller shards, then drop slice_length.")


def _each(context: Context) -> Iterator[tuple[Entry, PathSpec]]:
    for entry in context.entries:
        for spec in context.specs(entry):
            yield entry, spec


@rule(
    "IDX012",
    Severity.FATAL,
    title="No commands as paths",
    where="every path of an entry",
    why="What a command prints has no byte offsets to go back to.",
    otherwise="The run ends at its start.",
    source=NOTES,
    blend=True,
    example=Example(
        bad=_entry('{type: nemo, manifest_filepath: "pipe:cat /d/a.json"}'),
        good=_GOOD,
    ),
)
def pipes(context: Context) -> Iterator[Hit]:
    """A path begins with ``pipe:``."""
    for _, spec in _each(context):
        if spec.text.startswith("pipe:"):
            match = re.search(r"[a-z0-9+.\-]+://\S+", spec.text)
            fix = (
                f"Name the object itself: {match.group()[:200]}." if match else "Name the file that the command reads."
            )
            yield where_path(spec, f"{spec.key} is a command.", fix=fix)


@rule(
    "IDX013",
    Severity.FATAL,
    title="Tars are plain",
    where="every path of a tar",
    why="A compressed tar cannot be entered in its middle.",
    otherwise="The reader refuses it, or reads nonsense.",
    source=NOTES,
    blend=True,
    example=Example(
        bad=_entry(
            "{type: nemo_tarred, manifest_filepath: /d/manifest_0.json, tarred_audio_filepaths: /d/audio_0.tar.gz}"
        ),
        good=_entry(
            "{type: nemo_tarred, manifest_filepath: /d/manifest_0.json, tarred_audio_filepaths: /d/audio_0.tar}"
        ),
    ),
)
def compressed_tars(context: Context) -> Iterator[Hit]:
    """The name of a tar says that it is compressed."""
    for _, spec in _each(context):
        if spec.text.startswith("pipe:"):
            continue
        squeezed = _TAR_SQUEEZED.search(spec.text) or (spec.form == "tar" and _SQUEEZED.search(spec.text))
        if squeezed:
            yield where_path(spec, f"{spec.key} names compressed tars.", fix="Decompress them and name the plain tars.")
    yield from _squeezed_folders(context, re.compile(r"\.tar\.\w+$|\.tgz$"), "compressed tars", "Decompress them.")


def _squeezed_folders(context: Context, pattern: re.Pattern[str], what: str, fix: str) -> Iterator[Hit]:
    """Shar folders that hold compressed shards: readers of a folder pass over them in silence."""
    for _, spec in _each(context):
        if spec.form != "folder" or spec.key != "shar_path":
            continue
        address = context.lookups.address(spec.text)
        try:
            names = context.ground.list(address) if address is not None else []
        except BlendexError:
            continue
        found = [name for name, folder in names if not folder and pattern.search(name)]
        if found:
            yield where_path(spec, f"The folder holds {len(found):,} {what}, such as {found[0][:80]}.", fix=fix)


@rule(
    "IDX014",
    Severity.FATAL,
    title="JSON lines are plain or gzip",
    where="every path of JSON lines",
    why="bzip2, xz, lz4 and zstandard streams cannot be entered in their middle by upstream's readers.",
    otherwise="The reader refuses it.",
    source=NOTES,
    blend=True,
    example=Example(
        bad=_entry("{type: lhotse, cuts_path: /d/cuts.jsonl.zst}"),
        good=_entry("{type: lhotse, cuts_path: /d/cuts.jsonl}"),
    ),
)
def compressed_lines(context: Context) -> Iterator[Hit]:
    """The name of JSON lines ends in a compression other than gzip."""
    for _, spec in _each(context):
        match = _SQUEEZED.search(spec.text)
        if match and match.group(1).lower() != "gz" and not spec.text.startswith("pipe:") and not _tar(spec):
            yield where_path(
                spec, f"{spec.key} names a {match.group(1)} file.", fix="Decompress it and name the plain file."
            )
    yield from _squeezed_folders(
        context, re.compile(r"\.jsonl\.(?:bz2|xz|lz4|zst)$"), "compressed cuts", "Decompress them."
    )


def _tar(spec: PathSpec) -> bool:
    return spec.form == "tar" or _TAR_SQUEEZED.search(spec.text) is not None


@rule(
    "IDX015", Severity.ERROR,
    title="Gzipped JSON lines have what it takes", where="every path of JSON lines",
    why="Upstream's newer readers enter gzip by a `.gzidx` beside the index and the package indexed_gzip; "
        "lhotse 2.0.0a7 "
    "and older refuse it, and there it is fatal.",
    otherwise="The run ends at its start.",
    source=NOTES,
    example=Example(
        bad=_entry("{type: lhotse, cuts_path: /d/cuts.jsonl.gz}"),
        good=_entry("{type: lhotse, cuts_path: /d/cuts.jsonl}"), profile="2.0.0a7",
    ),
)  # fmt: skip
def gzip_lines(context: Context) -> Iterator[Hit]:
    """JSON lines are gzipped."""
    lhotse = (context.facts.versions or {}).get("lhotse")
    key = version_key(lhotse) if lhotse else None
    old = not context.profile.gzip or (key is not None and _GZIP_AFTER is not None and key <= _GZIP_AFTER)
    for entry, spec in _each(context):
        if not spec.text.lower().endswith(".gz") or _tar(spec) or spec.text.startswith("pipe:"):
            continue
        if old:
            yield where_path(
                spec, f"{spec.key} is gzipped, which this lhotse cannot read by index.",
                fix="Decompress it, or move to a lhotse that reads gzip by index.", severity=Severity.FATAL,
            )  # fmt: skip
            continue
        yield from _gzip_today(context, entry, spec)
    if old:
        yield from _squeezed_folders(context, re.compile(r"\.jsonl\.gz$"), "gzipped cuts", "Decompress them.")


def _gzip_today(context: Context, entry: Entry, spec: PathSpec) -> Iterator[Hit]:
    versions = context.facts.versions
    if versions is not None and "indexed-gzip" not in versions:
        yield where_path(
            spec, f"{spec.key} is gzipped, and indexed_gzip is not installed.",
            fix="Install lhotse[gzip] where indexes are built and where training runs.",
        )  # fmt: skip
        return
    try:
        paths = expand(spec.text, _MOST_SPREAD)
    except BlendexError:
        return
    root = entry.get("indexes_root").value
    sides = [_companion(path, root) for path in paths]
    answers = context.lookups.stats([side for side in sides if side is not None])
    absent = [side for side, answer in answers.items() if isinstance(answer, BlendexError) and _missing(answer)]
    if absent:
        yield where_path(
            spec, f"{spec.key} is gzipped, and {absent[0][:200]} is not there.",
            fix="Build .idx and .gzidx with upstream's build_indexes.py: Blendex builds no .gzidx; or decompress it.",
        )  # fmt: skip
    elif any(answer is None or isinstance(answer, BlendexError) for answer in answers.values()):
        context.unknown(f"the .gzidx of {spec.text[:200]}", "a look at the folder of indexes")
    if versions is None:
        context.unknown("whether indexed_gzip is installed", "versions in the facts")


def _companion(path: str, root: Any) -> str | None:
    try:
        return index_path(path, root if isinstance(root, str) else None)[:-4] + ".gzidx"
    except ValueError:
        return None


def _missing(error: BlendexError) -> bool:
    return str(error.code) == "source_missing"


@rule(
    "IDX016",
    Severity.FATAL,
    title="Every source can be parted",
    where="entry.type",
    why="`txt`, `txt_pair`, `multi_speaker_simulator` and types of one's own have no indexed reader.",
    otherwise="In iterable training every rank and worker reads all of it.",
    source=NOTES,
    example=Example(bad=_entry("{type: txt, paths: /d/a.txt}"), good=_entry("{type: txt_jsonl, paths: /d/a.jsonl}")),
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
        bad=_entry("{type: nemotron_text_conversation, paths: /d/a.jsonl}"),
        good=_entry("{type: nemotron_text_converation, paths: /d/a.jsonl}"),
        fixed=_entry('{type: "nemotron_text_converation", paths: /d/a.jsonl}'),
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
        bad=_entry("{type: nemo_sft_jsonl, paths: /d/a.jsonl}"), good=_entry("{type: txt_jsonl, paths: /d/a.jsonl}")
    ),
)
def forgotten(context: Context) -> Iterator[Hit]:
    """``nemo_sft_jsonl``."""
    for entry in context.entries:
        if entry.type == "nemo_sft_jsonl":
            yield on(entry, "Upstream's builder of indexes passes over nemo_sft_jsonl.", key="type", value=entry.type,
                     fix="Build its indexes with Blendex, or by hand.")  # fmt: skip


def _pairs(entry: Entry) -> tuple[list[Source], list[Source]]:
    if not entry.native:
        return [], []
    return entry.of_kind("jsonl"), entry.of_kind("nemo_tar")


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
        bad=_entry(
            '{type: nemo_tarred, manifest_filepath: /d/manifest.json, tarred_audio_filepaths: "/d/audio_{0..3}.tar"}'
        ),
        good=_entry(
            '{type: nemo_tarred, manifest_filepath: "/d/manifest_{0..3}.json", tarred_audio_filepaths: '
            '"/d/audio_{0..3}.tar"}'
        ),
    ),
)
def aggregate(context: Context) -> Iterator[Hit]:
    """One manifest stands beside several tars, and no pack routes its rows."""
    for entry in context.entries:
        for manifests, tars in _groups(context, entry):
            if len(manifests) == 1 and len(tars) > 1 and _loose(entry) and (entry.training or entry.alone):
                yield on(
                    entry, f"One manifest serves {len(tars):,} tars, and no pack says which row belongs where.",
                    key="tarred_audio_filepaths", value=f"1 manifest, {len(tars):,} tars",
                    fix="Split the manifest by shard_id, or give the dataset a pack of version 3.",
                    severity=None if entry.training else Severity.WARNING,
                )  # fmt: skip
                break


def _groups(context: Context, entry: Entry) -> Iterator[tuple[list[str], list[str]]]:
    """The manifests and tars of an entry that one reader gets: all of them, or list item by list item."""
    if not entry.native:
        return
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
        bad=_entry(
            '{type: nemo_tarred, manifest_filepath: "/d/manifest_{0..1}.json", tarred_audio_filepaths: '
            '"/d/audio_{1..2}.tar"}'
        ),
        good=_entry(
            '{type: nemo_tarred, manifest_filepath: "/d/manifest_{0..1}.json", tarred_audio_filepaths: '
            '"/d/audio_{0..1}.tar"}'
        ),
    ),
)
def pairing(context: Context) -> Iterator[Hit]:
    """Names carry no numbers, or the numbers differ."""
    for entry in context.entries:
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
    "IDX021",
    Severity.ERROR,
    title="Items of path lists are single paths",
    where="entry.paths, shar_path, manifest_filepath of conversations",
    why="Upstream's builder expands every item, these readers open items as they are written.",
    otherwise="The run ends: no such file.",
    source=f"{OURS}; {CODE}, text_adapters.py; lists of nemo entries are expanded item by item and are left alone",
    patch="writes the item out in its place",
    example=Example(
        bad=_entry('{type: txt_jsonl, paths: ["/d/a_{0..1}.jsonl", /d/b.jsonl]}'),
        good=_entry('{type: txt_jsonl, paths: "/d/a_{0..1}.jsonl"}'),
        fixed=_entry('{type: txt_jsonl, paths: ["/d/a_0.jsonl", "/d/a_1.jsonl", /d/b.jsonl]}'),
    ),
)
def unexpanded(context: Context) -> Iterator[Hit]:
    """An item of a list holds a range."""
    for entry, spec in _each(context):
        if (
            not spec.listed
            or entry.native
            or entry.type in kinds.NATIVE
            or not any(m in spec.text for m in ("{", "_OP_"))
        ):
            continue
        if spec.form == "folder" and spec.key == "shar_path":
            continue
        try:
            paths = expand(spec.text, _MOST_SPREAD)
        except BlendexError:
            yield where_path(
                spec,
                f"An item of {spec.key} is a range too large to write out.",
                fix="Use a plain range instead of a list.",
            )
            continue
        if paths == [spec.text]:
            continue
        place = spec.spot.place
        # Where a variable is part of the path, writing it out would lose the variable.
        patchable = not spec.paired and isinstance(spec.step, int) and locate(place)[spec.step] == spec.text
        edits = (Edit(place.document, (*place.path, spec.step), tuple(paths), spread=True),) if patchable else ()
        yield where_path(
            spec, f"Training opens this item of {spec.key} as it is written.", wanted=f"{len(paths):,} single paths",
            fix="Write the paths out, one item each.", edits=edits,
        )  # fmt: skip


@rule(
    "IDX022",
    Severity.ERROR,
    title="No brackets in paths but ranges",
    where="every path of an entry",
    why="Upstream turns `( [ <` and `) ] >` into braces before it expands.",
    otherwise="It opens another path than the one that is written.",
    source=f"{OURS}; {CODE}, expand_sharded_filepaths",
    example=Example(bad=_entry('{type: nemo, manifest_filepath: "/d/set (old)/a.json"}'), good=_GOOD),
)
def brackets(context: Context) -> Iterator[Hit]:
    """A bracket in a path is no range."""
    for _, spec in _each(context):
        if not any(mark in spec.text for mark in "([<)]>") or spec.text.startswith("pipe:"):
            continue
        try:
            paths = expand(spec.text, _MOST_SPREAD)
        except BlendexError:
            paths = [rewritten(spec.text)]
        if any(mark in paths[0] for mark in "{}"):
            placeholder = re.search(r"<[A-Za-z][\w \-]*>", spec.text)
            message = f"Upstream reads the brackets as braces and opens {paths[0][:200]}."
            if placeholder:
                message = f"{placeholder.group()} looks like a placeholder that was not filled in. {message}"
            yield where_path(spec, message, fix="Rename the folder, or fill the placeholder in.")


@rule(
    "IDX023",
    Severity.FATAL,
    title="Inner lists are [path, weight]",
    where="manifest_filepath and other lists of lists",
    why="Of an inner list only the first item is read, and a number as its weight.",
    otherwise="Data is left out in silence.",
    source=f"{OURS}; {CODE}, build_indexes.py and read_nemo_manifest",
    blend=True,
    example=Example(
        bad=_entry("{type: nemo, manifest_filepath: [[/d/a.json, /d/b.json]]}"),
        good=_entry("{type: nemo, manifest_filepath: [[/d/a.json], [/d/b.json]]}"),
    ),
)
def inner_lists(context: Context) -> Iterator[Hit]:
    """An inner list holds more than a path and a weight."""
    for _, spec in _each(context):
        if spec.lost:
            yield where_path(
                spec, f"{spec.lost} more item(s) of this inner list of {spec.key} are dropped.",
                fix="Give each path a list of its own.",
            )  # fmt: skip


@rule(
    "IDX027",
    Severity.FATAL,
    title="JSON lines are named .json or .jsonl",
    where="every path of JSON lines",
    why="The indexed reader of lhotse refuses other names; upstream's builder takes them.",
    otherwise="The run ends at its start.",
    source=f"{OURS}; lhotse 2.0.0a7, lhotse/indexing.py",
    blend=True,
    example=Example(
        bad=_entry("{type: txt_jsonl, paths: /d/a.txt}"), good=_entry("{type: txt_jsonl, paths: /d/a.jsonl}")
    ),
)
def names_of_lines(context: Context) -> Iterator[Hit]:
    """No suffix is .json or .jsonl."""
    for entry in context.entries:
        for source in entry.of_kind("jsonl"):
            if not {".json", ".jsonl"} & set(PurePosixPath(source.path).suffixes):
                yield on(
                    entry, f"{source.path[:200]} has neither .json nor .jsonl in its name.",
                    key=next((spec.key for spec in context.specs(entry) if spec.form != "tar"), None),
                    value=source.path[:200],
                    fix="Rename the file.",
                )  # fmt: skip
                break


@rule(
    "IDX028",
    Severity.ERROR,
    title="Rows of tars carry rate and duration",
    where="rows of nemo_tarred, train_ds.input_sampling_rate",
    why="Audio in tars is opened only when a batch needs it; until then rate and duration come from the row.",
    otherwise="The run ends at the first such row (ValueError).",
    source=f"{OURS}; {CODE}, nemo_adapters.py",
    example=Example(
        bad=_entry(
            "{type: nemo_tarred, manifest_filepath: /d/manifest_0.json, tarred_audio_filepaths: /d/audio_0.tar}"
        ),
        good="data:\n  train_ds:\n    input_sampling_rate: 16000\n    input_cfg:\n      - {type: nemo_tarred, "
        "manifest_filepath: /d/manifest_0.json, tarred_audio_filepaths: /d/audio_0.tar}\n",
        nested={"/d/manifest_0.json": '{"audio_filepath": "a.wav", "duration": 1.0}\n'},
    ),
)
def lazy_rows(context: Context) -> Iterator[Hit]:
    """The first row of an entry lacks what lazy reading needs. Its text is looked at, never told."""
    looked = 0
    for entry in context.entries:
        if not entry.native or not (entry.training or entry.alone) or not entry.of_kind("jsonl"):
            continue
        looked += 1
        path = entry.of_kind("jsonl")[0].path
        row = _first_row(context, path) if looked <= _MOST_ROWS else None
        if row is None:
            context.unknown("whether rows carry sampling_rate and duration", "a look at the first row of each manifest")
            continue
        lacking = [] if "duration" in row else ["duration"]
        rate = entry.own("input_sampling_rate")
        section_rate = entry.section.get("input_sampling_rate") if entry.section is not None else None
        given = any(setting is not None and setting.value is not None for setting in (rate, section_rate))
        if "sampling_rate" not in row and not given and not entry.alone:
            lacking.append("sampling_rate")
        if lacking:
            yield on(
                entry, f"The first row of its first manifest has no {' and no '.join(lacking)}.",
                key="manifest_filepath", value=f"row without {', '.join(lacking)}",
                fix="Write both into the rows, or set input_sampling_rate where all audio has one rate.",
            )  # fmt: skip


def _first_row(context: Context, path: str) -> dict[str, Any] | None:
    address = context.lookups.address(path)
    if address is None:
        return None
    try:
        head = context.ground.head(address, _ROW)
        row = orjson.loads(head.partition(b"\n")[0])
    except (BlendexError, orjson.JSONDecodeError):
        return None
    return row if isinstance(row, dict) else None


@rule(
    "IDX114",
    Severity.ERROR,
    title="No globs and no tilde",
    where="every path of an entry",
    why="Nothing expands `*`, `?` or `~` when data is loaded.",
    otherwise="The run ends: no such file.",
    source=OURS,
    example=Example(bad=_entry('{type: nemo, manifest_filepath: "~/a_*.json"}'), good=_GOOD),
)
def globs(context: Context) -> Iterator[Hit]:
    """A path holds ``*``, or begins with ``~``."""
    for _, spec in _each(context):
        if ("*" in spec.text or spec.text.startswith("~")) and not spec.text.startswith("pipe:"):
            yield where_path(spec, f"{spec.key} is taken literally: * and ~ stand for nothing.",
                             fix="Write a range such as {0..9}, or the full path.")  # fmt: skip


@rule(
    "IDX117",
    Severity.ERROR,
    title="Shar fields have the same number of shards",
    where="entry.shar_path",
    why="Shards of fields are read beside each other.",
    otherwise="Shards at the end are left out, or reading ends with an error.",
    source=OURS,
    example=Example(
        bad=_entry(
            '{type: lhotse_shar, shar_path: {cuts: "/d/cuts.{0..2}.jsonl", recording: "/d/recording.{0..1}.tar"}}'
        ),
        good=_entry(
            '{type: lhotse_shar, shar_path: {cuts: "/d/cuts.{0..1}.jsonl", recording: "/d/recording.{0..1}.tar"}}'
        ),
    ),
)
def shar_fields(context: Context) -> Iterator[Hit]:
    """The fields of a Shar map differ in their number of shards."""
    for entry in context.entries:
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
