"""What was asked of the disk: each question once, for all rules and for every turn of a patch."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from blendex.blend.index_path import index_of
from blendex.blend.model import Source
from blendex.blend.world import World
from blendex.errors import BlendexError, Code
from blendex.lint.ground import Ground, Sidecar
from blendex.storage.interface import Stat

if TYPE_CHECKING:
    from blendex.formats.packreader import PackReader

# 160,000 sidecars one after another are three minutes at a millisecond for each.
_THREADS = 16
_BATCH = 64


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
        self._indexes: dict[tuple[Source, str | None], str | None] = {}
        self._stats: dict[str, Stat | BlendexError | None] = {}
        self._sidecars: dict[tuple[str, Source], Sidecar | None] = {}

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

    def index_of(self, source: Source, root: str | None) -> str | None:
        """Where the index of a source lies under a root; None where upstream's rule makes none."""
        key = (source, root)
        try:
            return self._indexes[key]
        except KeyError:
            pass
        try:
            found: str | None = index_of(source.kind, source.path, root)
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

    def pack(self, path: str) -> PackReader | None:
        """An opened pack; None where it cannot be looked at.

        Raises:
            BlendexError: it is damaged, or of a version that nobody reads.
        """
        address = self.address(path)
        try:
            return self._ground.pack(address) if address is not None else None
        except BlendexError as error:
            if error.code in (Code.PACK_DAMAGED, Code.PACK_VERSION):
                raise
            return None

    def prepare(self, pairs: Sequence[tuple[str, Source]]) -> None:
        """Look at many sidecars at one time: on a file server each look is a round trip or three.

        Args:
            pairs: as ``sidecar`` takes them, one by one.
        """
        self.stats([source.path for _, source in pairs])
        new = [pair for pair in pairs if pair not in self._sidecars]
        if len(new) <= _BATCH:
            return
        batches = [new[start : start + _BATCH] for start in range(0, len(new), _BATCH)]
        with ThreadPoolExecutor(_THREADS) as pool:
            for _ in pool.map(self._look, batches):
                pass

    def _look(self, pairs: Sequence[tuple[str, Source]]) -> None:
        for path, source in pairs:
            self.sidecar(path, source)

    def sidecar(self, path: str, source: Source) -> Sidecar | None:
        """What is wrong with the sidecar at ``path`` of a source; None where it cannot be looked at."""
        key = (path, source)
        if source.kind == "sharegpt_route":
            there = self.stat(path)
            missing = isinstance(there, BlendexError) and there.code is Code.SOURCE_MISSING
            return Sidecar(missing, "it is not there" if missing else "") if there is not None else None
        if key in self._sidecars:
            return self._sidecars[key]
        address = self.address(path)
        stat = self.stat(source.path)
        try:
            whole = stat if isinstance(stat, Stat) else None
            found = self._ground.sidecar(address, whole) if address is not None else None
        except (BlendexError, OSError):  # a file server that fails tells nothing of the index
            found = None
        self._sidecars[key] = found
        return found
