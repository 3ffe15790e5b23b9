"""The closed list of things that can go wrong, shared by the API, the CLI, the docs and stored results.

An error names the file, the place in it, the reason and the next step. Text of records never enters one.
"""

from __future__ import annotations

import errno
import os
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
    WDS_BAD_SAMPLE = "wds_bad_sample"
    ROUTE_BROKEN = "route_broken"
    SIDECAR_MISSING = "sidecar_missing"
    SIDECAR_DAMAGED = "sidecar_damaged"
    PACK_REFUSED = "pack_refused"
    PACK_DAMAGED = "pack_damaged"
    PACK_VERSION = "pack_version"
    # Object stores
    STORE_UNKNOWN = "store_unknown"
    STORE_DENIED = "store_denied"
    STORE_UNREACHABLE = "store_unreachable"
    STORE_BUSY = "store_busy"
    STORE_BROKEN = "store_broken"
    STORE_SETTINGS = "store_settings"
    STORE_SDK = "store_sdk"
    # Work
    OUT_OF_MEMORY = "out_of_memory"
    CHILD_DIED = "child_died"
    TIMEOUT = "timeout"
    NO_SPACE = "no_space"
    STALLED = "stalled"
    STORAGE_AWAY = "storage_away"
    NO_RESOURCES = "no_resources"
    EMPTY_BUILD = "empty_build"
    CANCELLED = "cancelled"
    INTERNAL = "internal"
    # What is asked for
    BAD_REQUEST = "bad_request"
    WRONG_STATE = "wrong_state"
    NOT_FOUND = "not_found"
    BUSY = "busy"
    LINT_REFUSED = "lint_refused"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    RATE_LIMITED = "rate_limited"
    QUOTA_FULL = "quota_full"
    QUOTA_EXCEEDED = "quota_exceeded"
    # What is kept
    MIRROR_DAMAGED = "mirror_damaged"
    OBJECT_DAMAGED = "object_damaged"
    ROOT_SETTINGS = "root_settings"
    CATALOG_MISMATCH = "catalog_mismatch"
    CATALOG_VERSION = "catalog_version"
    CATALOG_AWAY = "catalog_away"


MEANING: dict[Code, str] = {
    Code.BLEND_TOO_LARGE: "The posted YAML, or a nested one, has more bytes than are read.",
    Code.BLEND_SYNTAX: "The YAML cannot be parsed: syntax, tabs, encoding, several documents.",
    Code.BLEND_TAG: "The YAML holds a tag such as `!include`. Tags are refused: they run code in some loaders.",
    Code.BLEND_DUPLICATE_KEY: "A mapping names one key twice.",
    Code.BLEND_TOO_DEEP: "The YAML is nested deeper than any blend.",
    Code.BLEND_TOO_MANY_NODES: "The YAML, with its aliases and merges written out, is too large.",
    Code.BLEND_RECURSIVE: "An alias or an interpolation contains itself.",
    Code.BLEND_SHAPE: "The YAML is no mapping and no list, or an entry has a shape that training cannot read.",
    Code.BLEND_EMPTY: "No data is named anywhere.",
    Code.UNKNOWN_TYPE: "An entry has a type that training does not know, or that Blendex does not read yet.",
    Code.UNKNOWN_KEY: "An entry has a misspelt key.",
    Code.MISSING_KEY: "An entry lacks a key that its type needs.",
    Code.BAD_VALUE: "A value is of the wrong sort, such as a number where a path belongs.",
    Code.UNKNOWN_VARIABLE: "`${name}` is in none of the submission's variables, nor in the YAML.",
    Code.UNSUPPORTED_INTERPOLATION: "`${resolver:…}` other than `oc.env`.",
    Code.PATTERN_UNBALANCED: "A path pattern has a brace without its partner.",
    Code.PATTERN_TOO_MANY: "A path pattern stands for more paths than are expanded.",
    Code.NESTED_MISSING: "A blend, or one that it nests, is not there.",
    Code.NESTED_CYCLE: "A nested blend nests itself.",
    Code.FOLDER_MISSING: "A folder of sources is not there.",
    Code.FOLDER_EMPTY: "A folder holds nothing that could be indexed.",
    Code.RELATIVE_WITHOUT_BASE: "A relative path, and no base that says what it means.",
    Code.PATH_OUTSIDE_ROOTS: "A path outside the folders that may be read. Whether it exists is not told.",
    Code.PATH_UNSUPPORTED: "`pipe:`, or a scheme that cannot be read.",
    Code.PATH_COMPRESSED: "A compressed file: byte offsets into it are worth nothing.",
    Code.INDEX_PATH_COLLISION: "Two sources whose sidecars would be one file.",
    Code.INDEX_PATH_ESCAPE: "A path whose sidecar would lie outside the mirror, or nowhere.",
    Code.SOURCE_MISSING: "A source is not there.",
    Code.SOURCE_UNREADABLE: "A source cannot be read: permissions, or the file server.",
    Code.SOURCE_NOT_REGULAR: "A source is a folder, a pipe or a device.",
    Code.SOURCE_CHANGED: "A source changes while it is read.",
    Code.SOURCE_REFUSED: "A finding in a source makes records unreadable. See `findings.md`.",
    Code.TAR_EMPTY: "A tar of 0 bytes.",
    Code.TAR_BAD_HEADER: "A tar with a broken header, or no tar at all.",
    Code.TAR_TRUNCATED: "A tar that ends within a member.",
    Code.TAR_ODD_MEMBERS: "A Shar tar with a member that has no partner.",
    Code.WDS_BAD_SAMPLE: "The members of a WebDataset shard do not make samples of version 2.",
    Code.ROUTE_BROKEN: "A row of a ShareGPT collection leads to no audio, or to more than one.",
    Code.SIDECAR_MISSING: "A source has no sidecar where one is needed.",
    Code.SIDECAR_DAMAGED: "A sidecar holds no ascending offsets that end at the size of its source.",
    Code.PACK_REFUSED: "A dataset that cannot be packed, or a collection of one.",
    Code.PACK_DAMAGED: "A pack is not what the format says, or not what it is expected to be.",
    Code.PACK_VERSION: "A pack of a version that is not read, such as version 4 with its compressed manifests.",
    Code.STORE_UNKNOWN: "A URL in a store that no endpoint profile serves, or in a bucket that none may read.",
    Code.STORE_DENIED: "An object store refuses: credentials missing, expired, or without the right to read.",
    Code.STORE_UNREACHABLE: "An object store does not answer, after as many tries as its profile allows.",
    Code.STORE_BUSY: "An object store asks for patience, and for more of it than its profile allows.",
    Code.STORE_BROKEN: "An object store breaks off again and again, or answers other bytes than were asked for.",
    Code.STORE_SETTINGS: "An endpoint profile cannot work as it is: certificate, redirects, address.",
    Code.STORE_SDK: "The software that speaks to a store is missing, or of a version that is not known.",
    Code.OUT_OF_MEMORY: "Reading this source takes more memory than a child may have.",
    Code.CHILD_DIED: "The process that did it was killed or crashed.",
    Code.TIMEOUT: "It took longer than it may.",
    Code.NO_SPACE: "The disk is full. What was built so far is kept.",
    Code.STALLED: "Reading it stood still: no byte came for longer than a store may take.",
    Code.STORAGE_AWAY: "A store or file server does not answer. Tried again for minutes before it is told.",
    Code.NO_RESOURCES: "The machine has no descriptor, process or memory to give. Tried again by itself.",
    Code.EMPTY_BUILD: "Nothing is left to index.",
    Code.CANCELLED: "Somebody cancelled the build.",
    Code.INTERNAL: "Blendex failed in a way that it does not know. A bug: please tell.",
    Code.BAD_REQUEST: "A request, or an option of a command, that means nothing.",
    Code.WRONG_STATE: "It cannot be done in the state that this build is in.",
    Code.NOT_FOUND: "There is no such thing, or none that the caller may know of.",
    Code.BUSY: "Not now. Ask again after the time that the answer tells.",
    Code.LINT_REFUSED: "Something in the blend cannot be read by index, and no patch mends it. See `lint.md`.",
    Code.UNAUTHENTICATED: "Who asks is not known: no token, or one that is not good (any more).",
    Code.FORBIDDEN: "The scope of the token does not include this.",
    Code.RATE_LIMITED: "Too many requests from one caller. Ask again after the time that the answer tells.",
    Code.QUOTA_FULL: "A team has as much as it may at one time. Some of it ends by itself: ask again later.",
    Code.QUOTA_EXCEEDED: "A team would have more than it may. Somebody must let go of something, or raise the quota.",
    Code.MIRROR_DAMAGED: "A mirror is not what its receipt says.",
    Code.OBJECT_DAMAGED: "A bundle is not what its name says.",
    Code.ROOT_SETTINGS: "The root cannot be set up as the settings say.",
    Code.CATALOG_MISMATCH: "The database belongs to another root.",
    Code.CATALOG_VERSION: "The database was migrated by a newer Blendex.",
    Code.CATALOG_AWAY: "The database does not answer. What is published is still found; nothing can be submitted.",
}


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


# A store of sources is away; it may be for one source only, such as a file on a broken disk.
AWAY = frozenset({Code.STORAGE_AWAY, Code.STORE_UNREACHABLE, Code.STORE_BUSY})
# What passes by itself, and is nobody's fault: whatever met it is done again, and nothing is held against a source.
PASSING = AWAY | {Code.NO_SPACE, Code.NO_RESOURCES}
_FULL = (errno.ENOSPC, errno.EDQUOT)
_AWAY = (
    errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EREMOTEIO, errno.ENOTCONN, errno.ESHUTDOWN, errno.EHOSTDOWN,
    errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETUNREACH, errno.ECONNRESET, errno.ECONNREFUSED, errno.ECONNABORTED,
)  # fmt: skip
_SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)


def passing(error: OSError, file: str | None = None) -> BlendexError | None:
    """The name of what the system said, when it is something that passes by itself; None when it is not."""
    number = error.errno or 0
    told = f"{errno.errorcode.get(number, str(number))}: {os.strerror(number)}"
    file = file or (os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else None)
    if number in _FULL:
        return BlendexError(
            Code.NO_SPACE,
            f"the disk is full ({told}).",
            file=file,
            next_step="Free space or inodes under the root; what was built so far is kept, and work goes on by itself.",
        )
    if number in _AWAY:
        return BlendexError(
            Code.STORAGE_AWAY,
            f"the store or file server does not answer ({told}).",
            file=file,
            next_step="Look after the file server; then retry the build.",
        )
    if number in _SCARCE:
        return BlendexError(
            Code.NO_RESOURCES,
            f"the machine has nothing left to give ({told}).",
            file=file,
            next_step="Raise the limits of the worker (descriptors, processes, memory), or give it fewer slots.",
        )
    return None
