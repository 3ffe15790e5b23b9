"""From the leaves of a walk to their sources."""

from __future__ import annotations

import re

from blendex.blend import forms
from blendex.blend.entries import Entry
from blendex.blend.load import MapNode
from blendex.blend.model import Source
from blendex.blend.types import Key
from blendex.blend.walk import Walk
from blendex.blend.work import Found, Work
from blendex.errors import BlendexError, Code

_SHARD_ID = re.compile(r"_(\d+)[^/\d]*$")
_MAX_FOLDERS = 100_000
_MAX_CHARACTERS = 512 * 1024 * 1024


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
        for key in entry.spec.keys:
            name = self._given(entry, entry.node, key)
            if name is None or (opened and key.name not in opened):
                continue
            work = Work(self, entry, entry.node, key, name, found)
            found.by_key[key.name] = forms.sources(work)
            found.specs[key.name] = work.specs
        named = [source for sources in found.by_key.values() for source in sources]
        self.left -= len(named)
        found.sources = tuple(dict.fromkeys(named)) if len(named) > 1 else tuple(named)
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


def _shard_id(path: str) -> int | None:
    match = _SHARD_ID.search(path)
    return int(match.group(1)) if match and len(match.group(1)) < 20 else None
