"""One key of one entry: its lists made flat, its patterns expanded, and what is odd about them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Protocol

from blendex.blend.entries import Entry
from blendex.blend.interpolate import Place
from blendex.blend.load import MapNode, SeqNode
from blendex.blend.model import Derivation, Source
from blendex.blend.patterns import expand, rewritten
from blendex.blend.types import JSONL, NEMO_TAR, Key
from blendex.blend.urls import guarded, join
from blendex.blend.walk import Walk
from blendex.blend.world import unsupported
from blendex.errors import BlendexError, Code

_COMPRESSED = frozenset((".gz", ".bz2", ".xz", ".lz4", ".zst"))
MAYBE_COMPRESSED = re.compile(r"\.(?:gz|bz2|xz|lz4|zst)(?:\.[^./]*)?/*$")
_URL = re.compile(r"[a-z][a-z0-9+.\-]*://\S+")
_SHOWN = 3
_FOLDER_DEPTH = 64


@dataclass(frozen=True, slots=True)
class Spec:
    """One path string of a key, its line, and whether it is an item of a list."""

    text: str
    line: int
    listed: bool = False


@dataclass(slots=True)
class Found:
    """The sources of one leaf, under the keys that name them."""

    sources: tuple[Source, ...] = ()
    by_key: dict[str, list[Source]] = field(default_factory=dict)
    specs: dict[str, list[str]] = field(default_factory=dict)
    derived: list[Derivation] = field(default_factory=list)

    @property
    def manifests(self) -> tuple[Source, ...]:
        """The manifests with rows about audio, as often as they are named."""
        return tuple(self.by_key.get("manifest_filepath", ()))

    @property
    def cuts(self) -> tuple[Source, ...]:
        """The manifests of cuts."""
        named = (*self.by_key.get("cuts_path", ()), *self.by_key.get("shar_path", ()))
        return tuple(source for source in named if source.kind == JSONL)

    @property
    def tars(self) -> tuple[Source, ...]:
        """The tars beside them."""
        return tuple(self.by_key.get("tarred_audio_filepaths", ())) if self.manifests else ()


class Shelf(Protocol):
    """What the works of one blend share: counts of what was found so far, and folders that were listed."""

    walk: Walk
    left: int

    def flatten(self) -> None:
        """Count one step through lists."""
        ...

    def keep(self, paths: list[str]) -> None:
        """Count the characters of expanded paths."""
        ...

    def listing(self, path: str) -> list[tuple[str, bool]]:
        """What lies directly in a folder."""
        ...


class Work:
    """One key of one leaf.

    Args:
        shelf: what all works share.
        entry: the leaf.
        node: its mapping.
        key: what its type reads.
        name: how ``node`` spells it.
        found: what was found of the leaf so far.
    """

    def __init__(self, shelf: Shelf, entry: Entry, node: MapNode, key: Key, name: str, found: Found) -> None:
        self.shelf = shelf
        self.walk = shelf.walk
        self.entry = entry
        self.node = node
        self.key = key
        self.name = name
        self.found = found
        self.specs: list[str] = []  # for each source of a plain key, the text it was expanded from
        self.line = node.lines.get(name, entry.line)
        self._reported: dict[Code, int] = {}
        self._oddities: dict[str, tuple[int, str, int, str]] = {}

    def problem(self, error: BlendexError, line: int) -> None:
        """A wrong item; the first few of a kind are told one by one, the others counted."""
        told = self._reported.get(error.code, 0)
        self._reported[error.code] = told + 1
        if told < _SHOWN:
            self.walk.problem(error.code, error.message, self.entry.spot, line, error.next_step)

    def odd(self, kind: str, message: str, line: int, next_step: str) -> None:
        """An oddity; only the first of its kind is told, with the number of all."""
        first = self._oddities.get(kind)
        if first is None:
            self._oddities[kind] = (1, message, line, next_step)
        else:
            self._oddities[kind] = (first[0] + 1, *first[1:])

    def finish(self) -> None:
        """Tell what was counted."""
        spot = self.entry.spot
        for code, told in self._reported.items():
            if told > _SHOWN:
                more = f"{told - _SHOWN:,} more items of {self.key.name} have the same problem."
                self.walk.problem(code, more, spot, self.line, "Correct them alike.")
        for many, message, line, next_step in self._oddities.values():
            text = f"{message} (and {many - 1:,} more)." if many > 1 else f"{message}."
            self.walk.warn(Code.BAD_VALUE, text, spot, line, next_step)

    # Flattening: scalar, list, [path, weight] pairs, buckets

    def specs_in(self, value: Any, place: Place | None, line: int) -> Iterator[Spec]:
        """The path strings in a value."""
        if value is None:
            return
        if isinstance(value, str):
            yield Spec(value, line)
        elif isinstance(value, SeqNode) and place is not None:
            yield from self._items(value, place)
        else:
            self.problem(self._no_path(value), line)

    def _items(self, items: SeqNode, place: Place, depth: int = 0) -> Iterator[Spec]:
        if depth > self.walk.limits.depth:
            raise self.bad("holds lists that lead into each other", "Write the paths out.")
        for index, raw in enumerate(items):
            self.shelf.flatten()
            line = items.lines[index]
            try:
                item = self.walk.resolver.resolve(raw, place, index)
            except BlendexError as error:
                self.problem(error, line)
                continue
            if isinstance(item.value, str):
                yield Spec(item.value, line, listed=True)
            elif isinstance(item.value, SeqNode) and item.place is not None:
                yield from self._inner(item.value, item.place, line, depth)
            else:
                self.problem(self._no_path(item.value), line)

    def _inner(self, items: SeqNode, place: Place, line: int, depth: int) -> Iterator[Spec]:
        """``[path, weight]``, or a bucket. Of ``[a, b]`` both upstream's builder and training lose ``b``."""
        if not items:
            self.problem(self.bad("holds an empty list", "Remove it."), line)
            return
        try:
            first = self.walk.resolver.resolve(items[0], place, 0)
        except BlendexError as error:
            self.problem(error, line)
            return
        if not isinstance(first.value, str):
            yield from self._items(items, place, depth + 1)
            return
        yield Spec(first.value, line, listed=True)
        for index, raw in enumerate(items[1:], start=1):
            weight = isinstance(raw, int | float) and not isinstance(raw, bool)
            if not (weight and index == 1):
                what = str(raw)[:200] if isinstance(raw, str | int | float) else "a list or a mapping"
                self.problem(
                    self.bad(
                        f"holds an inner list whose item {what} would be lost",
                        "Give each path a list of its own, or write [path, weight].",
                    ),
                    items.lines[index],
                )

    def _no_path(self, value: Any) -> BlendexError:
        shown = "a mapping" if isinstance(value, dict) else "null" if value is None else str(value)[:80]
        kind = " a number," if isinstance(value, int | float) and not isinstance(value, bool) else ""
        return self.bad(f"holds {shown},{kind} which is no path", "Write paths as text, weights as [path, weight].")

    def bad(self, what: str, next_step: str) -> BlendexError:
        """What is wrong with the key."""
        return BlendexError(Code.BAD_VALUE, f"{self.key.name} {what}.", next_step=next_step)

    # Expanding

    def expanded(self, spec: Spec) -> list[str]:
        """The paths that a string means; none, and a problem told, where it means none."""
        try:
            if spec.text.startswith("pipe:"):
                raise pipe_refused(spec.text)
            if spec.text == "???":
                raise BlendexError(
                    Code.MISSING_KEY,
                    f"A mandatory value of {self.key.name} is not set (???).",
                    next_step="Set it.",
                )
            if not spec.text or "\0" in spec.text:
                raise self.bad("holds an empty path or a NUL character", "Correct the path.")
            if not (self.key.lists if spec.listed else self.key.expands):
                self._as_written(spec)
                return [spec.text]
            paths = self.paths_of(spec.text)
        except BlendexError as error:
            self.problem(error, spec.line)
            return []
        self._literal(spec, paths)
        return paths

    def paths_of(self, text: str, limit: int | None = None) -> list[str]:
        """The paths of one pattern, within what is left.

        Raises:
            BlendexError: as ``expand`` and ``Shelf.keep`` do.
        """
        limits = self.walk.limits
        most = limits.pattern if limit is None else limit
        paths = expand(text, max(0, min(most, self.shelf.left)))
        self.shelf.keep(paths)
        return paths

    def _as_written(self, spec: Spec) -> None:
        """Upstream's builder expands what training opens as it stands."""
        if rewritten(spec.text) == spec.text and "{" not in spec.text:
            return
        where = f"in a list of {self.key.name}" if spec.listed else f"in {self.key.name}"
        self.odd(
            "as written",
            f"Training opens {spec.text[:200]} {where} as it is written, where NeMo's builder of indexes expands it",
            spec.line,
            "Write the range as a plain string outside of a list." if spec.listed else "Name one file.",
        )

    def _literal(self, spec: Spec, paths: list[str]) -> None:
        if "(" in spec.text or "[" in spec.text or "<" in spec.text:
            self.odd(
                "brackets",
                f"NeMo reads the brackets of {spec.text[:200]} as braces and opens {paths[0][:200]}",
                spec.line,
                "Rename the folder if its name has brackets.",
            )
        elif "{" in paths[0]:
            self.odd(
                "braces",
                f"{rewritten(spec.text)[:200]} is no range everywhere: {paths[0][:200]} keeps its braces",
                spec.line,
                "Write ranges as {0..9} with numbers on both sides.",
            )
        if "*" in spec.text or spec.text.startswith("~"):
            self.odd(
                "globs",
                f"Training takes * and ~ literally in {spec.text[:200]}",
                spec.line,
                "Write a range or the full path.",
            )

    def source(self, kind: str, path: str, line: int) -> Iterator[Source]:
        """The source at a path, when its name can be one."""
        if guarded(path):
            refusal = unsupported(path)
            assert refusal is not None
            self.problem(refusal, line)  # no source, so that what may be a secret is shown nowhere
            return
        if MAYBE_COMPRESSED.search(path) and _COMPRESSED & set(PurePosixPath(path).suffixes[-2:]):
            self.problem(
                BlendexError(
                    Code.PATH_COMPRESSED,
                    f"{path} is compressed by its name; a compressed file has no record offsets.",
                    next_step="Decompress it and name the plain file.",
                ),
                line,
            )
            return
        if kind == JSONL and not path.endswith((".json", ".jsonl")):
            self._suffix(path, line)
        yield Source(kind, path)

    def _suffix(self, path: str, line: int) -> None:
        if not {".json", ".jsonl"} & set(PurePosixPath(path).suffixes):
            self.odd(
                "suffix",
                f"{path[:200]} has neither .jsonl nor .json in its name, and lhotse's reader refuses it",
                line,
                "Rename the file.",
            )

    def tars(self, folder: str) -> list[Source]:
        """Every ``*.tar`` below ``folder``, in the order of its path components."""
        found: list[tuple[str, ...]] = []
        waiting: list[tuple[str, ...]] = [()]
        while waiting:
            inside = waiting.pop()
            for name, is_folder in self.shelf.listing(join(folder, *inside)):
                if is_folder and len(inside) < _FOLDER_DEPTH:
                    waiting.append((*inside, name))
                elif name.endswith(".tar") and not is_folder:
                    found.append((*inside, name))
        if not found:
            raise empty_folder(folder, "no *.tar")
        return [Source(NEMO_TAR, join(folder, *parts)) for parts in sorted(found)]


def pipe_refused(command: str) -> BlendexError:
    """Why a command is no path."""
    match = _URL.search(command)
    instead = f"Use {match.group()} instead." if match else "Name the file that the command reads."
    return BlendexError(
        Code.PATH_UNSUPPORTED,
        "A pipe: path is a shell command, and no command is ever run.",
        next_step=instead,
    )


def empty_folder(folder: str, what: str) -> BlendexError:
    """Why a folder names no source."""
    return BlendexError(Code.FOLDER_EMPTY, f"The folder {folder} holds {what} file.", next_step="Check the path.")
