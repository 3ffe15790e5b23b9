"""One lint in a child process: hostile texts cost its memory and its time, and no thread of who asked.

The child knows no catalog. It is called twice: first it says which sources the config names, with the token that each
has now; who asked looks them up, and hands in what is known of those whose token is the same.
"""

from __future__ import annotations

import base64
import gc
from collections.abc import Callable, Sequence
from typing import Any

from blendex.blend.discover import explore
from blendex.blend.load import Limits
from blendex.blend.model import Source
from blendex.blend.world import World
from blendex.errors import BlendexError
from blendex.lint import outputs
from blendex.lint.facts import read_facts
from blendex.lint.ground import Disk, Seen
from blendex.lint.launcher import read_launcher
from blendex.lint.migrate import answer, migrate
from blendex.lint.profile import profile
from blendex.lint.sarif import sarif
from blendex.lint.suppress import read_baseline
from blendex.storage.local import LocalStorage
from blendex.storage.stores import open_stores
from blendex.units.plan import FolderReader


class _Known:
    """What was handed in."""

    def __init__(self, rows: Sequence[tuple[str, str, dict[str, Any]]]) -> None:
        self._rows = {Source(kind, path): Seen.from_dict(data) for kind, path, data in rows}

    def seen(self, sources: Sequence[tuple[Source, str]]) -> dict[Source, Seen]:
        return {source: self._rows[source] for source, _ in sources if source in self._rows}


def run(arguments: dict[str, Any], report: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Lint one config.

    Args:
        arguments: text, file, nested (address → text), world; roots and stores (where sources may be read), mirrors
            (folders of ours, where indexes may be looked at); nodes and paths (limits); upstream; launcher ([name,
            text] or None), facts and baseline (text or None); output (json, sarif or zip); known ([[kind, path, seen],
            …]), or None to be told which sources there are. Texts are base64.
        report: unused; no source is read whole.

    Returns:
        ``sources`` ([[kind, path, address, token], …]), or ``json``, ``sarif``, ``zip`` (base64).

    Raises:
        BlendexError: something that came cannot be read.
    """
    del report
    # Everything stays in use until the end; afterwards nothing does.
    gc.disable()
    try:
        return _run(arguments)
    finally:
        gc.enable()
        gc.collect()


def _run(arguments: dict[str, Any]) -> dict[str, Any]:
    limits = Limits(nodes=arguments["nodes"], paths=arguments["paths"], pattern=arguments["paths"])
    seen = LocalStorage((*arguments["roots"], *arguments["mirrors"]))
    nested = {address: base64.b64decode(text) for address, text in arguments["nested"].items()}
    ground = Disk(seen, FolderReader(open_stores(arguments), nested, limits.bytes))
    text, file, world = base64.b64decode(arguments["text"]), arguments["file"], World.from_dict(arguments["world"])
    if arguments["known"] is None:
        return {"sources": _sources(text, file, world, ground, limits)}
    launcher, facts, baseline = arguments["launcher"], arguments["facts"], arguments["baseline"]
    migration = migrate(
        text, file, world, ground,
        profile=profile(arguments["upstream"]),
        facts=read_facts(base64.b64decode(facts)) if facts is not None else None,
        launcher=read_launcher(base64.b64decode(launcher[1]), launcher[0]) if launcher is not None else None,
        baseline=read_baseline(base64.b64decode(baseline), "baseline") if baseline is not None else [],
        knowledge=_Known(arguments["known"]),
        limits=limits,
    )  # fmt: skip
    output = arguments["output"]
    if output == "zip":
        return {"zip": base64.b64encode(outputs.zipped(outputs.folder(migration))).decode()}
    return {"sarif": sarif([migration])} if output == "sarif" else {"json": answer([migration])}


def _sources(text: bytes, file: str, world: World, ground: Disk, limits: Limits) -> list[list[str]]:
    _, discovery = explore(text, file, world, ground, limits)
    named = (source for dataset in discovery.datasets for leaf in dataset.leaves for source in leaf.sources)
    found = []
    for source in dict.fromkeys(named):
        try:
            found.append((source, world.address(source.path)))
        except BlendexError:
            continue  # it lies elsewhere; rules say what is to be said
    stats = ground.stat_many([address for _, address in found])
    return [
        [source.kind, source.path, address, stat.token]
        for (source, address), stat in zip(found, stats, strict=True)
        if not isinstance(stat, BlendexError)
    ]
