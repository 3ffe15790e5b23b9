"""Validation and test sections: finite, map-style, without a state."""

from __future__ import annotations

from collections.abc import Iterator

from blendex.lint.context import Context
from blendex.lint.model import Severity
from blendex.lint.rule import CODE, NOTES, Example, Hit, at, needs, rule
from blendex.lint.scopes import Section, dotted, once

_ENTRY = "  input_cfg: [{type: nemo, manifest_filepath: /d/v.json}]\n"


def _indexed(part: Section) -> bool:
    """Whether any source of a section is read by index: told so, or by Lhotse's own rule for cuts and Shar."""
    if part.get("indexed").value is True or any(entry.get("indexed").value is True for entry in part.entries):
        return True
    return part.get("indexes_root").value is not None and any(
        entry.get("indexed").value is None and (entry.has("cuts_path") or entry.has("shar_path"))
        for entry in part.entries
    )


@rule(
    "IDX039",
    Severity.ERROR,
    title="Indexed validation is finite and map-style",
    where="validation_ds.force_map_dataset, force_finite",
    why="Validation runs to its end, the same each time. The DataModule of speechlm2 forces both, whatever "
    "the YAML says.",
    otherwise="Validation does not end, or differs from one time to the next.",
    source=f"{NOTES}; {CODE}, speechlm2 DataModule",
    patch="sets both to true",
    example=Example(
        bad="validation_ds:\n  indexed: true\n" + _ENTRY,
        good="validation_ds:\n  indexed: true\n  force_map_dataset: true\n  force_finite: true\n" + _ENTRY,
        fixed="validation_ds:\n  indexed: true\n  force_finite: true\n  force_map_dataset: true\n" + _ENTRY,
    ),
)
def finite_validation(context: Context) -> Iterator[Hit]:
    """An indexed section is not both."""
    indexed = [part for part in context.evaluation if _indexed(part)]
    # What several sets share is said once, where the sets inherit it from.
    wanted = (
        part.outer.get(key) if part.outer is not None and part.own(key) is None else part.get(key)
        for part in indexed
        for key in ("force_map_dataset", "force_finite")
    )
    for setting in once(wanted):
        if not setting.known:
            context.unknown(dotted(setting.pointer), "the value of its interpolation")
        elif setting.value is not True:
            yield needs(setting, True, f"Indexed validation without {setting.key}.")


@rule(
    "IDX040",
    Severity.NOTE,
    title="Validation keeps no state",
    where="validation_ds.use_stateful_dataloader",
    why="It is run to its end and never resumed in its middle.",
    otherwise="Checkpoints grow for nothing.",
    source=NOTES,
    example=Example(
        bad="validation_ds:\n  use_stateful_dataloader: true\n" + _ENTRY, good="validation_ds:\n  seed: 1\n" + _ENTRY
    ),
)
def stateful_validation(context: Context) -> Iterator[Hit]:
    """``use_stateful_dataloader`` is true."""
    for setting in once(part.get("use_stateful_dataloader") for part in context.evaluation):
        if setting.value is True:
            yield at(setting, "Validation keeps a state that nobody resumes.", wanted="false", fix="Set it to false.")


@rule(
    "IDX041",
    Severity.NOTE,
    title="One mirror for training and validation",
    where="validation_ds.indexes_root",
    why="Usually one mirror holds the indexes of both.",
    otherwise="Two mirrors have to be kept.",
    source=NOTES,
    example=Example(
        bad="train_ds:\n  indexes_root: /i\n"
        + _ENTRY
        + "validation_ds:\n  indexed: true\n  indexes_root: /j\n"
        + _ENTRY,
        good="train_ds:\n  indexes_root: /i\n"
        + _ENTRY
        + "validation_ds:\n  indexed: true\n  indexes_root: /i\n"
        + _ENTRY,
    ),
)
def one_root(context: Context) -> Iterator[Hit]:
    """The roots of training and of an indexed validation differ."""
    train = {part.get("indexes_root").value for part in context.training if part.get("indexes_root").known}
    for setting in once(part.get("indexes_root") for part in context.evaluation if train and _indexed(part)):
        if setting.known and setting.value not in train:
            wanted = next(iter(sorted(str(value) for value in train)))
            yield at(setting, "Validation has another folder of indexes than training.", wanted=wanted,
                     fix="Use one mirror, unless two are meant.")  # fmt: skip
