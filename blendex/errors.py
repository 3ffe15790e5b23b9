"""The closed list of things that can go wrong, shared by the API, the CLI, the docs and stored results.

An error names the file, the place in it, the reason and the next step. Text of records never enters one.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any


class Code(StrEnum):
    """Stable error codes. Add at the end of a group; never rename: clients and stored builds know them."""

    # The posted YAML
    BLEND_TOO_LARGE = "blend_too_large"
    BLEND_SYNTAX = "blend_syntax"
    BLEND_TAG = "blend_tag"
    BLEND_DUPLICATE_KEY = "blend_duplicate_key"
    BLEND_TOO_DEEP = "blend_too_deep"
    BLEND_TOO_MANY_NODES = "blend_too_many_nodes"
    BLEND_RECURSIVE = "blend_recursive"
    BLEND_SHAPE = "blend_shape"
    BLEND_EMPTY = "blend_empty"
    # Its entries
    UNKNOWN_TYPE = "unknown_type"
    UNKNOWN_KEY = "unknown_key"
    MISSING_KEY = "missing_key"
    BAD_VALUE = "bad_value"
    UNKNOWN_VARIABLE = "unknown_variable"
    UNSUPPORTED_INTERPOLATION = "unsupported_interpolation"
    PATTERN_UNBALANCED = "pattern_unbalanced"
    PATTERN_TOO_MANY = "pattern_too_many"
    NESTED_MISSING = "nested_missing"
    NESTED_CYCLE = "nested_cycle"
    FOLDER_MISSING = "folder_missing"
    FOLDER_EMPTY = "folder_empty"
    # Paths
    RELATIVE_WITHOUT_BASE = "relative_without_base"
    PATH_OUTSIDE_ROOTS = "path_outside_roots"
    PATH_UNSUPPORTED = "path_unsupported"
    PATH_COMPRESSED = "path_compressed"
    INDEX_PATH_COLLISION = "index_path_collision"
    INDEX_PATH_ESCAPE = "index_path_escape"
    # Sources
    SOURCE_MISSING = "source_missing"
    SOURCE_UNREADABLE = "source_unreadable"
    SOURCE_NOT_REGULAR = "source_not_regular"
    SOURCE_CHANGED = "source_changed"
    SOURCE_REFUSED = "source_refused"
    TAR_EMPTY = "tar_empty"
    TAR_BAD_HEADER = "tar_bad_header"
    TAR_TRUNCATED = "tar_truncated"
    TAR_ODD_MEMBERS = "tar_odd_members"
    # Work
    OUT_OF_MEMORY = "out_of_memory"
    CHILD_DIED = "child_died"
    TIMEOUT = "timeout"
    NO_SPACE = "no_space"
    EMPTY_BUILD = "empty_build"
    CANCELLED = "cancelled"
    INTERNAL = "internal"
    # What is asked for
    BAD_REQUEST = "bad_request"
    WRONG_STATE = "wrong_state"
    NOT_FOUND = "not_found"
    BUSY = "busy"
    # What is kept
    MIRROR_DAMAGED = "mirror_damaged"
    OBJECT_DAMAGED = "object_damaged"
    CATALOG_MISMATCH = "catalog_mismatch"
    CATALOG_VERSION = "catalog_version"


class BlendexError(Exception):
    """A failure a person can act on.

    Args:
        code: what went wrong, from the closed list.
        message: one sentence, no text of records.
        file: the file it happened in, as its user wrote it.
        line: 1-based line in ``file``, where it has lines.
        byte: 0-based byte offset in ``file``, where it has none.
        next_step: what the reader can do now, one sentence.
    """

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        file: str | None = None,
        line: int | None = None,
        byte: int | None = None,
        next_step: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.file = file
        self.line = line
        self.byte = byte
        self.next_step = next_step

    def as_dict(self) -> dict[str, Any]:
        """The JSON form: the keys that have a value."""
        fields = {
            "code": str(self.code),
            "message": self.message,
            "file": self.file,
            "line": self.line,
            "byte": self.byte,
            "next_step": self.next_step or None,
        }
        return {key: value for key, value in fields.items() if value is not None}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> BlendexError:
        """The error whose ``as_dict`` is ``data``."""
        return cls(
            Code(data["code"]),
            data["message"],
            file=data.get("file"),
            line=data.get("line"),
            byte=data.get("byte"),
            next_step=data.get("next_step", ""),
        )

    def __str__(self) -> str:
        place = self.file or ""
        if self.line is not None:
            place += f":{self.line}"
        elif self.byte is not None:
            place += f" at byte {self.byte}"
        text = f"{place}: {self.message}" if place else self.message
        return f"{text} {self.next_step}".rstrip()
