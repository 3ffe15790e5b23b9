"""What sources hold: lines that are no records, members that no index reaches, rows that lack a value."""

from __future__ import annotations

from collections.abc import Iterator

from blendex.blend.model import Source
from blendex.formats.findings import FINDINGS
from blendex.formats.findings import Finding as InSource
from blendex.formats.findings import Severity as Weight
from blendex.lint.context import Context
from blendex.lint.ground import Seen
from blendex.lint.looks import Rows
from blendex.lint.model import Severity
from blendex.lint.rule import CODE, OURS, Example, Hit, on, rule
from blendex.lint.rules.examples import one_entry as config
from blendex.lint.scopes import Entry

_UNREADABLE = frozenset(("blank_line", "blank_record", "bom", "nul_byte", "not_utf8", "not_an_object", "half_line"))
_REFUSED = frozenset(name for name, item in FINDINGS.items() if item.severity is Weight.REFUSE)
_BLANK = (
    "A blank line is a record of upstream's index and fails when it is drawn, and upstream's packer refuses it; an "
    "index by Blendex leaves it out.",
    "Remove the blank lines, or write an exception where all indexes are by Blendex.",
)
# Of so many manifests at least the first row is looked at.
_MOST_MANIFESTS = 2000


def _content(context: Context, jsonl: bool) -> Iterator[Hit]:
    """What somebody has found in the sources, or a look of our own."""
    weighs = _UNREADABLE if jsonl else _REFUSED
    everything = [source for source in context.sources if _is(source, jsonl)]
    seen = {source: seen for source, seen in _seen(context).items() if _is(source, jsonl)}
    whole = sum(item.whole for item in seen.values())
    if whole < len(everything):
        kind = "JSON lines" if jsonl else "tars"
        here = any(context.lookups.address(source.path) is not None for source in everything)
        needs = "a build of this blend, which reads all of it" if here else "sources that can be read here"
        context.unknown(f"the whole content of {len(everything) - whole:,} of {len(everything):,} {kind}", needs)
    weighty = {source for source, item in seen.items() if _bad(item, weighs)}
    for entry in context.entries if weighty else ():
        bad = [(source, seen[source]) for source in entry.sources if source in weighty]
        if bad:
            yield _told(entry, bad, weighs, fatal=jsonl and entry.get("index_pack").value is not None)


def _seen(context: Context) -> dict[Source, Seen]:
    if "content" not in context.memory:
        context.memory["content"] = context.looks.content(context.entries)
    found: dict[Source, Seen] = context.memory["content"]
    return found


def _is(source: Source, jsonl: bool) -> bool:
    return (source.kind == "jsonl") is jsonl and source.kind != "sharegpt_route"


def _bad(seen: Seen, weighs: frozenset[str]) -> list[InSource]:
    """What weighs; an error stands for the worst of all."""
    found = [item for item in seen.findings if item.name in weighs]
    return found if found or seen.error is None else [InSource(str(seen.error.code), 1, 0)]


def _told(entry: Entry, bad: list[tuple[Source, Seen]], weighs: frozenset[str], *, fatal: bool) -> Hit:
    (source, seen), more = bad[0], len(bad) - 1
    first = _bad(seen, weighs)[0]
    if first.name == "blank_line":
        effect, remedy = _BLANK
    elif first.name in FINDINGS:
        effect, remedy = FINDINGS[first.name].effect, FINDINGS[first.name].remedy
    else:
        assert seen.error is not None
        effect, remedy = seen.error.message.rstrip(".") + ".", seen.error.next_step
    others = f" So it is with {more:,} more of its sources." if more else ""
    return on(
        entry, f"{source.path[:200]}: {effect}{others}", value=f"{first.count:,} × {first.name}",
        fix=remedy, severity=Severity.FATAL if fatal and first.name != "blank_line" else None,
    )  # fmt: skip


@rule(
    "IDX025",
    Severity.ERROR,
    title="Every line is a record",
    where="content of JSON lines",
    why="Blank, half and unreadable lines are records too, for the index. What a build has read is known; other files "
    "that are here are looked at, in part where they are many or large.",
    otherwise="The draw of such a record ends the run; packs refuse the file.",
    source=f"{OURS}; lhotse 2.0.0a7, IndexedJsonlReader",
    example=Example(
        bad=config("{type: nemo, manifest_filepath: /d/a.json}"),
        good=config("{type: nemo, manifest_filepath: /d/b.json}"),
        nested={"/d/a.json": '{"audio_filepath": "a.wav", "dur', "/d/b.json": '{"audio_filepath": "a.wav"}\n'},
    ),
)
def content_of_lines(context: Context) -> Iterator[Hit]:
    """Lines that are no records."""
    yield from _content(context, True)


@rule(
    "IDX026",
    Severity.ERROR,
    title="Every member of a tar is reached",
    where="content of tars",
    why="Upstream's indexes merge members of one stem, skip sparse ones, and end at a broken header. What a build has "
    "read is known; of other tars that are here the headers are looked at, of the first ones of each entry.",
    otherwise="Examples are missing, or bytes of another one are read.",
    source=f"{OURS}; nemo-toolkit 3.0.0 and {CODE}, indexed_adapters.py",
    example=Example(
        bad=config(
            "{type: nemo_tarred, manifest_filepath: /d/manifest_0.json, tarred_audio_filepaths: /d/audio_0.tar}"
        ),
        good=config(
            "{type: nemo_tarred, manifest_filepath: /d/manifest_1.json, tarred_audio_filepaths: /d/audio_1.tar}"
        ),
        findings={"/d/audio_0.tar": [("merged_directories", 2)], "/d/audio_1.tar": []},
    ),
)
def content_of_tars(context: Context) -> Iterator[Hit]:
    """Members that an index cannot reach."""
    yield from _content(context, False)


@rule(
    "IDX028",
    Severity.ERROR,
    title="Rows of tars carry rate and duration",
    where="rows of nemo_tarred, train_ds.input_sampling_rate",
    why="Audio in tars is opened only when a batch needs it; until then rate and duration come from the row. Of the "
    "first manifests of each entry the rows are looked at, of the others the first row.",
    otherwise="The run ends at the first such row (ValueError).",
    source=f"{OURS}; {CODE}, nemo_adapters.py",
    example=Example(
        bad=config(
            "{type: nemo_tarred, manifest_filepath: /d/manifest_0.json, tarred_audio_filepaths: /d/audio_0.tar}"
        ),
        good="data:\n  train_ds:\n    input_sampling_rate: 16000\n    input_cfg:\n      - {type: nemo_tarred, "
        "manifest_filepath: /d/manifest_0.json, tarred_audio_filepaths: /d/audio_0.tar}\n",
        nested={"/d/manifest_0.json": '{"audio_filepath": "a.wav", "duration": 1.0}\n'},
    ),
)
def lazy_rows(context: Context) -> Iterator[Hit]:
    """Rows of an entry lack what lazy reading needs. Their text is looked at, never told."""
    entries = [entry for entry in context.entries if entry.native and (entry.training or entry.alone)]
    _seen(context)
    left = _MOST_MANIFESTS
    unseen = total = 0
    for entry in entries:
        manifests = entry.of_kind("jsonl")
        seen: list[Rows] = []
        for manifest in manifests[: max(1, left // len(entries))] if left > 0 else ():
            left -= 1
            rows = context.looks.rows(manifest)
            seen += [rows] if rows is not None else []
        total += len(manifests)
        unseen += len(manifests) - len(seen)
        lacking = _lacking(entry, seen)
        if lacking:
            told = ", ".join(f"{count:,} without {key}" for key, count in lacking.items())
            yield on(
                entry, f"Of {sum(rows.seen for rows in seen):,} rows that were looked at, some lack a value: {told}.",
                key="manifest_filepath", value=f"rows without {' and '.join(lacking)}",
                fix="Write both into the rows, or set input_sampling_rate where all audio has one rate.",
            )  # fmt: skip
    if unseen:
        context.unknown(
            f"whether rows of {unseen:,} of {total:,} manifests carry sampling_rate and duration", "a look at them"
        )


def _lacking(entry: Entry, seen: list[Rows]) -> dict[str, int]:
    section = entry.section.get("input_sampling_rate") if entry.section is not None else None
    given = any(item is not None and item.value is not None for item in (entry.own("input_sampling_rate"), section))
    keys = ("duration",) if given or entry.alone else ("duration", "sampling_rate")
    counts = {key: sum(rows.lacking.get(key, 0) for rows in seen) for key in keys}
    return {key: count for key, count in counts.items() if count}
