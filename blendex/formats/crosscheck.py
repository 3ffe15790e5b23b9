"""What only shows when sources are held against each other: rows against members, a sidecar against the right one.

Everything comes from what was learnt when the sources were read. These findings never refuse a source: a loose index
is right whatever its partner is. Packs and the loaders of training are what they matter to.
"""

from __future__ import annotations

import re
import struct
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from blendex.formats.findings import FindingClass, Severity
from blendex.formats.learned import ABSENT, SUB, Members, Rows
from blendex.formats.text import shown

_NOTE, _WARN = Severity.NOTE, Severity.WARN
PLACES = 20
"""Places told of one finding; the others are counted."""
_TAR_ID = re.compile(r"audio[^/]*_(\d+)[^/]*\.tar")  # nemo_tar_routing.py, NeMo Speech main

CROSS_FINDINGS: Mapping[str, FindingClass] = MappingProxyType(
    {
        "member_missing": FindingClass(
            _WARN,
            "Rows name audio that their tar does not have; training fails on them, and no pack is made.",
            "Take the rows out of the manifest, or pack the tar again.",
        ),
        "member_name_differs": FindingClass(
            _WARN,
            "Rows name audio whose member differs only by a leading ./, by Unicode normalisation or by the encoding of "
            "its name; readers compare names byte by byte, so it counts as missing.",
            "Write the names in rows and tar alike.",
        ),
        "member_ambiguous": FindingClass(
            _WARN,
            "Rows name audio that several members of their tar are called; readers take one, packs are refused.",
            "Pack the tar again with every name once.",
        ),
        "member_unreachable": FindingClass(
            _WARN,
            "Rows name a member that shares its record of the index with the member before it and is never read.",
            "Give neighbours in the tar different stems.",
        ),
        "member_without_row": FindingClass(
            _NOTE, "Members of a tar that no row names are never drawn.", "Nothing, if they are left out on purpose."
        ),
        "order_differs": FindingClass(
            _NOTE,
            "Rows stand in another order than their members. Packs map rows to members; loose readers look through the "
            "whole tar for each such row.",
            "Nothing; for speed, write rows in the order of the tar.",
        ),
        "sub_row": FindingClass(
            _NOTE, "Rows are parts of a recording (-sub and a number); several rows lead to one member.", "Nothing."
        ),
        "row_without_audio": FindingClass(
            _WARN, "Rows beside a tar name no audio_filepath; training fails on them.", "Name the audio of each row."
        ),
        "bad_shard_id": FindingClass(
            _WARN,
            "Rows of a manifest for several tars have no shard_id that is the number of one of them; such a row is "
            "routed nowhere, and packs are refused.",
            "Give each row the number of its tar as an integer shard_id.",
        ),
        "tars_without_numbers": FindingClass(
            _WARN,
            "One manifest stands for several tars whose names hold no number, or the same number twice "
            "(audio_<n>.tar); rows cannot be routed by shard_id, and packs are refused.",
            "Rename the tars to audio_<n>.tar.",
        ),
        "skipped_row": FindingClass(
            _NOTE, "Rows are marked _skipme; they stay in the index, and training passes over them.", "Nothing."
        ),
        "odd_duration": FindingClass(
            _WARN,
            "Rows have a duration that is negative, infinite, not a number or text; sums and buckets go wrong.",
            "Write durations as plain seconds.",
        ),
        "repeated_key": FindingClass(
            _WARN, "Rows give audio_filepath or duration twice; the last one counts.", "Keep one of the two."
        ),
        "not_strict_json": FindingClass(
            _WARN, "Rows hold NaN, Infinity or the like, which is no JSON; strict parsers fail.", "Write plain numbers."
        ),
        "too_deep": FindingClass(
            _WARN, "Rows are nested too deeply for parsers; training fails on them.", "Flatten the rows."
        ),
        "undecodable_row": FindingClass(
            _WARN,
            "Rows begin and end as objects but are not JSON; training fails when one is drawn, and packs are refused.",
            "Write the rows again.",
        ),
        "cuts_as_manifest": FindingClass(
            _WARN,
            "A manifest_filepath holds Lhotse cuts; the NeMo reader finds no audio_filepath in them.",
            "Name the file under cuts_path of a lhotse entry.",
        ),
        "manifest_as_cuts": FindingClass(
            _WARN,
            "A cuts_path holds NeMo rows; the Lhotse reader fails on them.",
            "Name the file under manifest_filepath of a nemo entry.",
        ),
        "sidecar_beside_disagrees": FindingClass(
            _WARN,
            "An .idx lies beside the source and is not its index; a job that does not read the mirror uses it unseen.",
            "Delete it, or build it again.",
        ),
        "valid_on_one_machine": FindingClass(
            _NOTE,
            "A routing index holds device and inode numbers of its sources, as upstream wants; training refuses it on "
            "machines that see other numbers.",
            "Train where these numbers are seen, or build on the machine that trains.",
        ),
    }
)


@dataclass(slots=True)
class Noted:
    """A cross finding about one source.

    Attributes:
        name: a key of ``CROSS_FINDINGS``.
        count: how often it occurs.
        places: 0-based numbers of the first rows or members it is about.
        detail: names of members, numbers; never text of a row.
    """

    name: str
    count: int = 0
    places: list[int] = field(default_factory=list)
    detail: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        data: dict[str, Any] = {"name": self.name, "count": self.count}
        if self.places:
            data["places"] = self.places
        if self.detail:
            data["detail"] = self.detail
        return data


class Notes:
    """Gathers cross findings about one source."""

    def __init__(self) -> None:
        self._noted: dict[str, Noted] = {}

    def add(self, name: str, place: int | None = None, detail: str = "", count: int = 1) -> None:
        """Note one occurrence, or ``count`` of them."""
        noted = self._noted.setdefault(name, Noted(name))
        noted.count += count
        if place is not None and len(noted.places) < PLACES:
            noted.places.append(place)
        noted.detail = noted.detail or detail

    def take(self, noted: Iterable[Noted]) -> None:
        """Add what is of a class that is not here yet."""
        for item in noted:
            self._noted.setdefault(item.name, item)

    def all(self) -> list[Noted]:
        """In the order of the table."""
        return [self._noted[name] for name in CROSS_FINDINGS if name in self._noted]


def tar_numbers(paths: Sequence[str]) -> list[int] | None:
    """The numbers by which rows name tars; None when some tar has none, or two have the same."""
    found = [_TAR_ID.search(path) for path in paths]
    numbers = [int(match[1][-18:]) for match in found if match]
    return numbers if len(numbers) == len(paths) == len(set(numbers)) else None


def compare(rows: Rows, tars: Sequence[Members], numbers: Sequence[int] | None) -> tuple[Notes, list[Notes]]:
    """Hold a manifest against the tar beside it, or against all of its tars.

    Args:
        rows: of the manifest.
        tars: the members of each tar.
        numbers: the number of each tar, when rows lead to their tar by ``shard_id``; None when there is one tar, or
            when the numbers say nothing.

    Returns:
        What there is to say of the manifest, and of each tar.
    """
    return _Comparison(rows, tars, numbers).run()


class _Comparison:
    def __init__(self, rows: Rows, tars: Sequence[Members], numbers: Sequence[int] | None) -> None:
        self._rows, self._tars, self._numbers = rows, tars, numbers
        self._notes = Notes()
        self._named: list[dict[bytes, list[int]]] = []
        self._loose: list[dict[bytes, bytes] | None] = [None] * len(tars)
        self._wanted: list[set[bytes]] = [set() for _ in tars]
        for tar in tars:
            named: dict[bytes, list[int]] = {}
            for number, name in enumerate(tar.names):
                named.setdefault(name, []).append(number)
            self._named.append(named)

    def run(self) -> tuple[Notes, list[Notes]]:
        if self._numbers is None and len(self._tars) > 1:
            self._notes.add("tars_without_numbers")
        position = dict(zip(self._numbers or (), range(len(self._tars)), strict=False))
        ordered = True
        last = -1
        for row, name in enumerate(self._rows.names):
            if row in self._rows.skipped:
                continue
            if not name:
                self._notes.add("row_without_audio", row)
                continue
            where = list(range(len(self._tars)))
            if self._numbers is not None:
                tar = position.get(self._rows.shards[row])
                if tar is None or self._rows.shards[row] <= ABSENT:
                    self._notes.add("bad_shard_id", row)
                    continue
                where = [tar]
            found = self._find(row, name, where)
            if len(self._tars) == 1 and found >= 0:
                ordered = ordered and found >= last
                last = max(last, found)
        if not ordered:
            self._notes.add("order_differs")
        return self._notes, [self._unnamed(number) for number in range(len(self._tars))]

    def _find(self, row: int, name: bytes, where: Sequence[int]) -> int:
        """Where a row's member stands in its tar; -1 when it has none."""
        wanted = name
        part = SUB.match(name)
        if part is not None:
            wanted = part[1] + (part[2] or b"")
            self._notes.add("sub_row", row)
        for tar in where:
            members = self._named[tar].get(wanted)
            if members is None:
                continue
            self._wanted[tar].add(wanted)
            if len(members) > 1:
                self._notes.add("member_ambiguous", row, f"{len(members)} members are called {shown(wanted)}")
            elif not self._tars[tar].first[members[0]]:
                self._notes.add("member_unreachable", row, f"the member {shown(wanted)}")
            return members[0]
        near = next((match for tar in where if (match := self._near(tar, wanted)) is not None), None)
        if near is None:
            self._notes.add("member_missing", row)
        else:
            self._notes.add("member_name_differs", row, f"the tar has {shown(near)}")
        return -1

    def _near(self, tar: int, name: bytes) -> bytes | None:
        """A member of another spelling of the same name."""
        spellings = self._loose[tar]
        if spellings is None:
            spellings = self._loose[tar] = {}
            for member in self._named[tar]:
                for spelling in _spellings(member):
                    spellings.setdefault(spelling, member)
        return next((spellings[spelling] for spelling in _spellings(name) if spelling in spellings), None)

    def _unnamed(self, tar: int) -> Notes:
        notes = Notes()
        left = [
            number for name, numbers in self._named[tar].items() if name not in self._wanted[tar] for number in numbers
        ]
        for number in sorted(left):
            notes.add("member_without_row", number, f"the member {shown(self._tars[tar].names[number])}")
        return notes


def _spellings(name: bytes) -> list[bytes]:
    bare = name
    while bare.startswith(b"./"):
        bare = bare[2:]
    texts = []
    for encoding in ("utf-8", "latin-1"):
        try:
            texts.append(bare.decode(encoding))
        except UnicodeDecodeError:
            continue
        if bare.isascii():
            break
    return [unicodedata.normalize("NFC", text).encode() for text in texts]


def judge_sidecar(data: bytes, right: bytes) -> str | None:
    """What is wrong with an ``.idx`` that lies beside a source whose index is ``right``; None when nothing is."""
    if data == right:
        return None
    if not data:
        return "it has 0 bytes"
    if data.startswith(b"\x93NUMPY"):
        return "it is a NumPy file"
    if data.startswith(b"NEMOTAR\0"):
        return "it is of an abandoned format"
    if len(data) % 8:
        return f"its {len(data)} bytes are no whole numbers of 8"
    size = int.from_bytes(right[-8:], "little")
    last = int.from_bytes(data[-8:], "little")
    if last != size:
        if int.from_bytes(data[-8:], "big") == size:
            return "its numbers are big-endian"
        if data == right[:-8]:
            return f"it ends at {last}, not at {size}: the size is missing, or it was made for a shorter source"
        return f"it was made for a source of {last} bytes, not of {size}"
    values = struct.unpack(f"<{len(data) // 8}Q", data)
    wanted = struct.unpack(f"<{len(right) // 8}Q", right)
    for record, (before, after) in enumerate(pairwise(values)):
        if before > after:
            return f"record {record} begins at {before} and ends at {after}"
    for record, (told, true) in enumerate(zip(values, wanted, strict=False)):
        if told != true:
            return f"record {record} begins at byte {true}, not at {told}: it and the one before are cut wrong"
    return f"it has {len(values) - 1} records instead of {len(wanted) - 1}"
