"""What was asked of the disk: each question once, for all rules and for every turn of a patch."""

from __future__ import annotations

from collections.abc import Sequence

from blendex.blend.index_path import index_path
from blendex.blend.world import World
from blendex.errors import BlendexError
from blendex.lint.ground import Ground, Sidecar
from blendex.storage.interface import Stat


class Lookups:
    """Answers about paths, as a config spells them.

    Args:
        world: where paths lie.
        ground: what may be looked at.
    """

    def __init__(self, world: World, ground: Ground) -> None:
        self._world = world
        self._ground = ground
        self._addresses: dict[str, str | None] = {}
        self._indexes: dict[tuple[str, str | None], str | None] = {}
        self._stats: dict[str, Stat | BlendexError | None] = {}
        self._sidecars: dict[tuple[str, str], Sidecar | None] = {}

    def address(self, path: str) -> str | None:
        """Where a path lies on this machine; None for what does not."""
        try:
            return self._addresses[path]
        except KeyError:
            pass
        try:
            found: str | None = self._world.address(path)
        except BlendexError:
            found = None
        self._addresses[path] = found
        return found

    def index_of(self, path: str, root: str | None) -> str | None:
        """Where the index of a path lies under a root; None where upstream's rule makes none."""
        key = (path, root)
        try:
            return self._indexes[key]
        except KeyError:
            pass
        try:
            found: str | None = index_path(path, root)
        except ValueError:
            found = None
        self._indexes[key] = found
        return found

    def stats(self, paths: Sequence[str]) -> dict[str, Stat | BlendexError | None]:
        """The stat of each path, what hinders it, or None where it has no address here."""
        known = self._stats
        missing = [path for path in dict.fromkeys(paths) if path not in known]
        if missing:
            addresses = [(path, self.address(path)) for path in missing]
            known |= {path: None for path, address in addresses if address is None}
            local = [(path, address) for path, address in addresses if address is not None]
            answers = self._ground.stat_many([address for _, address in local])
            known.update((path, answer) for (path, _), answer in zip(local, answers, strict=True))
        return {path: known[path] for path in paths}

    def stat(self, path: str) -> Stat | BlendexError | None:
        """The stat of one path."""
        return self._stats[path] if path in self._stats else self.stats((path,))[path]

    def sidecar(self, path: str, source: str) -> Sidecar | None:
        """What is wrong with the sidecar at ``path`` of a source; None where it cannot be looked at."""
        key = (path, source)
        if key in self._sidecars:
            return self._sidecars[key]
        address = self.address(path)
        stat = self.stat(source)
        try:
            whole = stat if isinstance(stat, Stat) else None
            found = self._ground.sidecar(address, whole) if address is not None else None
        except BlendexError:
            found = None
        self._sidecars[key] = found
        return found
