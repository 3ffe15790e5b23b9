"""Plan: from the posted blend to sources with addresses and tokens, and all that is wrong with them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import orjson

from blendex.blend.choosing import by_paths, choose
from blendex.blend.discover import Derivation, Discovery, Leaf, Pointer, Problem, Source, discover
from blendex.blend.index_path import sidecar_files
from blendex.blend.load import Limits
from blendex.blend.world import World
from blendex.errors import PASSING, BlendexError, Code
from blendex.formats.kinds import KINDS
from blendex.storage.interface import Stat, Storage
from blendex.storage.stores import open_stores

CHUNK = 4096


class FolderReader:
    """Nested files and folders of a blend, by address, inside the allowed roots.

    Nested texts that came with the submission win over the disk: a build means what was posted.
    """

    def __init__(self, storage: Storage, nested: Mapping[str, bytes], limit: int) -> None:
        self._storage = storage
        self._nested = nested
        self._limit = limit

    def read(self, address: str, limit: int | None = None) -> bytes:
        """A nested blend, or a catalog of at most ``limit`` bytes."""
        if address in self._nested:
            return self._nested[address]
        try:
            return self._storage.read(address, self._limit if limit is None else limit)
        except BlendexError as error:
            if error.code is Code.SOURCE_MISSING:
                raise BlendexError(
                    Code.NESTED_MISSING,
                    "this nested blend does not exist.",
                    file=address,
                    next_step="Check the path; a relative one is looked for beside the file that names it.",
                ) from error
            raise

    def list(self, address: str) -> list[tuple[str, bool]]:
        """Names in a folder, with whether each is a folder."""
        return self._storage.list(address)


def limits_of(arguments: dict[str, Any]) -> Limits:
    """The blend limits that travel in a plan's arguments."""
    return Limits(paths=arguments["max_sources"])


def _stat_all(
    storage: Storage, world: World, sources: list[Source], derived: Collection[Source]
) -> Iterator[tuple[Source, str, Stat | BlendexError | None]]:
    """Every source with its address and its stat, or what is wrong with it, in order; None for a derived one."""
    refused: dict[int, BlendexError] = {}
    addresses: list[str] = []
    for number, source in enumerate(sources):
        if source in derived:
            continue
        try:
            addresses.append(world.address(source.path))
        except BlendexError as error:
            refused[number] = error
    answers = zip(addresses, storage.stat_many(addresses), strict=True)
    for number, source in enumerate(sources):
        if source in derived:
            yield source, "", None
            continue
        if number in refused:
            yield source, "", refused[number]
            continue
        address, answer = next(answers)
        if isinstance(answer, BlendexError):
            if answer.code in PASSING:
                # No verdict on this source, and one problem for all: the plan is made when the store is there again.
                raise answer
            answer.file = source.path
        yield source, address, answer


def _collisions(
    world: World, sources: list[Source], owners: dict[Source, list[int]]
) -> Iterable[tuple[int, BlendexError]]:
    """Sources whose sidecars would lie at one place in a mirror, or outside of it.

    One file that is spelled in two ways (``m.jsonl`` and ``./m.jsonl``) has one sidecar, and whoever trains by either
    spelling finds it: that is no collision.
    """
    places: dict[str, Source] = {}
    for source in sources:
        if not KINDS[source.kind].loose:
            continue
        try:
            files = sidecar_files(source.kind, source.path)
        except BlendexError as error:
            for leaf in owners[source]:
                yield leaf, error
            continue
        other = next((places[file] for file in files if file in places), source)
        places |= dict.fromkeys(files, source)
        if other is not source and not _same_file(world, source, other):
            collision = BlendexError(
                Code.INDEX_PATH_COLLISION,
                f"the sidecars of {source.path} ({source.kind}) and {other.path} ({other.kind}) would be one file: "
                "training's index rule drops scheme, host and leading slashes.",
                file=source.path,
                next_step="Put the two in blends of their own, so that each gets a mirror of its own.",
            )
            for leaf in {*owners[source], *owners[other]}:
                yield leaf, collision


def _same_file(world: World, source: Source, other: Source) -> bool:
    """Whether two spellings mean one file, with the same sidecar for both.

    What is bound to its source holds the path as it is spelled, and what is derived has no address of its own.
    """
    kind = KINDS[source.kind]
    if source.kind != other.kind or kind.bound or kind.derived:
        return False
    try:
        return world.address(source.path) == world.address(other.path)
    except BlendexError:
        return False  # told with the source itself


class _Derived:
    """The sources that are made from others: they have no file of their own to stat."""

    def __init__(self, leaves: Iterable[Leaf]) -> None:
        self.of: dict[Source, Derivation] = {}
        self.twice: set[Source] = set()
        for leaf in leaves:
            for made in leaf.derived:
                if self.of.setdefault(made.source, made) != made:
                    self.twice.add(made.source)
        self.inputs = {source for made in self.of.values() for source in made.inputs}
        self.seen: dict[Source, tuple[str, Stat]] = {}  # address and stat of inputs

    def row(self, source: Source) -> tuple[list[Any], dict[str, Any]] | None:
        """The row of a derived source, and what it is made from; None when an input cannot be had.

        Its token is one of its inputs' tokens and devices: a touch of one of them makes it again.
        """
        made = self.of[source]
        if any(item not in self.seen for item in made.inputs):
            return None
        inputs = [[item.kind, item.path, self.seen[item][0], self.seen[item][1].token] for item in made.inputs]
        recipe = [[kind, path] for kind, path, _, _ in inputs]
        derivation = _digest([made.parameters, recipe])[:16]
        address = f"derived:{_digest([address for _, _, address, _ in inputs])}"
        seen = [[token, self.seen[item][1].device] for item, (*_, token) in zip(made.inputs, inputs, strict=True)]
        token = f"0:0:{_digest(seen)}"
        spec = {
            "kind": source.kind, "path": source.path, "address": address, "token": token, "derivation": derivation,
            "parameters": made.parameters, "inputs": inputs,
        }  # fmt: skip
        return [source.kind, source.path, address, token, 0, False, derivation], spec

    def clashes(self, owners: dict[Source, list[int]]) -> Iterable[tuple[int, BlendexError]]:
        """Derived sources that two entries would make differently."""
        for source in sorted(self.twice):
            for leaf in owners[source]:
                yield (
                    leaf,
                    BlendexError(
                        Code.INDEX_PATH_COLLISION,
                        f"two entries make {source.path} from different sources.",
                        file=source.path,
                        next_step="Give each entry a routing index of its own name.",
                    ),
                )


def _digest(value: Any) -> str:
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()


def runs_of(numbers: Iterable[int]) -> list[list[int]]:
    """Numbers in their order as [start, length] runs."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][0] + runs[-1][1] == number:
            runs[-1][1] += 1
        else:
            runs.append([number, 1])
    return runs


def _roles(leaf: Leaf, row_of: dict[Source, int]) -> dict[str, Any]:
    """Which rows stand for what, where that can be checked: rows beside tars, rows about audio, cuts."""
    roles = {"manifests": leaf.manifests, "tars": leaf.tars, "cuts": leaf.cuts}
    return {
        name: runs_of(row_of[source] for source in sources)
        for name, sources in roles.items()
        if sources and all(source in row_of for source in sources)
    }


def _packing(leaf: Leaf, row_of: dict[Source, int]) -> dict[str, Any]:
    """What of a leaf goes into a pack: collections with runs of rows in their order, or the reason against it."""
    packing = leaf.packing
    if packing.refusal is not None:
        place = {"blend_file": leaf.file, "blend_line": leaf.line, "pointer": list(leaf.pointer)}
        return {"refused": place | packing.refusal.as_dict()}
    return {
        "collections": [
            [item.role, item.kind, item.spec, runs_of(row_of[source] for source in item.sources if source in row_of)]
            for item in packing.collections
        ],
        "native": packing.native,
        "paths": packing.paths,
    }


def _problem(error: BlendexError, pointer: Pointer | None, place: dict[str, Any]) -> dict[str, Any]:
    return place | error.as_dict() | {"pointer": list(pointer) if pointer is not None else None}


def run(arguments: dict[str, Any], report: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Read the blend, find its sources, stat them.

    Args:
        arguments: text, file, nested (path to text), world, roots, stores, max_sources, stat_threads, packs, tars,
            pack_sources (fewest sources of a dataset that is packed unasked).
        report: gets {"rows": [[kind, path, address, token, size, learn, derivation], …]} in chunks, sorted by
            (kind, path); sources that cannot be had are left out and named in the problems.

    Returns:
        datasets (with their leaves; a leaf's sources are runs of row numbers, its roles and what of it goes into a
        pack are runs in the order of the blend), packing (which datasets are packed, and why others are not), derived
        (what derived sources are made from), problems, warnings, entries.
        A problem has ``pointer`` (the entry it belongs to) and ``scope``: ``entry`` for the YAML, ``source``
        for a file it names.
    """
    world = World.from_dict(arguments["world"])
    storage = open_stores(arguments)
    nested = {path: text.encode() for path, text in arguments["nested"].items()}
    limits = limits_of(arguments)
    reader = FolderReader(storage, nested, limits.bytes)
    found: Discovery = discover(arguments["text"].encode(), arguments["file"], world, reader, limits)
    paths = arguments.get("tars") == "paths"
    choice = choose(found.datasets, arguments.get("packs", "none"), arguments.get("pack_sources", 1), paths=paths)
    kept = by_paths(found.datasets, choice.wanted) if paths else found.datasets

    leaves = [leaf for dataset in kept for leaf in dataset.leaves]
    owners: dict[Source, list[int]] = {}
    for number, leaf in enumerate(leaves):
        for source in leaf.sources:
            owners.setdefault(source, []).append(number)
    sources = sorted(owners)

    def entry_problem(item: Problem) -> dict[str, Any]:
        return item.as_dict() | {"scope": "entry"}

    derived = _Derived(leaves)
    # Decoding rows takes seven times as long as indexing them: only where there are tars to hold them against.
    learnt = {source for leaf in leaves if leaf.tars for source in (*leaf.manifests, *leaf.tars)}
    problems = [entry_problem(item) for item in found.problems]
    if choice.problem is not None:
        problems.append(choice.problem.as_dict() | {"scope": "entry", "pointer": None})
    for leaf_number, error in (*_collisions(world, sources, owners), *derived.clashes(owners)):
        leaf = leaves[leaf_number]
        place = {"file": leaf.file, "line": leaf.line, "scope": "entry"}
        problems.append(_problem(error, leaf.pointer, place))

    rows: list[list[Any]] = []
    row_of: dict[Source, int] = {}
    bytes_total = 0
    specs: list[dict[str, Any]] = []
    for source, address, answer in _stat_all(storage, world, sources, derived.of):
        if answer is None:
            # Inputs sort before what is derived from them: their kinds do.
            made = derived.row(source)
            if made is not None:
                row_of[source] = len(row_of)
                rows.append(made[0])
                specs.append(made[1])
            continue
        if isinstance(answer, BlendexError):
            for owner in owners[source]:
                leaf = leaves[owner]
                place = {
                    "blend_file": leaf.file,
                    "blend_line": leaf.line,
                    "scope": "source",
                    "path": source.path,
                }
                problems.append(_problem(answer, leaf.pointer, place))
            continue
        row_of[source] = len(row_of)
        bytes_total += answer.size
        if source in derived.inputs:
            derived.seen[source] = (address, answer)
        rows.append([source.kind, source.path, address, answer.token, answer.size, source in learnt, ""])
        if len(rows) == CHUNK:
            report({"rows": rows})
            rows = []
    if rows:
        report({"rows": rows})

    datasets = []
    for dataset in kept:
        described = []
        for leaf in dataset.leaves:
            numbers = [row_of[source] for source in leaf.sources if source in row_of]
            described.append(
                {
                    "pointer": list(leaf.pointer),
                    "type": leaf.type,
                    "file": leaf.file,
                    "line": leaf.line,
                    "weight": leaf.weight,
                    "share": leaf.share,
                    "needs_index": leaf.needs_index,
                    "sources": runs_of(sorted(set(numbers))),
                    "missing": len(leaf.sources) - len(numbers),
                    "roles": _roles(leaf, row_of),
                    "pack": _packing(leaf, row_of),
                }
            )
        datasets.append(
            {
                "name": dataset.name,
                "type": dataset.type,
                "file": dataset.file,
                "line": dataset.line,
                "pointer": list(dataset.pointer),
                "weight": dataset.weight,
                "share": dataset.share,
                "leaves": described,
            }
        )
    return {
        "datasets": datasets,
        "packing": choice.as_dict(),
        "derived": specs,
        "problems": problems,
        "warnings": [item.as_dict() for item in found.warnings],
        "entries": found.entries,
        "sources": len(row_of),
        "bytes": bytes_total,
        "figures": storage.figures.as_dict(),
    }
