"""What can be noticed in a source, with its severity, its effect on training and its remedy: a closed table.

Findings are stored with the content hash of a source; each request judges them against what it allows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any


class Severity(StrEnum):
    """How much a finding weighs: told, warned of, or refused unless the request allows it by name."""

    NOTE = "note"
    WARN = "warn"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something noticed in a source.

    Attributes:
        name: its class, a key of ``FINDINGS``.
        count: how often it occurs; what is counted (lines, bytes, members) is said by the class.
        first: byte offset of the first occurrence in the source.
        record: 0-based number of the line (jsonl) or member (tars) of the first occurrence, where it has one.
    """

    name: str
    count: int
    first: int
    record: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """The JSON form, without ``record`` where there is none."""
        data: dict[str, Any] = {"name": self.name, "count": self.count, "first": self.first}
        if self.record is not None:
            data["record"] = self.record
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Finding:
        """The finding whose ``as_dict`` is ``data``."""
        return cls(data["name"], data["count"], data["first"], data.get("record"))


@dataclass(frozen=True, slots=True)
class FindingClass:
    """A class of findings: its severity, what it does to training, and what to do about it."""

    severity: Severity
    effect: str
    remedy: str


_NOTE, _WARN, _REFUSE = Severity.NOTE, Severity.WARN, Severity.REFUSE

FINDINGS: Mapping[str, FindingClass] = MappingProxyType(
    {
        # Manifests; counted in lines unless said otherwise
        "blank_line": FindingClass(
            _WARN,
            "A blank line is no record: it is left out of the index and belongs to the record before it.",
            "Nothing has to be done; remove blank lines to have the same index as upstream.",
        ),
        "blank_record": FindingClass(
            _WARN,
            "A blank line is a record of the index, as upstream has it; training fails when it is drawn.",
            "Remove blank lines, or build without compat=upstream.",
        ),
        "bom": FindingClass(
            _REFUSE,
            "The file starts with a UTF-8 byte order mark; its first record does not decode.",
            "Save the manifest as UTF-8 without a byte order mark.",
        ),
        "crlf": FindingClass(
            _NOTE,
            "Lines end in CR LF; the CR belongs to the record and JSON readers skip it.",
            "Nothing has to be done.",
        ),
        "nul_byte": FindingClass(
            _REFUSE,
            "NUL bytes (counted in bytes) stand in the manifest, as a crash of its writer leaves them.",
            "Write the manifest again; rows from the first NUL byte on may be lost.",
        ),
        "not_utf8": FindingClass(
            _REFUSE,
            "Bytes (counted in bytes) are not UTF-8; records that hold them do not decode.",
            "Convert the manifest to UTF-8.",
        ),
        "not_an_object": FindingClass(
            _REFUSE,
            "A line is not one JSON object from { to }; training fails when it is drawn.",
            "Write one JSON object on each line; a JSON array is not a manifest.",
        ),
        "half_line": FindingClass(
            _REFUSE,
            "The last line is cut off: no newline and no closing brace.",
            "Write the manifest again, or remove the last line.",
        ),
        "no_final_newline": FindingClass(
            _NOTE,
            "The last line has no newline; it is complete and is a record.",
            "Nothing has to be done.",
        ),
        # Tars; counted in members unless said otherwise
        "merged_directories": FindingClass(
            _REFUSE,
            "Neighbours share a stem over different folders or with the same suffix; they are one record, "
            "and only the first of them is ever read.",
            "Give every member of the shard its own base name, or pack them in another order.",
        ),
        "stem_group": FindingClass(
            _WARN,
            "Neighbours of one folder differ only in their suffix; they are one record, "
            "and only the first of them is read.",
            "Nothing, if the others are companions; else put the audio first.",
        ),
        "sparse_member": FindingClass(
            _REFUSE,
            "A sparse member is stored as a map and fragments; readers return other bytes than the file had.",
            "Pack the shard without the sparse option of tar.",
        ),
        "contiguous_member": FindingClass(
            _REFUSE,
            "A member of type 7 is indexed, but readers skip it and return the next member.",
            "Pack the shard with ordinary members.",
        ),
        "pax_size": FindingClass(
            _REFUSE,
            "An extended header gives another size than the member's own header; readers use the latter.",
            "Pack the shard in GNU format, or with members below 8 GiB.",
        ),
        "link_size": FindingClass(
            _WARN,
            "A link, a special file or a member of unknown type has a size; readers disagree on its data.",
            "Pack the shard with ordinary members.",
        ),
        "not_regular": FindingClass(
            _REFUSE,
            "A folder, link or special file counts as half of a pair and shifts the pairs after it.",
            "Pack the shard without folders and links.",
        ),
        "mispaired": FindingClass(
            _REFUSE,
            "Counted in pairs: two members that form a pair have different names, or not exactly one of them "
            "is metadata (.json, .nometa).",
            "Pack each sample as two neighbours of one name, for example with tar --sort=name.",
        ),
        "metadata_first": FindingClass(
            _WARN,
            "Counted in pairs: metadata stands before its data. NeMo readers take either order, "
            "lhotse Shar readers only data first.",
            "For lhotse Shar, write the data before its metadata.",
        ),
        "long_name": FindingClass(
            _WARN,
            "A member has an extended header, as long names need; lhotse IndexedTarReader cannot read it, "
            "lazy Shar pointers can.",
            "Use names of at most 100 bytes.",
        ),
        "data_after_end": FindingClass(
            _REFUSE,
            "Data stands after the end marker, as in glued archives; nothing of it is indexed.",
            "Unpack and pack the shard again, or cut it off after the end marker.",
        ),
        "no_end_marker": FindingClass(
            _NOTE,
            "The archive ends after a complete member without an end marker.",
            "Nothing, if its writer had finished.",
        ),
        "empty_member": FindingClass(
            _WARN,
            "A member has no data; it is indexed and fails to decode as audio.",
            "Leave it out of the manifest, or pack the shard again.",
        ),
        "nul_in_name": FindingClass(
            _WARN,
            "The name of a member holds bytes after a NUL; the name ends there, but not for every reader.",
            "Pack the shard again with clean names.",
        ),
        "empty_archive": FindingClass(
            _WARN,
            "The archive has no members.",
            "Remove the shard from the blend, or pack it again.",
        ),
    }
)


def refusing(findings: Iterable[Finding], allow: Collection[str]) -> list[Finding]:
    """The findings that refuse their source: of severity ``REFUSE`` and not named in ``allow``."""
    return [
        finding
        for finding in findings
        if FINDINGS[finding.name].severity is Severity.REFUSE and finding.name not in allow
    ]


class Collector:
    """Gathers findings in one pass: a count and the first place of each class, nothing per occurrence."""

    def __init__(self) -> None:
        self._found: dict[str, Finding] = {}

    def add(self, name: str, first: int, record: int | None = None, count: int = 1) -> None:
        """Notes ``count`` occurrences, the first of them at byte ``first``."""
        known = self._found.get(name)
        if known is None:
            self._found[name] = Finding(name, count, first, record)
        elif first < known.first:
            self._found[name] = Finding(name, known.count + count, first, record)
        else:
            self._found[name] = Finding(name, known.count + count, known.first, known.record)

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def findings(self) -> tuple[Finding, ...]:
        """All findings, in the order of ``FINDINGS``."""
        return tuple(self._found[name] for name in FINDINGS if name in self._found)
