"""Routes of packed NeMo datasets: for each row of a manifest, which member of which tar it means.

The rules are those of ``convert_indexes_to_idxpack.py`` (NeMo Speech main, 0b44a03b) and of the adapter that reads
its arrays. A row names its member by ``audio_filepath``; a row that is skipped has no place.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from blendex.errors import BlendexError
from blendex.formats.learned import ABSENT, BOOLEAN, SUB, Members, Rows
from blendex.formats.pack import ARRAY, SKIPPED, Collection, refused
from blendex.formats.text import shown

_AUDIO_NUMBER = re.compile(r"audio[^/]*_(\d+)[^/]*\.tar$")
_U32 = np.dtype("<u4")
_NO_NUMBER = {ABSENT: "has no shard_id", BOOLEAN: "has a shard_id that is true or false"}


def route_collections(
    manifest: Any, tar: Any, manifests: int, tars: int, *, ordinal: bool = True
) -> tuple[Collection, ...]:
    """The arrays that go with one pair of manifests and tars: the shard route, where one manifest serves several
    tars, and the ordinal route.

    Args:
        manifest: the configured value of the manifests.
        tar: that of the tars.
        manifests: how many manifests; each gets a shard of the arrays.
        tars: how many tars.
        ordinal: False where tars are packed by their paths alone: there are no records to route to.
    """
    shards = ("",) * manifests
    to_record = Collection(
        "native_tar_route",
        "nemo_manifest_row_to_tar_ordinal_v1",
        {"manifest": manifest, "tar": tar, "normalization": "nemo-audio-member-v1"},
        shards,
        ARRAY,
    )
    last = (to_record,) if ordinal else ()
    if manifests != 1 or tars <= 1:
        return last
    spec = {"manifest": manifest, "tar": tar, "routing": "manifest-shard-id-v1"}
    return (Collection("native_tar_shard_route", "nemo_manifest_row_to_tar_shard_v1", spec, shards, ARRAY), *last)


class Tar:
    """The records of a tar by the name of their first member.

    Args:
        path: in messages.
        members: its regular members.

    Raises:
        BlendexError: pack_refused, when two records have one name.
    """

    def __init__(self, path: str, members: Members) -> None:
        self.path = path
        self._ordinals: dict[bytes, int] = {}
        ordinal = 0
        for name, first in zip(members.names, members.first, strict=True):
            if not first:
                continue
            if name in self._ordinals:
                raise refused(
                    f"two records of it are called {shown(name)}.", path, "Pack the shard again with unique names."
                )
            self._ordinals[name] = ordinal
            ordinal += 1

    def find(self, name: bytes) -> int | None:
        """The record of a name."""
        return self._ordinals.get(name)


def member_name(name: bytes) -> bytes:
    """The member that ``audio_filepath`` means: without the number of a part."""
    match = SUB.match(name)
    return match[1] + (match[2] or b"") if match else name


def ordinals(manifest: str, rows: Rows, tars: Sequence[Tar], shards: Sequence[int] | None) -> bytes:
    """The ordinal route of one manifest.

    Args:
        manifest: its path, in messages.
        rows: its rows.
        tars: all tars of the pair; without ``shards``, the one that belongs to the manifest.
        shards: for each row the position of its tar.

    Raises:
        BlendexError: pack_refused, naming the row and why.
    """
    made = np.empty(len(rows.names), _U32)
    for number, name in enumerate(rows.names):
        if number in rows.skipped:
            made[number] = SKIPPED
            continue
        if not name:
            raise _row(manifest, number, "names no audio")
        tar = tars[0] if shards is None else tars[shards[number]]
        found = tar.find(member_name(name))
        if found is None:
            raise _row(manifest, number, f"names audio that begins no record of {tar.path}")
        made[number] = found
    return made.tobytes()


def shard_positions(manifest: str, rows: Rows, tars: Sequence[str]) -> list[int]:
    """The position of each row's tar, by the number in its name; ``SKIPPED`` for rows without a place.

    Raises:
        BlendexError: pack_refused.
    """
    places: dict[int, int] = {}
    for position, tar in enumerate(tars):
        match = _AUDIO_NUMBER.search(tar)
        if match is None:
            raise refused(
                "no shard number is in its name, and one manifest serves several tars.",
                tar,
                "Call the tars audio_<number>.tar.",
            )
        number = int(match[1][-4000:])
        if number in places:
            raise refused(f"another tar has the number {number} as well.", tar, "Number the tars uniquely.")
        places[number] = position
    made = []
    for row, shard in enumerate(rows.shards):
        if row in rows.skipped:
            made.append(SKIPPED)
            continue
        position = places.get(shard, -1) if shard >= 0 else -1
        if position < 0:
            what = (
                _NO_NUMBER.get(shard, "has a shard_id that is no number of a tar")
                if shard < 0
                else (f"has shard_id {shard}, which is no number of a tar")
            )
            raise _row(manifest, row, what)
        made.append(position)
    return made


def positions(shards: Sequence[int]) -> bytes:
    """The shard route of one manifest."""
    return np.array(shards, _U32).tobytes()


def _row(manifest: str, row: int, what: str) -> BlendexError:
    return refused(f"row {row} (from 0) {what}.", manifest, "Correct the row, or mark it with _skipme.")
