"""From what a key of an entry names to its sources: plain paths, texts, routes, WebDataset, Lhotse Shar."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePosixPath
from typing import Any

from blendex.blend import catalogs, routes
from blendex.blend.interpolate import Place, interpolated
from blendex.blend.load import MapNode
from blendex.blend.model import Source
from blendex.blend.types import JSONL, NEMO_TAR, WDS_TAR, WDS_TAR_V2, Form
from blendex.blend.urls import folder_of, join
from blendex.blend.work import MAYBE_COMPRESSED, Spec, Work, empty_folder, pipe_refused
from blendex.errors import BlendexError, Code

Find = Callable[[Work, str, int], Iterable[Source]]


def sources(work: Work) -> list[Source]:
    """The sources that one key of one entry names; what hinders is told to the walk."""
    found: list[Source] = []
    raw = work.node.get(work.name)
    try:
        if work.key.form is Form.PATHS and isinstance(raw, str) and raw != "???" and not interpolated(raw):
            found = list(_paths(work, [Spec(raw, work.line)], _plain))  # nearly always
        else:
            found = list(_dispatch(work, raw))
    except BlendexError as error:
        work.problem(error, work.line)
    work.finish()
    return found


def _dispatch(work: Work, raw: Any) -> Iterator[Source]:
    if work.key.form is Form.ROUTE:
        yield from _route(work)
        return
    value = work.walk.resolver.resolve(raw, work.entry.spot_of(work.name).place, work.name)
    if value.value == "???":
        raise BlendexError(
            Code.MISSING_KEY,
            f"The mandatory value {work.key.name} is not set (???).",
            next_step=f"Set {work.key.name}.",
        )
    place = value.place
    if work.key.form is Form.SHAR:
        yield from _shar(work, value.value, place)
        return
    if work.key.form is Form.WEBDATASET:
        yield from _webdataset(work, value.value, place)
        return
    find: Find = _mixed if work.key.form is Form.MIXED else _plain
    yield from _paths(work, work.specs_in(value.value, place, work.line), find)


def _paths(work: Work, specs: Iterable[Spec], find: Find) -> Iterator[Source]:
    for spec in specs:
        for path in work.expanded(spec):
            for source in find(work, path, spec.line):
                work.specs.append(spec.text)
                yield source


def _plain(work: Work, path: str, line: int) -> Iterable[Source]:
    return work.source(work.key.kind, path, line)


def _mixed(work: Work, path: str, line: int) -> Iterator[Source]:
    """``.tar`` is a tar, ``.json`` and ``.jsonl`` are JSON lines, the rest may be folders of tars."""
    suffix = PurePosixPath(path).suffix
    if suffix == ".tar":
        yield from work.source(NEMO_TAR, path, line)
        return
    if suffix not in (".json", ".jsonl") and "://" not in path:
        try:
            yield from work.tars(path)
            return
        except BlendexError as error:
            if error.code is not Code.FOLDER_MISSING:
                work.problem(error, line)
                return
    yield from work.source(JSONL, path, line)


# Routing indexes


def _route(work: Work) -> Iterator[Source]:
    made = routes.derivation(work.walk, work.entry, work.found.by_key, work.found.specs)
    work.found.derived.append(made)
    yield made.source


# WebDataset


def _webdataset(work: Work, value: Any, place: Place | None) -> Iterator[Source]:
    kind = _version(work)
    for spec in work.specs_in(value, place, work.line):
        try:
            yield from _shards(work, spec, kind)
        except BlendexError as error:
            work.problem(error, spec.line)


def _version(work: Work) -> str:
    name = "wds_sample_index_version"
    raw = work.node.get(name)
    value = work.walk.resolver.resolve(raw, work.entry.spot_of(name).place, name).value
    if value is None or (value in (1, "1") and not isinstance(value, bool)):
        return WDS_TAR
    if value in (2, "2"):
        return WDS_TAR_V2
    raise BlendexError(Code.BAD_VALUE, f"{name} is neither 1 nor 2.", next_step="Say 2, or leave it out.")


def _shards(work: Work, spec: Spec, kind: str) -> Iterator[Source]:
    root = spec.text
    if root.startswith("pipe:"):
        raise pipe_refused(root)
    if not root or "\0" in root:
        raise work.bad("holds an empty path or a NUL character", "Correct the path.")
    for path in _catalog(work, root, kind):
        yield from work.source(kind, path, spec.line)
    if root.endswith(catalogs.GENERATED_SUFFIX):
        return
    try:
        names = work.shelf.listing(root)
    except BlendexError as error:
        if error.code is Code.FOLDER_MISSING:
            return  # every tar of the catalog lies elsewhere
        raise
    for name, is_folder in names:
        if name.endswith(".jsonl") and not is_folder:
            yield Source(JSONL, join(root, name))


def _catalog(work: Work, root: str, kind: str) -> list[str]:
    """The tars below ``root``, from its catalog; without one, by looking, as version 1 allows."""
    whole = root.endswith(catalogs.GENERATED_SUFFIX)
    base = folder_of(root) if whole else join(root)
    for path in (root,) if whole else (join(root, name) for name in catalogs.NAMES):
        try:
            raw = work.walk.reader.read(work.walk.world.address(path), catalogs.MAX_BYTES)
        except BlendexError as error:
            if error.code in (Code.NESTED_MISSING, Code.SOURCE_MISSING, Code.SOURCE_NOT_REGULAR) and not whole:
                continue
            raise
        return catalogs.shards(raw, path, base, work.walk.limits, work.paths_of)
    if kind == WDS_TAR_V2:
        raise BlendexError(
            Code.NESTED_MISSING,
            f"There is no shard catalog under {root}; version 2 never looks for tars itwork.",
            next_step=f"Write one of {', '.join(catalogs.NAMES)} there.",
        )
    return sorted(source.path for source in work.tars(root))


# Lhotse Shar


def _shar(work: Work, value: Any, place: Place | None) -> Iterator[Source]:
    if isinstance(value, MapNode) and place is not None:
        yield from _fields(work, value, place)
        return
    for spec in work.specs_in(value, place, work.line):
        try:
            yield from _folder(work, spec)
        except BlendexError as error:
            work.problem(error, spec.line)


def _folder(work: Work, spec: Spec) -> list[Source]:
    if spec.text.startswith("pipe:"):
        raise pipe_refused(spec.text)
    found: list[Source] = []
    other = 0
    for name, is_folder in sorted(work.shelf.listing(spec.text)):
        kind = _shar_kind(name) if not is_folder else None
        if kind is None:
            other += 1
        else:
            found.append(Source(kind, join(spec.text, name)))
    if not found:
        raise empty_folder(spec.text, "neither *.jsonl nor *.tar")
    if other:
        work.odd(
            f"other {spec.text}",
            f"{other:,} other names in the Shar folder {spec.text[:200]} are ignored",
            spec.line,
            "Nothing to do, unless they are compressed shards.",
        )
    return found


def _fields(work: Work, fields: MapNode, place: Place) -> Iterator[Source]:
    counts: dict[str, int] = {}
    if "cuts" not in fields:
        work.odd("cuts", "The map of Shar fields has no cuts, and training refuses it", work.line, "Name the cuts.")
    for name, raw in fields.items():
        line = fields.lines[name]
        value = work.walk.resolver.resolve(raw, place, name)
        counts[str(name)] = 0
        for spec in work.specs_in(value.value, value.place, line):
            paths = work.expanded(spec)
            counts[str(name)] += len(paths)
            for path in paths:
                yield from _field(work, path, spec.line)
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{name[:80]} {many:,}" for name, many in counts.items())
        work.odd("fields", f"The Shar fields differ in their number of shards: {shown}", work.line, "Check it.")


def _field(work: Work, path: str, line: int) -> Iterator[Source]:
    kind = _shar_kind(PurePosixPath(path).name)
    if kind is not None or MAYBE_COMPRESSED.search(path):
        yield from work.source(kind or JSONL, path, line)
        return
    work.problem(work.bad(f"names {path[:200]}, which ends in neither .jsonl nor .tar", "Correct the path."), line)


def _shar_kind(name: str) -> str | None:
    """The rule of ``create_shar_index`` (lhotse 2.0.0a7): by the exact last suffix."""
    suffix = PurePosixPath(name).suffix
    return JSONL if suffix == ".jsonl" else WDS_TAR if suffix == ".tar" else None
