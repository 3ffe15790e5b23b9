"""The blend as a whole: what is readable at all, weights, collisions, mixtures, content."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from blendex.blend.load import SeqNode
from blendex.blend.model import Pointer, Problem, Source
from blendex.errors import Code
from blendex.lint import kinds
from blendex.lint.context import Context
from blendex.lint.model import Severity
from blendex.lint.rule import CODE, OURS, Example, Hit, at, on, rule
from blendex.lint.rules.examples import listing
from blendex.lint.scopes import Entry, Scope, Section, once

# Problems of discovery that rules of their own tell better.
_TOLD = {Code.UNKNOWN_TYPE, Code.PATH_COMPRESSED, Code.PATH_UNSUPPORTED}
_IGNORED = "is ignored by training, because"


def _of(context: Context, problem: Problem) -> tuple[Any, Pointer]:
    """The file that a problem stands in, and the path of its entry there."""
    place = None
    try:
        place = context.place(problem.pointer)
    except (KeyError, IndexError):
        place = context.place(())
    return place.document, place.path


@rule(
    "IDX109",
    Severity.ERROR,
    title="Training can read every entry",
    where="every entry",
    why="A misspelt key, a variable that nobody sets, a nested blend that is not there: what is behind it "
    "is not trained on.",
    otherwise="The run ends at its start, or data is missing in silence.",
    source="blend discovery of Blendex, after build_indexes.py of NeMo Speech main at c03be830",
    example=Example(
        bad=listing(
            "- {type: nemo_tarred, manifest_filepath: /d/manifest_0.json, tarred_audio_filepath: /d/audio_0.tar}"
        ),
        good=listing(
            "- {type: nemo_tarred, manifest_filepath: /d/manifest_0.json, tarred_audio_filepaths: /d/audio_0.tar}"
        ),
    ),
)
def readable(context: Context) -> Iterator[Hit]:
    """Discovery has found something wrong with an entry."""
    for problem in context.discovery.problems:
        if problem.code in _TOLD or _told_elsewhere(problem):
            continue
        document, path = _of(context, problem)
        line = problem.line or 0
        other = problem.file if problem.file and problem.file != document.name else ""
        yield Hit(
            document, path, problem.pointer, problem.message, fix=problem.next_step, value=str(problem.code),
            file=other or document.name, line=line,
        )  # fmt: skip


def _told_elsewhere(problem: Problem) -> bool:
    return problem.code is Code.BAD_VALUE and "holds an inner list whose item" in problem.message


@rule(
    "IDX112",
    Severity.WARNING,
    title="Every key is read",
    where="entries and sections",
    why="Training opens one of several ways to name data, and passes over the others.",
    otherwise="Data is missing in silence.",
    source=f"{OURS}; {CODE}, read_cutset_from_config",
    example=Example(
        bad=listing("- {type: lhotse_shar, shar_path: {cuts: /d/c.jsonl}, manifest_filepath: /d/a.json}"),
        good=listing("- {type: lhotse_shar, shar_path: {cuts: /d/c.jsonl}}"),
    ),
)
def unread(context: Context) -> Iterator[Hit]:
    """A key that names data is ignored."""
    for problem in context.discovery.warnings:
        if _IGNORED in problem.message:
            document, path = _of(context, problem)
            key = problem.message.partition(" ")[0]
            yield Hit(document, (*path, key), (*problem.pointer, key), problem.message, fix=problem.next_step)


@rule(
    "IDX111", Severity.ERROR,
    title="The config is composed", where="defaults",
    why="A `defaults` list names other files that Hydra puts together; most of the config is elsewhere.",
    otherwise="What is linted is not what is trained.",
    source=OURS,
    example=Example(bad="defaults: [base]\n" + listing("- {type: nemo, manifest_filepath: /d/a.json}"),
                    good=listing("- {type: nemo, manifest_filepath: /d/a.json}")),
)  # fmt: skip
def composed(context: Context) -> Iterator[Hit]:
    """The file has a ``defaults`` list."""
    if context.root is not None and "defaults" in context.root.node:
        yield on(context.root, "The file is a Hydra config that is not composed.", key="defaults",
                 fix="Lint the composed config, as printed by --cfg job --resolve.")  # fmt: skip


@rule(
    "IDX053",
    Severity.ERROR,
    title="All siblings have weights, or none",
    where="lists of entries",
    why="Upstream asserts it.",
    otherwise="The run ends at its start.",
    source=f"{OURS}; {CODE}, parse_and_combine_datasets",
    example=Example(
        bad=listing(
            "- {type: nemo, manifest_filepath: /d/a.json, weight: 1}\n- {type: nemo, manifest_filepath: /d/b.json}"
        ),
        good=listing("- {type: nemo, manifest_filepath: /d/a.json}\n- {type: nemo, manifest_filepath: /d/b.json}"),
    ),
)
def weights(context: Context) -> Iterator[Hit]:
    """Some siblings have a weight and others none."""
    for _, items in context.lists:
        scopes = [scope for scope in (context.item(pointer) for pointer in items) if scope is not None]
        weighted = [scope.node.get("weight") is not None for scope in scopes]
        if any(weighted) and not all(weighted):
            for scope, given in zip(scopes, weighted, strict=True):
                if not given:
                    yield on(scope, "The entry has no weight while others of its list do.", key="weight",
                             fix="Give every entry of the list a weight, or none.")  # fmt: skip


@rule(
    "IDX110", Severity.WARNING,
    title="Weights are plain numbers of at least 0", where="entry.weight",
    why="Upstream multiplies and normalises them.",
    otherwise="The run ends at its start, or the mixture is another one.",
    source=f"{OURS}; {CODE}, cutset.py",
    example=Example(bad=listing("- {type: nemo, manifest_filepath: /d/a.json, weight: -1}"),
                    good=listing("- {type: nemo, manifest_filepath: /d/a.json, weight: 0.5}")),
)  # fmt: skip
def weight_values(context: Context) -> Iterator[Hit]:
    """A weight is no finite number of at least 0."""
    for _, items in context.lists:
        for pointer in items:
            scope = context.item(pointer)
            setting = scope.own("weight") if scope is not None else None
            if setting is None or not setting.known or setting.value is None:
                continue
            value = setting.value
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not math.isfinite(value) or value < 0:
                yield at(setting, "The weight is not a finite number of at least 0.", fix="Write a plain number.")


@rule(
    "IDX054",
    Severity.ERROR,
    title="One temperature for each level",
    where="train_ds.reweight_temperature",
    why="A list must have as many items as `input_cfg` has levels.",
    otherwise="The run ends at its start (ValueError).",
    source=f"{OURS}; {CODE}, validate_and_standardize_reweight_temperature",
    example=Example(
        bad="train_ds:\n  reweight_temperature: [1.0, 0.5]\n  input_cfg: [{type: nemo, manifest_filepath: "
        "/d/a.json}]\n",
        good="train_ds:\n  reweight_temperature: [1.0]\n  input_cfg: [{type: nemo, manifest_filepath: /d/a.json}]\n",
    ),
)
def temperature(context: Context) -> Iterator[Hit]:
    """The list is not as long as the blend is deep."""
    for part in context.training:
        setting = part.get("reweight_temperature")
        if not isinstance(setting.value, SeqNode):
            continue
        start = len(part.spot.pointer)
        deepest = max((_depth(entry.spot.pointer[start:]) for entry in part.entries), default=0)
        if deepest and len(setting.value) != deepest:
            yield at(
                setting, f"It has {len(setting.value)} items, and the blend {deepest} "
                         "levels.", wanted=f"{deepest} items",
                fix="Give one number for each level, or one for all.",
            )  # fmt: skip


def _depth(pointer: Pointer) -> int:
    return sum(isinstance(step, int) for step in pointer)


@rule(
    "IDX056",
    Severity.ERROR,
    title="A list does not mix tarred and plain audio unforced",
    where="lists of entries",
    why="Upstream takes the flavour of the dataset from whether the data is tarred, and refuses a list of "
    "both unless told.",
    otherwise="The run ends at its start (ValueError).",
    source=f"{OURS}; {CODE}, parse_and_combine_datasets",
    patch="sets `force_iterable_dataset: true` on the training section (`force_map_dataset: true` for the "
    "older profile)",
    example=Example(
        bad="train_ds:\n  seed: 1\n  input_cfg:\n    - {type: nemo, manifest_filepath: /d/a.json}\n"
        "    - {type: lhotse_shar, shar_path: {cuts: /d/c.jsonl}}\n",
        good="train_ds:\n  force_iterable_dataset: true\n  input_cfg:\n    - {type: nemo, "
        "manifest_filepath: /d/a.json}\n"
        "    - {type: lhotse_shar, shar_path: {cuts: /d/c.jsonl}}\n",
        fixed="train_ds:\n  seed: 1\n  force_iterable_dataset: true\n  input_cfg:\n"
        "    - {type: nemo, manifest_filepath: /d/a.json}\n"
        "    - {type: lhotse_shar, shar_path: {cuts: /d/c.jsonl}}\n",
    ),
)
def mixed(context: Context) -> Iterator[Hit]:
    """A list holds tarred and plain entries, and no flavour is forced."""
    for pointer, items in context.lists:
        section = context.section_of(pointer)
        if section is None or section.role == "blend":
            continue
        states = [(item, _tarred(context, item)) for item in items]
        known = [(item, state) for item, state in states if state is not None]
        odd = next((item for item, state in known if state != known[0][1]), None)
        if odd is None or _forced(context, section, odd):
            continue
        scope = context.item(odd)
        if scope is None:
            continue
        key = (
            "force_map_dataset" if section.role == "eval" or context.profile.map_training else "force_iterable_dataset"
        )
        yield on(
            scope, "The list mixes tarred and plain audio, and no flavour of dataset is forced.",
            value="tarred" if dict(known)[odd] else "plain", wanted=f"{section.name}.{key}: true",
            fix=f"Set {key}: true on {section.name}.", edits=(section.get(key).set(True),),
        )  # fmt: skip


def _tarred(context: Context, pointer: Pointer) -> bool | None:
    """Whether an item counts as tarred; a group is what its first entry is."""
    scope = context.item(pointer)
    if isinstance(scope, Entry):
        return kinds.tarred(scope.type, scope.has)
    first = context.first_leaf.get(pointer)
    return kinds.tarred(first.type, first.has) if first is not None else None


def _forced(context: Context, section: Section, item: Pointer) -> bool:
    """Whether a flavour is forced for the list that ``item`` stands in."""
    scopes: list[Scope] = [section]
    for length in range(len(section.spot.pointer) + 1, len(item)):
        if isinstance(item[length - 1], int):
            scope = context.item(item[:length])
            scopes += [scope] if scope is not None else []
    return any(
        scope.get(key).value is True for scope in scopes for key in ("force_map_dataset", "force_iterable_dataset")
    )


@rule(
    "IDX119",
    Severity.WARNING,
    title="Plain audio is iterated only when told",
    where="train_ds.force_iterable_dataset",
    why=(
        "Where the first entry is plain audio, upstream makes a map-style dataset, by index or not, unless "
        "told otherwise."
    ),
    otherwise="Training is map-style with force_map_dataset: false.",
    source=f"{OURS}; {CODE}, determine_use_iterable_dataset and read_lhotse_manifest",
    profiles=("main",),
    example=Example(
        bad="train_ds:\n  indexed: true\n  input_cfg: [{type: lhotse, cuts_path: /d/c.jsonl}]\n",
        good="train_ds:\n  force_iterable_dataset: true\n  input_cfg: [{type: lhotse, cuts_path: /d/c.jsonl}]\n",
    ),
)
def plain_first(context: Context) -> Iterator[Hit]:
    """The first entry is plain, no list is mixed, and no flavour is forced."""
    mixed_sections = {id(context.section_of(hit.pointer)) for hit in mixed(context)}
    for part in context.training:
        entries = part.entries
        if not entries or id(part) in mixed_sections or part.get("force_map_dataset").value is True:
            continue
        setting = part.get("force_iterable_dataset")
        if kinds.tarred(entries[0].type, entries[0].has) is False and setting.known and setting.value is not True:
            yield at(
                setting,
                "The audio is plain, so upstream makes a map-style dataset.",
                wanted="true",
                fix="Set force_iterable_dataset: true.",
            )


@rule(
    "IDX024",
    Severity.FATAL,
    title="Every source has an index of its own",
    where="all sources",
    why="The rule that names indexes drops scheme, host and leading slashes, and `.idx` says nothing of the kind.",
    otherwise="One index overwrites another in silence.",
    source=f"{OURS}; lhotse 2.0.0a7, index_file_path",
    blend=True,
    example=Example(
        bad=listing(
            "- {type: nemo, manifest_filepath: s3://b/a.json, indexes_root: /i}\n- {type: nemo, "
            "manifest_filepath: /b/a.json, indexes_root: /i}"
        ),
        good=listing(
            "- {type: nemo, manifest_filepath: s3://b/a.json, indexes_root: /i}\n- {type: nemo, "
            "manifest_filepath: /c/a.json, indexes_root: /i}"
        ),
    ),
)
def collisions(context: Context) -> Iterator[Hit]:
    """Two sources have one index."""
    places: dict[str, tuple[Source, Any]] = {}
    for entry in context.entries:
        root = entry.get("indexes_root")
        # Where nothing is set a mirror will be: one folder for all.
        folder = root.value if isinstance(root.value, str) else "/"
        told = False
        for source in entry.sources:
            place = context.lookups.index_of(source, folder)
            if place is None:
                continue
            address = context.lookups.address(source.path) or source.path
            other, where = places.setdefault(place, (source, address))
            if told or (other.kind == source.kind and where == address):
                continue
            told = True
            yield on(
                entry, f"{source.path[:200]} ({source.kind}) and {other.path[:200]} ({other.kind}) have one index.",
                value=place[-200:], fix="Give one of the two an indexes_root of its own.",
            )  # fmt: skip


@rule(
    "IDX108", Severity.NOTE,
    title="Relative blends of a config", where="train_ds.input_cfg",
    why="Training looks for a blend that the config names by a relative path in its working folder; upstream's builder "
    "of indexes looks beside the config.",
    otherwise="The two read different files.",
    source=f"{OURS}; {CODE}, build_indexes.py",
    example=Example(bad="train_ds:\n  input_cfg: blend.yaml\n", good="train_ds:\n  input_cfg: /cfg/blend.yaml\n",
                    nested={"/cfg/blend.yaml": "- {type: nemo, manifest_filepath: /d/a.json}\n"}),
)  # fmt: skip
def relative_blend(context: Context) -> Iterator[Hit]:
    """The blend of a config is named by a relative path."""
    for setting in once(part.get("input_cfg") for part in context.training + context.evaluation):
        value = setting.value
        if not isinstance(value, str) or value == "???" or value.startswith("/") or "://" in value:
            continue
        yield at(setting, "Training looks for this blend in its working folder.", wanted="an absolute path",
                 fix="Write an absolute path, or start training in the folder of the config.")  # fmt: skip
