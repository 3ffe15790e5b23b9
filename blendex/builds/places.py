"""Under which recipe and address the catalog knows the sources of one build."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from blendex.blend.world import World
from blendex.catalog.sources import Known
from blendex.formats.kinds import KINDS, Origin, content_of, recipe
from blendex.storage.local import token_mtime_ns


class Places:
    """Finds the place of each source.

    Args:
        compat: of the build.
        world: of its submission.
        derived: what its derived sources are made from, as its plan told.
    """

    def __init__(self, compat: str, world: World, derived: Iterable[dict[str, Any]]) -> None:
        self.compat = compat
        self._world = world
        self._derived = {(spec["kind"], spec["path"]): spec for spec in derived}

    def recipe(self, kind: str, path: str) -> str:
        """The recipe of a source."""
        spec = self._derived.get((kind, path))
        return recipe(kind, self.compat, spec["derivation"] if spec is not None else "")

    def of(self, kind: str, path: str) -> tuple[str, str]:
        """(recipe, address) of a source."""
        spec = self._derived.get((kind, path))
        address = spec["address"] if spec is not None else self._world.address(path)
        return self.recipe(kind, path), address


def content_hash(kind: str, path: str, known: Known) -> str:
    """The content hash that keys and receipts name for a source."""
    if not KINDS[kind].bound:
        return known.content_hash
    return content_of(kind, known.content_hash, Origin(path, known.size, token_mtime_ns(known.token)))
