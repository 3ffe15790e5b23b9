"""Packs: declared, there, and with room for their files."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Any

from blendex.errors import BlendexError, Code
from blendex.lint.context import Context
from blendex.lint.model import Severity
from blendex.lint.rule import CODE, NOTES, Example, Hit, at, needs, rule
from blendex.lint.scopes import Setting


def _config(rest: str, top: str = "indexed: true") -> str:
    return f"train_ds:\n  {top}\n  input_cfg: [{{type: nemo, manifest_filepath: /d/a.json{rest}}}]\n"


def _declared(context: Context) -> Iterator[tuple[Setting, Any]]:
    """Every written ``index_pack``, once, with the first entry that it serves."""
    seen: set[tuple[Any, ...]] = set()
    for entry in context.entries:
        setting = entry.get("index_pack")
        if setting.written and setting.known and setting.value is not None and setting.pointer not in seen:
            seen.add(setting.pointer)
            yield setting, entry


@rule(
    "IDX030",
    Severity.ERROR,
    title="A pack takes indexed reading",
    where="entry.index_pack",
    why="Upstream refuses a declared pack unless the entry is read by index.",
    otherwise="The run ends at its start (ValueError).",
    source=f"{NOTES}; {CODE}, _resolve_index_pack",
    patch="sets `indexed: true` where the entry has it from",
    example=Example(
        bad=_config(", index_pack: /p/a.idxpack", "indexed: false"),
        good=_config(", index_pack: /p/a.idxpack"),
        fixed=_config(", index_pack: /p/a.idxpack", "indexed: true"),
    ),
)
def pack_unindexed(context: Context) -> Iterator[Hit]:
    """``index_pack`` is set where ``indexed`` is not true."""
    for _, entry in _declared(context):
        indexed = entry.get("indexed")
        if entry.section is not None and entry.section.role != "blend" and indexed.known and indexed.value is not True:
            yield needs(indexed, True, "A pack is declared where nothing is read by index.")


@rule(
    "IDX031", Severity.ERROR,
    title="A declared pack is there", where="entry.index_pack, index_pack_root",
    why="A declaration is strict: there is no way back to loose indexes.",
    otherwise="The run ends at its start (FileNotFoundError).",
    source=f"{NOTES}; {CODE}, _resolve_index_pack",
    example=Example(
        bad=_config(", index_pack: a.idxpack"), good=_config(", index_pack: /p/a.idxpack"),
        nested={"/p/a.idxpack": "x"},
    ),
)  # fmt: skip
def pack_there(context: Context) -> Iterator[Hit]:
    """The pack is relative to nothing, or is not there."""
    for setting, entry in _declared(context):
        path = setting.value
        root = entry.get("index_pack_root")
        if not isinstance(path, str):
            yield at(setting, "index_pack is no path.", fix="Name the file.")
            continue
        if not path.startswith("/"):
            if root.known and root.value is None:
                yield at(setting, "A relative index_pack, and no "
                                  "index_pack_root.", wanted="index_pack_root, or an absolute path",
                         fix="Set index_pack_root on the section.")  # fmt: skip
                continue
            if not isinstance(root.value, str):
                context.unknown(f"where {path[:200]} lies", "the value of index_pack_root")
                continue
            path = posixpath.join(root.value, path)
        answer = context.lookups.stats([path])[path]
        if isinstance(answer, BlendexError) and answer.code is Code.SOURCE_MISSING:
            yield at(setting, f"The pack {path[:200]} is not there.", fix="Build it, or remove the declaration.")
        elif answer is None or isinstance(answer, BlendexError):
            context.unknown(f"whether the pack {path[:200]} is there", "a look at its folder")


@rule(
    "IDX033", Severity.ERROR,
    title="A pack may open files", where="index_pack_max_open_files",
    why="Fewer than one is refused.",
    otherwise="The run ends at its start (ValueError).",
    source=f"{NOTES}", patch="sets 32, the default",
    example=Example(
        bad=_config("", "index_pack_max_open_files: 0"), good=_config("", "index_pack_max_open_files: 8"),
        fixed=_config("", "index_pack_max_open_files: 32"),
    ),
)  # fmt: skip
def open_files(context: Context) -> Iterator[Hit]:
    """Fewer than one."""
    seen: set[tuple[Any, ...]] = set()
    scopes = [*context.sections, *context.entries]
    for scope in scopes:
        setting = scope.get("index_pack_max_open_files")
        if setting.pointer in seen or not setting.written or not setting.known:
            continue
        seen.add(setting.pointer)
        value = setting.value
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            yield needs(setting, 32, "A pack could open no file.")
