"""From the values of an entry's keys to its sources."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from blendex.blend import catalogs, routes
from blendex.blend.entries import Entry
from blendex.blend.interpolate import Place
from blendex.blend.load import MapNode, SeqNode
from blendex.blend.model import Derivation, Source
from blendex.blend.patterns import expand, rewritten
from blendex.blend.types import JSONL, NEMO_TAR, WDS_TAR, WDS_TAR_V2, Form, Key
from blendex.blend.urls import folder_of, join
from blendex.blend.walk import Walk
from blendex.errors import BlendexError, Code

_COMPRESSED = frozenset((".gz", ".bz2", ".xz", ".lz4", ".zst"))
_MAYBE_COMPRESSED = re.compile(r"\.(?:gz|bz2|xz|lz4|zst)(?:\.[^./]*)?/*$")
_SHARD_ID = re.compile(r"_(\d+)[^/\d]*$")
_URL = re.compile(r"[a-z][a-z0-9+.\-]*://\S+")
_SHOWN = 3
_FOLDER_DEPTH = 64
_MAX_FOLDERS = 100_000
_MAX_CHARACTERS = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Spec:
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


class Finder:
    """Finds the sources of the leaves of one walk, and reports what hinders.

    Args:
        walk: the walk whose resolver, reader, limits and report are used.
    """

    def __init__(self, walk: Walk) -> None:
        self.walk = walk
        self.found: dict[tuple[str | int, ...], Found] = {}
        self.left = walk.limits.paths
        self._flattened = 0
        self._characters = 0
        self._listings: dict[str, list[tuple[str, bool]] | BlendexError] = {}

    def __call__(self, entry: Entry) -> None:
        """Find the sources of ``entry``; they are kept under its pointer."""
        assert entry.spec is not None
        assert entry.node is not None
        found = Found()
        opened = entry.spec.opened(entry.node)
        competing = {key for group in entry.spec.first for key in group}
        for key in entry.spec.keys:
            name = self._given(entry, entry.node, key)
            if name is None or (competing and key.name not in opened):
                continue
            work = _Work(self, entry, entry.node, key, name, found)
            found.by_key[key.name] = work.sources()
            found.specs[key.name] = work.specs
        named = [source for sources in found.by_key.values() for source in sources]
        self.left -= len(named)
        found.sources = tuple(dict.fromkeys(named))
        self.found[entry.pointer] = found
        if not found.derived:
            self._alignment(entry, found)

    def _given(self, entry: Entry, node: MapNode, key: Key) -> str | None:
        """The spelling under which ``node`` gives ``key``, when it is read here."""
        if key.when is not None:
            other, wanted = key.when
            try:
                value = self.walk.resolver.resolve(node.get(other), entry.spot_of(other).place, other).value
            except BlendexError:
                return None  # told where the key is checked
            if value != wanted:
                return None
            return key.alias if key.alias and node.get(key.name) is None and node.get(key.alias) else key.name
        return key.name if node.get(key.name) is not None else None

    def flatten(self) -> None:
        """Count one step through lists, which interpolations can multiply."""
        self._flattened += 1
        if self._flattened > self.walk.limits.paths:
            raise BlendexError(
                Code.PATTERN_TOO_MANY,
                f"The blend lists more than {self.walk.limits.paths:,} items.",
                next_step="Use ranges, or split the blend.",
            )

    def keep(self, paths: list[str]) -> None:
        """Count the characters of expanded paths; a few long patterns can fill a memory alone."""
        self._characters += sum(map(len, paths))
        if self._characters > _MAX_CHARACTERS:
            raise BlendexError(
                Code.PATTERN_TOO_MANY,
                f"The paths of the blend have more than {_MAX_CHARACTERS:,} characters altogether.",
                next_step="Shorten the paths, or split the blend.",
            )

    def listing(self, path: str) -> list[tuple[str, bool]]:
        """What lies directly in the folder ``path``, asked for once.

        Raises:
            BlendexError: as ``World.address`` and ``Reader.list`` do.
        """
        address = self.walk.world.address(path)
        if address not in self._listings:
            if len(self._listings) >= _MAX_FOLDERS:
                raise BlendexError(
                    Code.PATTERN_TOO_MANY,
                    f"The blend has more than {_MAX_FOLDERS:,} folders.",
                    next_step="Name the files by ranges, or split the blend.",
                )
            try:
                self._listings[address] = self.walk.reader.list(address)
            except BlendexError as error:
                self._listings[address] = error
        known = self._listings[address]
        if isinstance(known, BlendexError):
            raise known
        return known

    def _alignment(self, entry: Entry, found: Found) -> None:
        manifests = found.by_key.get("manifest_filepath", [])
        tars = found.by_key.get("tarred_audio_filepaths", [])
        if len(manifests) < 2 or not tars:
            return
        why = ""
        if len(manifests) != len(tars):
            why = f"{len(manifests):,} manifests stand beside {len(tars):,} tars"
        else:
            pairs = ((_shard_id(m.path), _shard_id(t.path)) for m, t in zip(manifests, tars, strict=True))
            odd = next((pair for pair in pairs if None not in pair and pair[0] != pair[1]), None)
            why = f"manifest {odd[0]} stands beside tar {odd[1]}" if odd else ""
        if not why and len(set(found.specs["manifest_filepath"])) == 1:
            self._repeated(entry, manifests)
        if why:
            self.walk.warn(
                Code.BAD_VALUE,
                f"Manifests and tars do not match: {why}.",
                entry.spot,
                entry.line,
                "Check both ranges; no pack can be made of this entry.",
            )

    def _repeated(self, entry: Entry, manifests: list[Source]) -> None:
        """Loose readers pair by number, and take a repeated one by its occurrence (``nemo_adapters.py``)."""
        seen: set[int] = set()
        for manifest in manifests:
            number = _shard_id(manifest.path)
            if number is not None and number in seen:
                self.walk.warn(
                    Code.BAD_VALUE,
                    f"The shard number {number} comes again, in {manifest.path[:200]}; readers that pair by number go "
                    f"by the order of its occurrences.",
                    entry.spot,
                    entry.line,
                    "Nothing, while manifests and tars are listed in the same order.",
                )
                return
            if number is not None:
                seen.add(number)


class _Work:
    """One key of one leaf."""

    def __init__(self, finder: Finder, entry: Entry, node: MapNode, key: Key, name: str, found: Found) -> None:
        self.finder = finder
        self.walk = finder.walk
        self.entry = entry
        self.node = node
        self.key = key
        self.name = name
        self.found = found
        self.specs: list[str] = []  # for each source of a plain key, the text it was expanded from
        self.line = node.lines.get(name, entry.line)
        self._reported: dict[Code, int] = {}
        self._oddities: dict[str, tuple[int, str, int, str]] = {}

    def sources(self) -> list[Source]:
        found: list[Source] = []
        try:
            found = list(self._dispatch(self.node.get(self.name)))
        except BlendexError as error:
            self.problem(error, self.line)
        self._finish()
        return found

    def _dispatch(self, raw: Any) -> Iterator[Source]:
        if self.key.form is Form.ROUTE:
            yield from self._route()
            return
        value = self.walk.resolver.resolve(raw, self.entry.spot_of(self.name).place, self.name)
        if value.value == "???":
            raise BlendexError(
                Code.MISSING_KEY,
                f"The mandatory value {self.key.name} is not set (???).",
                next_step=f"Set {self.key.name}.",
            )
        place = value.place
        if self.key.form is Form.SHAR:
            yield from self._shar(value.value, place)
            return
        if self.key.form is Form.WEBDATASET:
            yield from self._webdataset(value.value, place)
            return
        find: Callable[[str, int], Iterator[Source]] = self._plain
        if self.key.form is Form.MIXED:
            find = self._mixed
        for spec in self._specs(value.value, place, self.line):
            for path in self._expanded(spec):
                for source in find(path, spec.line):
                    self.specs.append(spec.text)
                    yield source

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

    def _finish(self) -> None:
        spot = self.entry.spot
        for code, told in self._reported.items():
            if told > _SHOWN:
                more = f"{told - _SHOWN:,} more items of {self.key.name} have the same problem."
                self.walk.problem(code, more, spot, self.line, "Correct them alike.")
        for many, message, line, next_step in self._oddities.values():
            text = f"{message} (and {many - 1:,} more)." if many > 1 else f"{message}."
            self.walk.warn(Code.BAD_VALUE, text, spot, line, next_step)

    # Flattening: scalar, list, [path, weight] pairs, buckets

    def _specs(self, value: Any, place: Place | None, line: int) -> Iterator[_Spec]:
        if value is None:
            return
        if isinstance(value, str):
            yield _Spec(value, line)
        elif isinstance(value, SeqNode) and place is not None:
            yield from self._items(value, place)
        else:
            self.problem(self._no_path(value), line)

    def _items(self, items: SeqNode, place: Place, depth: int = 0) -> Iterator[_Spec]:
        if depth > self.walk.limits.depth:
            raise self._bad("holds lists that lead into each other", "Write the paths out.")
        for index, raw in enumerate(items):
            self.finder.flatten()
            line = items.lines[index]
            try:
                item = self.walk.resolver.resolve(raw, place, index)
            except BlendexError as error:
                self.problem(error, line)
                continue
            if isinstance(item.value, str):
                yield _Spec(item.value, line, listed=True)
            elif isinstance(item.value, SeqNode) and item.place is not None:
                yield from self._inner(item.value, item.place, line, depth)
            else:
                self.problem(self._no_path(item.value), line)

    def _inner(self, items: SeqNode, place: Place, line: int, depth: int) -> Iterator[_Spec]:
        """``[path, weight]``, or a bucket. Of ``[a, b]`` both upstream's builder and training lose ``b``."""
        if not items:
            self.problem(self._bad("holds an empty list", "Remove it."), line)
            return
        try:
            first = self.walk.resolver.resolve(items[0], place, 0)
        except BlendexError as error:
            self.problem(error, line)
            return
        if not isinstance(first.value, str):
            yield from self._items(items, place, depth + 1)
            return
        yield _Spec(first.value, line, listed=True)
        for index, raw in enumerate(items[1:], start=1):
            weight = isinstance(raw, int | float) and not isinstance(raw, bool)
            if not (weight and index == 1):
                what = str(raw)[:200] if isinstance(raw, str | int | float) else "a list or a mapping"
                self.problem(
                    self._bad(
                        f"holds an inner list whose item {what} would be lost",
                        "Give each path a list of its own, or write [path, weight].",
                    ),
                    items.lines[index],
                )

    def _no_path(self, value: Any) -> BlendexError:
        shown = "a mapping" if isinstance(value, dict) else "null" if value is None else str(value)[:80]
        kind = " a number," if isinstance(value, int | float) and not isinstance(value, bool) else ""
        return self._bad(f"holds {shown},{kind} which is no path", "Write paths as text, weights as [path, weight].")

    def _bad(self, what: str, next_step: str) -> BlendexError:
        return BlendexError(Code.BAD_VALUE, f"{self.key.name} {what}.", next_step=next_step)

    # Expanding

    def _expanded(self, spec: _Spec) -> list[str]:
        try:
            if spec.text.startswith("pipe:"):
                raise _pipe(spec.text)
            if spec.text == "???":
                raise BlendexError(
                    Code.MISSING_KEY,
                    f"A mandatory value of {self.key.name} is not set (???).",
                    next_step="Set it.",
                )
            if not spec.text or "\0" in spec.text:
                raise self._bad("holds an empty path or a NUL character", "Correct the path.")
            if not (self.key.lists if spec.listed else self.key.expands):
                self._as_written(spec)
                return [spec.text]
            paths = self._paths(spec.text)
        except BlendexError as error:
            self.problem(error, spec.line)
            return []
        self._literal(spec, paths)
        return paths

    def _paths(self, text: str, limit: int | None = None) -> list[str]:
        limits = self.walk.limits
        most = limits.pattern if limit is None else limit
        paths = expand(text, max(0, min(most, self.finder.left)))
        self.finder.keep(paths)
        return paths

    def _as_written(self, spec: _Spec) -> None:
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

    def _literal(self, spec: _Spec, paths: list[str]) -> None:
        if any(mark in spec.text for mark in "([<"):
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

    def _plain(self, path: str, line: int) -> Iterator[Source]:
        yield from self._source(self.key.kind, path, line)

    def _source(self, kind: str, path: str, line: int) -> Iterator[Source]:
        if _MAYBE_COMPRESSED.search(path) and _COMPRESSED & set(PurePosixPath(path).suffixes[-2:]):
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

    def _mixed(self, path: str, line: int) -> Iterator[Source]:
        """``.tar`` is a tar, ``.json`` and ``.jsonl`` are JSON lines, the rest may be folders of tars."""
        suffix = PurePosixPath(path).suffix
        if suffix == ".tar":
            yield from self._source(NEMO_TAR, path, line)
            return
        if suffix not in (".json", ".jsonl") and "://" not in path:
            try:
                yield from self._tars(path)
                return
            except BlendexError as error:
                if error.code is not Code.FOLDER_MISSING:
                    self.problem(error, line)
                    return
        yield from self._source(JSONL, path, line)

    def _tars(self, folder: str) -> list[Source]:
        """Every ``*.tar`` below ``folder``, in the order of its path components."""
        found: list[tuple[str, ...]] = []
        waiting: list[tuple[str, ...]] = [()]
        while waiting:
            inside = waiting.pop()
            for name, is_folder in self.finder.listing(join(folder, *inside)):
                if is_folder and len(inside) < _FOLDER_DEPTH:
                    waiting.append((*inside, name))
                elif name.endswith(".tar") and not is_folder:
                    found.append((*inside, name))
        if not found:
            raise _empty(folder, "no *.tar")
        return [Source(NEMO_TAR, join(folder, *parts)) for parts in sorted(found)]

    # Routing indexes

    def _route(self) -> Iterator[Source]:
        made = routes.derivation(self.walk, self.entry, self.found.by_key, self.found.specs)
        self.found.derived.append(made)
        yield made.source

    # WebDataset

    def _webdataset(self, value: Any, place: Place | None) -> Iterator[Source]:
        kind = self._version()
        for spec in self._specs(value, place, self.line):
            try:
                yield from self._shards(spec, kind)
            except BlendexError as error:
                self.problem(error, spec.line)

    def _version(self) -> str:
        name = "wds_sample_index_version"
        raw = self.node.get(name)
        value = self.walk.resolver.resolve(raw, self.entry.spot_of(name).place, name).value
        if value is None or (value in (1, "1") and not isinstance(value, bool)):
            return WDS_TAR
        if value in (2, "2"):
            return WDS_TAR_V2
        raise BlendexError(Code.BAD_VALUE, f"{name} is neither 1 nor 2.", next_step="Say 2, or leave it out.")

    def _shards(self, spec: _Spec, kind: str) -> Iterator[Source]:
        root = spec.text
        if root.startswith("pipe:"):
            raise _pipe(root)
        if not root or "\0" in root:
            raise self._bad("holds an empty path or a NUL character", "Correct the path.")
        for path in self._catalog(root, kind):
            yield from self._source(kind, path, spec.line)
        if root.endswith(catalogs.GENERATED_SUFFIX):
            return
        try:
            names = self.finder.listing(root)
        except BlendexError as error:
            if error.code is Code.FOLDER_MISSING:
                return  # every tar of the catalog lies elsewhere
            raise
        for name, is_folder in names:
            if name.endswith(".jsonl") and not is_folder:
                yield Source(JSONL, join(root, name))

    def _catalog(self, root: str, kind: str) -> list[str]:
        """The tars below ``root``, from its catalog; without one, by looking, as version 1 allows."""
        whole = root.endswith(catalogs.GENERATED_SUFFIX)
        base = folder_of(root) if whole else join(root)
        for path in (root,) if whole else (join(root, name) for name in catalogs.NAMES):
            try:
                raw = self.walk.reader.read(self.walk.world.address(path), catalogs.MAX_BYTES)
            except BlendexError as error:
                if error.code in (Code.NESTED_MISSING, Code.SOURCE_MISSING, Code.SOURCE_NOT_REGULAR) and not whole:
                    continue
                raise
            return catalogs.shards(raw, path, base, self.walk.limits, self._paths)
        if kind == WDS_TAR_V2:
            raise BlendexError(
                Code.NESTED_MISSING,
                f"There is no shard catalog under {root}; version 2 never looks for tars itself.",
                next_step=f"Write one of {', '.join(catalogs.NAMES)} there.",
            )
        return sorted(source.path for source in self._tars(root))

    # Lhotse Shar

    def _shar(self, value: Any, place: Place | None) -> Iterator[Source]:
        if isinstance(value, MapNode) and place is not None:
            yield from self._fields(value, place)
            return
        for spec in self._specs(value, place, self.line):
            try:
                yield from self._folder(spec)
            except BlendexError as error:
                self.problem(error, spec.line)

    def _folder(self, spec: _Spec) -> list[Source]:
        if spec.text.startswith("pipe:"):
            raise _pipe(spec.text)
        found: list[Source] = []
        other = 0
        for name, is_folder in sorted(self.finder.listing(spec.text)):
            kind = _shar_kind(name) if not is_folder else None
            if kind is None:
                other += 1
            else:
                found.append(Source(kind, join(spec.text, name)))
        if not found:
            raise _empty(spec.text, "neither *.jsonl nor *.tar")
        if other:
            self.odd(
                f"other {spec.text}",
                f"{other:,} other names in the Shar folder {spec.text[:200]} are ignored",
                spec.line,
                "Nothing to do, unless they are compressed shards.",
            )
        return found

    def _fields(self, fields: MapNode, place: Place) -> Iterator[Source]:
        counts: dict[str, int] = {}
        if "cuts" not in fields:
            self.odd("cuts", "The map of Shar fields has no cuts, and training refuses it", self.line, "Name the cuts.")
        for name, raw in fields.items():
            line = fields.lines[name]
            value = self.walk.resolver.resolve(raw, place, name)
            counts[str(name)] = 0
            for spec in self._specs(value.value, value.place, line):
                paths = self._expanded(spec)
                counts[str(name)] += len(paths)
                for path in paths:
                    yield from self._field(path, spec.line)
        if len(set(counts.values())) > 1:
            shown = ", ".join(f"{name[:80]} {many:,}" for name, many in counts.items())
            self.odd("fields", f"The Shar fields differ in their number of shards: {shown}", self.line, "Check it.")

    def _field(self, path: str, line: int) -> Iterator[Source]:
        kind = _shar_kind(PurePosixPath(path).name)
        if kind is not None or _MAYBE_COMPRESSED.search(path):
            yield from self._source(kind or JSONL, path, line)
            return
        self.problem(self._bad(f"names {path[:200]}, which ends in neither .jsonl nor .tar", "Correct the path."), line)


def _shar_kind(name: str) -> str | None:
    """The rule of ``create_shar_index`` (lhotse 2.0.0a7): by the exact last suffix."""
    suffix = PurePosixPath(name).suffix
    return JSONL if suffix == ".jsonl" else WDS_TAR if suffix == ".tar" else None


def _shard_id(path: str) -> int | None:
    match = _SHARD_ID.search(path)
    return int(match.group(1)) if match and len(match.group(1)) < 20 else None


def _pipe(command: str) -> BlendexError:
    match = _URL.search(command)
    instead = f"Use {match.group()} instead." if match else "Name the file that the command reads."
    return BlendexError(
        Code.PATH_UNSUPPORTED,
        "A pipe: path is a shell command, and no command is ever run.",
        next_step=instead,
    )


def _empty(folder: str, what: str) -> BlendexError:
    return BlendexError(Code.FOLDER_EMPTY, f"The folder {folder} holds {what} file.", next_step="Check the path.")
