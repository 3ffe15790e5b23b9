"""Packs: declared, there, and with room for their files."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from blendex.errors import BlendexError, Code
from blendex.lint.context import Context
from blendex.lint.model import Severity
from blendex.lint.rule import CODE, NOTES, OURS, Example, Hit, Packed, at, needs, on, rule
from blendex.lint.scopes import Entry, Setting, once
from blendex.storage.interface import Stat

if TYPE_CHECKING:
    from blendex.lint.packfit import Judged


def _config(rest: str, top: str = "indexed: true") -> str:
    return f"train_ds:\n  {top}\n  input_cfg: [{{type: nemo, manifest_filepath: /d/a.json{rest}}}]\n"


def _declared(context: Context) -> Iterator[tuple[Setting, Any]]:
    """Every written ``index_pack``, once, with the first entry that it serves."""
    seen: set[tuple[Any, ...]] = set()
    for setting, entry in context.settings("index_pack"):
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
        if not isinstance(setting.value, str):
            yield at(setting, "index_pack is no path.", fix="Name the file.")
            continue
        root = entry.get("index_pack_root")
        if not setting.value.startswith("/") and root.known and root.value is None:
            yield at(
                setting, "A relative index_pack, and no index_pack_root.",
                wanted="index_pack_root, or an absolute path", fix="Set index_pack_root on the section.",
            )  # fmt: skip
            continue
        path = _path(entry)
        if path is None:
            context.unknown(f"where {setting.value[:200]} lies", "the value of index_pack_root")
            continue
        answer = context.lookups.stat(path)
        if isinstance(answer, BlendexError) and answer.code is Code.SOURCE_MISSING:
            yield at(setting, f"The pack {path[:200]} is not there.", fix="Build it, or remove the declaration.")
        elif answer is None or isinstance(answer, BlendexError):
            context.unknown(f"whether the pack {path[:200]} is there", "a look at its folder")


def _path(entry: Entry) -> str | None:
    """Where training looks for the pack of an entry; None where that cannot be told."""
    value, root = entry.get("index_pack").value, entry.get("index_pack_root").value
    if not isinstance(value, str) or value.startswith("/"):
        return value if isinstance(value, str) else None
    return posixpath.join(root, value) if isinstance(root, str) else None


@rule(
    "IDX032",
    Severity.FATAL,
    title="A pack holds what the config names",
    where="entry.index_pack",
    why="Training looks an entry up by a key made from its paths as they are spelt, and takes the order of shards from "
    "the pack.",
    otherwise="The run ends at its start (KeyError, ValueError), or reads records of other sources.",
    source=f"{OURS}; {CODE}, nemo_adapters.py; lhotse 2.0.0a7, index_pack_collection_key",
    example=Example(
        bad=_config(", index_pack: /p/a.idxpack").replace("/d/a.json", "/d/b.json"),
        good=_config(", index_pack: /p/a.idxpack"),
        packs={"/p/a.idxpack": (Packed("manifest", "jsonl", "/d/a.json", ("/d/a.json",)),)},
    ),
)
def pack_fits(context: Context) -> Iterator[Hit]:
    """A collection is missing or names other sources, a route is missing, the pack is damaged."""
    for entry, why, _ in judged(context):
        if why:
            yield in_pack(
                entry, f"The pack does not fit the entry: {why.rstrip('.')}.",
                "Build the pack again from the blend that is trained, and train its ready blend.",
            )  # fmt: skip


def in_pack(entry: Entry, message: str, fix: str) -> Hit:
    """A hit at an entry about its pack."""
    setting = entry.get("index_pack")
    key = "index_pack" if setting.spot is entry.spot else None
    return on(entry, message, key=key, value=setting.shown, wanted="a pack of this blend as it is", fix=fix)


def judged(context: Context) -> list[Judged]:
    """Each entry that reads a pack which is there, with what is wrong with it."""
    if "packs" not in context.memory:
        users: dict[str, list[Entry]] = {}
        for entry in context.entries:
            if entry.sources and entry.get("index_pack").value is not None:
                path = _path(entry)
                if path is not None and isinstance(context.lookups.stat(path), Stat):
                    users.setdefault(path, []).append(entry)
        context.memory["packs"] = []
        if users:
            from blendex.lint.packfit import judge  # numpy takes a tenth of a second, and few configs have packs

            context.memory["packs"] = list(judge(context, users))
    found: list[Judged] = context.memory["packs"]
    return found


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
    key = "index_pack_max_open_files"
    of_entries = (setting for setting, _ in context.settings(key))
    for setting in once((*(part.get(key) for part in context.sections), *of_entries)):
        if not setting.written or not setting.known:
            continue
        value = setting.value
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            yield needs(setting, 32, "A pack could open no file.")
