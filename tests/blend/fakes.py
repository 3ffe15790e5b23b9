"""A disk made of a dict, as the reader of a blend."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from blendex.blend.discover import Discovery, Source, discover
from blendex.blend.load import Limits
from blendex.blend.world import World
from blendex.errors import BlendexError, Code

DATA = Path(__file__).parent / "data"


def table(name: str) -> Any:
    return json.loads((DATA / name).read_text(encoding="utf-8"))


class Tree:
    """Files by absolute path. Folders exist when something lies in them."""

    def __init__(self, files: Mapping[str, str | bytes] | None = None) -> None:
        self.files = dict(files or {})
        self.reads: list[str] = []
        self.lists: list[str] = []

    def read(self, path: str, limit: int | None = None) -> bytes:
        self.reads.append(path)
        if path.startswith("/etc/"):
            raise BlendexError(
                Code.PATH_OUTSIDE_ROOTS, f"{path} is outside of the allowed roots.", next_step="Move it."
            )
        if path not in self.files:
            raise BlendexError(Code.NESTED_MISSING, f"{path} does not exist.", next_step="Check the path.")
        text = self.files[path]
        return text if isinstance(text, bytes) else text.encode()

    def list(self, path: str) -> list[tuple[str, bool]]:
        self.lists.append(path)
        prefix = posixpath.normpath(path).rstrip("/") + "/"
        names: dict[str, bool] = {}
        for file in self.files:
            if file.startswith(prefix):
                name, slash, _ = file[len(prefix) :].partition("/")
                names[name] = bool(slash)
        if not names:
            raise BlendexError(Code.FOLDER_MISSING, f"{path} is no folder.", next_step="Check the path.")
        return sorted(names.items())


def found(text: str, tree: Tree | None = None, **world: Any) -> Discovery:
    """Discovery of a blend posted as /cfg/blend.yaml."""
    return discover(text.encode(), "/cfg/blend.yaml", World(**world), tree or Tree(), Limits())


def sources(discovery: Discovery) -> list[Source]:
    """All sources, each once, in order."""
    leaves = (leaf for dataset in discovery.datasets for leaf in dataset.leaves)
    return list(dict.fromkeys(source for leaf in leaves for source in leaf.sources))


def paths(discovery: Discovery) -> list[str]:
    return [source.path for source in sources(discovery)]


def codes(discovery: Discovery) -> list[str]:
    return [str(problem.code) for problem in discovery.problems]
