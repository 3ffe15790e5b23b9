"""The keys of DESIGN: what makes two mirrors the same one.

    source_set = SHA-256 over the sorted, unique (kind, path)
    content    = SHA-256 over the sorted (kind, path, recipe, strength, content hash)
    key        = SHA-256 over (source_set, content, sorted pack layout hashes, datasets without loose sidecars)

Never in a key: workers, memory, folders, addresses, time, user, build, weights, allowances. Every field is
length-prefixed, so no two different lists are written as the same bytes.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from functools import lru_cache

_LENGTH = struct.Struct("<Q")


def _field(text: str) -> bytes:
    data = text.encode("utf-8", "surrogateescape")
    return _LENGTH.pack(len(data)) + data


# Kinds, recipes and strengths are few, and come with every source.
_word = lru_cache(maxsize=1_024)(_field)


class _Digest:
    def __init__(self, domain: str) -> None:
        self._hash = hashlib.sha256()
        self.add(domain)
        self.update = self._hash.update  # bound once: two calls a source are saved

    def add(self, *fields: str) -> None:
        self._hash.update(b"".join(map(_field, fields)))

    def hex(self) -> str:
        return self._hash.hexdigest()


class KeyMaker:
    """Takes sources in the order of (kind, path), each once, and makes the key of their mirror."""

    def __init__(self) -> None:
        self._set = _Digest("blendex source_set 1")
        self._content = _Digest("blendex content 1")
        self._last: tuple[str, str] | None = None

    def add(self, kind: str, path: str, recipe: str, strength: str, content_hash: str) -> None:
        """The next source.

        Raises:
            ValueError: sources are not sorted, or one came twice: the key would depend on the order of a blend.
        """
        place = (kind, path)
        if self._last is not None and place <= self._last:
            raise ValueError("sources must be sorted and unique")
        self._last = place
        named = _word(kind) + _field(path)
        self._set.update(named)
        self._content.update(named + _word(recipe) + _word(strength) + _field(content_hash))

    @property
    def source_set(self) -> str:
        """Which sources, whatever they hold."""
        return self._set.hex()

    @property
    def content(self) -> str:
        """Which sources, and what they hold."""
        return self._content.hex()

    def key(self, layouts: Iterable[str] = (), packed_only: Iterable[str] = ()) -> str:
        """The mirror's key.

        Args:
            layouts: layout hashes of its packs.
            packed_only: which sources have no loose sidecars: the layout hashes of their packs, and a digest of those
                that have one besides because an unpacked dataset names them too.
        """
        digest = _Digest("blendex mirror 1")
        digest.add(self.source_set, self.content)
        for values in (sorted(layouts), sorted(packed_only)):
            digest.add(str(len(values)), *values)
        return digest.hex()
