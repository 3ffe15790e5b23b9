"""Discovery: the posted YAML → datasets → leaves → sources."""

from __future__ import annotations

from blendex.blend.collections import packing
from blendex.blend.entries import Entry, weight_of
from blendex.blend.load import Limits, Node, Reader
from blendex.blend.model import Dataset, Derivation, Discovery, Leaf, Pointer, Problem, Source
from blendex.blend.sources import Finder
from blendex.blend.walk import Walk
from blendex.blend.work import Found
from blendex.blend.world import World
from blendex.errors import Code

__all__ = [
    "Dataset",
    "Derivation",
    "Discovery",
    "Leaf",
    "Pointer",
    "Problem",
    "Source",
    "discover",
    "explore",
    "nested_files",
]


def nested_files(
    text: bytes, file: str, world: World, reader: Reader, limits: Limits | None = None
) -> dict[str, bytes]:
    """Every nested YAML that string ``input_cfg`` lead to, keyed by the address handed to ``reader.read``.

    Files that cannot be read are left out; ``discover`` reports them.

    Raises:
        BlendexError: the posted text cannot be read at all; NESTED_CYCLE.
    """
    walk = Walk(text, file, world, reader, limits or Limits()).run()
    for problem in walk.problems:
        if problem.code is Code.NESTED_CYCLE:
            raise problem.error()
    return walk.files.texts


def discover(text: bytes, file: str, world: World, reader: Reader, limits: Limits | None = None) -> Discovery:
    """Everything the blend names, and everything that is wrong with it.

    One bad entry never hides another one.

    Args:
        text: the posted YAML.
        file: its name in messages; when absolute, relative ``input_cfg`` are looked for beside it.
        world: what the submission brought along.
        reader: how nested files and folders are reached.
        limits: what the blend may ask for.

    Raises:
        BlendexError: the posted text cannot be read at all.
    """
    return explore(text, file, world, reader, limits)[1]


def explore(
    text: bytes,
    file: str,
    world: World,
    reader: Reader,
    limits: Limits | None = None,
    trees: dict[bytes, Node] | None = None,
) -> tuple[Walk, Discovery]:
    """As ``discover``, with the walk that found it: who judges a config wants its settings and places too.

    Who asks several times about nearly the same texts hands in one ``trees`` each time.
    """
    walk = Walk(text, file, world, reader, limits or Limits(), trees)
    finder = Finder(walk)
    walk.on_leaf = finder
    walk.run()
    leaves: dict[int, list[Leaf]] = {head.position: [] for head in walk.heads}
    for entry in walk.leaves:
        leaves[entry.dataset].append(_leaf(walk, entry, finder.found.get(entry.pointer, Found())))
    datasets = tuple(
        Dataset(
            head.position, head.name, head.pointer, head.type, head.file, head.line,
            tuple(leaves[head.position]), walk.shares.weight(head.pointer),
            walk.shares.of(head.pointer),
        )
        for head in walk.heads
    )  # fmt: skip
    return walk, Discovery(datasets, tuple(walk.problems), tuple(walk.warnings), len(walk.leaves))


def _leaf(walk: Walk, entry: Entry, found: Found) -> Leaf:
    weight = None
    if entry.node is not None and "weight" in entry.node:
        weight = weight_of(walk.resolver, entry.node, entry.place)
    needs_index = entry.spec is None or entry.spec.needs_index
    return Leaf(
        entry.pointer, entry.type, entry.file, entry.line, weight, found.sources, needs_index,
        found.manifests, found.tars, found.cuts, tuple(found.derived), packing=packing(walk, entry, found.by_key),
        share=walk.shares.of(entry.pointer),
    )  # fmt: skip
