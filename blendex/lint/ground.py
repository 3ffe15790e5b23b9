"""What the linter may look at: nested files, folders, and facts about files inside the allowed roots."""

from __future__ import annotations

import builtins
import itertools
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from blendex.blend.load import Reader
from blendex.blend.model import Source
from blendex.errors import BlendexError, Code
from blendex.formats.findings import Finding as SourceFinding
from blendex.storage.interface import Opened, Stat
from blendex.storage.local import LocalStorage

if TYPE_CHECKING:  # numpy takes a tenth of a second, and few configs have packs
    from blendex.formats.packreader import PackReader

_WHOLE_SIDECAR = 8 * 2**20
_EDGE = 64 * 1024


@dataclass(frozen=True, slots=True)
class Sidecar:
    """What is wrong with a sidecar; empty when it is good."""

    missing: bool
    wrong: str


class Ground(Reader, Protocol):
    """How the linter reaches the disk. Addresses are absolute; whatever lies outside the roots is refused."""

    def stat_many(self, addresses: Sequence[str]) -> Iterator[Stat | BlendexError]:
        """The stat of each file, or what hinders."""
        ...

    def open(self, address: str) -> Opened:
        """A file to read from.

        Raises:
            BlendexError: it cannot be read.
        """
        ...

    def pack(self, address: str) -> PackReader:
        """An opened pack.

        Raises:
            BlendexError: it cannot be read, or is damaged.
        """
        ...

    def sidecar(self, address: str, source: Stat | None) -> Sidecar:
        """The rule of ``_is_indexed`` in ``build_indexes.py`` (NeMo Speech main, c03be830).

        Args:
            address: of the sidecar.
            source: what it indexes; None when that cannot be asked.

        Raises:
            BlendexError: whether it is there cannot be known.
        """
        ...


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen in a source.

    Args:
        findings: in it.
        error: why it has no index.
        whole: False when parts of it were left out.
    """

    findings: tuple[SourceFinding, ...]
    error: BlendexError | None = None
    whole: bool = True

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        error = self.error.as_dict() if self.error is not None else None
        return {"findings": [item.as_dict() for item in self.findings], "error": error, "whole": self.whole}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Seen:
        """The one whose ``as_dict`` is ``data``."""
        error = BlendexError.from_dict(data["error"]) if data["error"] is not None else None
        return cls(tuple(SourceFinding.from_dict(item) for item in data["findings"]), error, data["whole"])


class Knowledge(Protocol):
    """What is known of the content of sources, from somewhere that has read them."""

    def seen(self, sources: Sequence[tuple[Source, str]]) -> Mapping[Source, Seen]:
        """Of those (source, address) whose content is known as it is now."""
        ...


class Disk:
    """The files of this machine, through the storage that holds the allowed roots.

    Args:
        storage: what may be read.
        reader: how nested blends are read; texts that came along win there.
    """

    def __init__(self, storage: LocalStorage, reader: Reader) -> None:
        self._storage = storage
        self._reader = reader

    def read(self, path: str, limit: int | None = None) -> bytes:
        """A nested blend."""
        return self._reader.read(path, limit)

    def list(self, path: str) -> builtins.list[tuple[str, bool]]:
        """Names in a folder."""
        return self._reader.list(path)

    def stat_many(self, addresses: Sequence[str]) -> Iterator[Stat | BlendexError]:
        """The stat of each file, or what hinders."""
        return self._storage.stat_many(addresses)

    def open(self, address: str) -> Opened:
        """A file to read from."""
        return self._storage.open(address)

    def pack(self, address: str) -> PackReader:
        """An opened pack: the very file that the storage has let through."""
        from blendex.formats.packreader import PackReader

        with self._storage.open(address) as opened:
            return PackReader(f"/proc/self/fd/{opened.fileno()}")

    def sidecar(self, address: str, source: Stat | None) -> Sidecar:
        """What is wrong with a sidecar."""
        try:
            opened = self._storage.open(address)
        except BlendexError as error:
            if error.code is Code.SOURCE_MISSING:
                return Sidecar(True, "it is not there")
            raise
        with opened:
            if opened.size < 8 or opened.size % 8:
                return Sidecar(False, f"its {opened.size} bytes are no index")
            length = opened.size if opened.size <= _WHOLE_SIDECAR else _EDGE
            head = opened.pread(length, 0)
            end = head[-8:] if length == opened.size else opened.pread(8, opened.size - 8)
            if len(head) != length or len(end) != 8:
                return Sidecar(False, "it is being changed")
            (last,) = struct.unpack("<Q", end)
            if source is not None and last != source.size:
                return Sidecar(False, f"it was made when the source had {last:,} bytes; now it has {source.size:,}")
            if source is not None and source.mtime_ns > opened.stat.mtime_ns:
                return Sidecar(False, "the source is newer than it")
            values = struct.unpack(f"<{length // 8}Q", head)
            if any(after < before for before, after in itertools.pairwise(values)):
                return Sidecar(False, "its offsets decrease")
        return Sidecar(False, "")


class Nowhere:
    """No disk: nested files that came along, and nothing else."""

    def __init__(self, nested: Mapping[str, bytes] | None = None, reader: Reader | None = None) -> None:
        self._nested = dict(nested or {})
        self._reader = reader

    def read(self, path: str, limit: int | None = None) -> bytes:
        """A nested blend: one that came along, or that the reader may read."""
        if self._reader is not None:
            return self._reader.read(path, limit)
        if path in self._nested:
            return self._nested[path]
        raise BlendexError(
            Code.NESTED_MISSING, "this nested blend did not come along.", file=path, next_step="Send it too."
        )

    def list(self, path: str) -> builtins.list[tuple[str, bool]]:
        """No folder can be looked into."""
        raise _unseen(path)

    def stat_many(self, addresses: Sequence[str]) -> Iterator[Stat | BlendexError]:
        """Nothing is known of any file."""
        return (_unseen(address) for address in addresses)

    def open(self, address: str) -> Opened:
        """No file can be read."""
        raise _unseen(address)

    def pack(self, address: str) -> PackReader:
        """No pack can be read."""
        raise _unseen(address)

    def sidecar(self, address: str, source: Stat | None) -> Sidecar:
        """Nothing is known of any sidecar."""
        del source
        raise _unseen(address)


def _unseen(address: str) -> BlendexError:
    return BlendexError(
        Code.PATH_OUTSIDE_ROOTS,
        "files cannot be looked at here.",
        file=address,
        next_step="Lint where the data is, or let the service that may read it do so.",
    )
