"""Paths that cannot be read by index, or that training reads otherwise than they are meant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from blendex.blend.index_path import index_path
from blendex.blend.interpolate import locate
from blendex.blend.patterns import expand, rewritten
from blendex.errors import BlendexError
from blendex.lint import kinds
from blendex.lint.context import Context
from blendex.lint.facts import version_key
from blendex.lint.model import Edit, Severity
from blendex.lint.paths import PathSpec
from blendex.lint.rule import CODE, NOTES, OURS, Example, Hit, on, rule, where_path
from blendex.lint.rules.examples import GOOD, one_entry
from blendex.lint.scopes import Entry

_TAR_SQUEEZED = re.compile(r"\.(?:tgz|tbz2?|txz|tar\.(?:gz|bz2|xz|lz4|zst))$", re.IGNORECASE)
_SQUEEZED = re.compile(r"\.(gz|bz2|xz|lz4|zst)$", re.IGNORECASE)
_MOST_SPREAD = 4096
# Before it gzip could not be read by index; no version that can has been published under a number so far.
_GZIP_AFTER = version_key("2.0.0a7")


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
        bad=one_entry('{type: nemo, manifest_filepath: "pipe:cat /d/a.json"}'),
        good=GOOD,
    ),
)
def pipes(context: Context) -> Iterator[Hit]:
    """A path begins with ``pipe:``."""
    for _, spec in context.odd_paths:
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
        bad=one_entry(
            "{type: nemo_tarred, manifest_filepath: /d/manifest_0.json, tarred_audio_filepaths: /d/audio_0.tar.gz}"
        ),
        good=one_entry(
            "{type: nemo_tarred, manifest_filepath: /d/manifest_0.json, tarred_audio_filepaths: /d/audio_0.tar}"
        ),
    ),
)
def compressed_tars(context: Context) -> Iterator[Hit]:
    """The name of a tar says that it is compressed."""
    for _, spec in context.odd_paths:
        if spec.text.startswith("pipe:"):
            continue
        squeezed = _TAR_SQUEEZED.search(spec.text) or (spec.form == "tar" and _SQUEEZED.search(spec.text))
        if squeezed:
            yield where_path(spec, f"{spec.key} names compressed tars.", fix="Decompress them and name the plain tars.")
    yield from _squeezed_folders(context, re.compile(r"\.tar\.\w+$|\.tgz$"), "compressed tars", "Decompress them.")


def _squeezed_folders(context: Context, pattern: re.Pattern[str], what: str, fix: str) -> Iterator[Hit]:
    """Shar folders that hold compressed shards: readers of a folder pass over them in silence."""
    for _, spec in context.odd_paths:
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
        bad=one_entry("{type: lhotse, cuts_path: /d/cuts.jsonl.zst}"),
        good=one_entry("{type: lhotse, cuts_path: /d/cuts.jsonl}"),
    ),
)
def compressed_lines(context: Context) -> Iterator[Hit]:
    """The name of JSON lines ends in a compression other than gzip."""
    for _, spec in context.odd_paths:
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
        bad=one_entry("{type: lhotse, cuts_path: /d/cuts.jsonl.gz}"),
        good=one_entry("{type: lhotse, cuts_path: /d/cuts.jsonl}"), profile="2.0.0a7",
    ),
)  # fmt: skip
def gzip_lines(context: Context) -> Iterator[Hit]:
    """JSON lines are gzipped."""
    lhotse = (context.facts.versions or {}).get("lhotse")
    key = version_key(lhotse) if lhotse else None
    old = not context.profile.gzip or (key is not None and _GZIP_AFTER is not None and key <= _GZIP_AFTER)
    for entry, spec in context.odd_paths:
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
    "IDX021",
    Severity.ERROR,
    title="Items of path lists are single paths",
    where="entry.paths, shar_path, manifest_filepath of conversations",
    why="Upstream's builder expands every item, these readers open items as they are written.",
    otherwise="The run ends: no such file.",
    source=f"{OURS}; {CODE}, text_adapters.py; lists of nemo entries are expanded item by item and are left alone",
    patch="writes the item out in its place",
    example=Example(
        bad=one_entry('{type: txt_jsonl, paths: ["/d/a_{0..1}.jsonl", /d/b.jsonl]}'),
        good=one_entry('{type: txt_jsonl, paths: "/d/a_{0..1}.jsonl"}'),
        fixed=one_entry('{type: txt_jsonl, paths: ["/d/a_0.jsonl", "/d/a_1.jsonl", /d/b.jsonl]}'),
    ),
)
def unexpanded(context: Context) -> Iterator[Hit]:
    """An item of a list holds a range."""
    for entry, spec in context.odd_paths:
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
    example=Example(bad=one_entry('{type: nemo, manifest_filepath: "/d/set (old)/a.json"}'), good=GOOD),
)
def brackets(context: Context) -> Iterator[Hit]:
    """A bracket in a path is no range."""
    for _, spec in context.odd_paths:
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
        bad=one_entry("{type: nemo, manifest_filepath: [[/d/a.json, /d/b.json]]}"),
        good=one_entry("{type: nemo, manifest_filepath: [[/d/a.json], [/d/b.json]]}"),
    ),
)
def inner_lists(context: Context) -> Iterator[Hit]:
    """An inner list holds more than a path and a weight."""
    for _, spec in context.odd_paths:
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
        bad=one_entry("{type: txt_jsonl, paths: /d/a.txt}"), good=one_entry("{type: txt_jsonl, paths: /d/a.jsonl}")
    ),
)
def names_of_lines(context: Context) -> Iterator[Hit]:
    """No suffix is .json or .jsonl."""
    lines = (source.path for source in context.sources if source.kind == "jsonl")
    if all(path.endswith((".json", ".jsonl")) for path in lines):
        return  # nearly always
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
    "IDX114",
    Severity.ERROR,
    title="No globs and no tilde",
    where="every path of an entry",
    why="Nothing expands `*`, `?` or `~` when data is loaded.",
    otherwise="The run ends: no such file.",
    source=OURS,
    example=Example(bad=one_entry('{type: nemo, manifest_filepath: "~/a_*.json"}'), good=GOOD),
)
def globs(context: Context) -> Iterator[Hit]:
    """A path holds ``*``, or begins with ``~``."""
    for _, spec in context.odd_paths:
        if ("*" in spec.text or spec.text.startswith("~")) and not spec.text.startswith("pipe:"):
            yield where_path(spec, f"{spec.key} is taken literally: * and ~ stand for nothing.",
                             fix="Write a range such as {0..9}, or the full path.")  # fmt: skip
