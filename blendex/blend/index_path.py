"""Where the sidecar of a source lies."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from urllib.parse import urlparse

from blendex.blend.world import unsupported
from blendex.errors import BlendexError, Code

_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.\-]*://")
_NOT_PLAIN = re.compile(r"//|/\.(?:/|\Z)")
_NAME_MAX = 255
_PATH_MAX = 4096


def index_path(path: str, root: str | None) -> str:
    """The sidecar of ``path`` as training computes it.

    The rule of ``index_file_path`` in lhotse 2.0.0a7, kept as it is with its edges: it is not injective,
    ``..`` can leave the root, and the roots ``/`` and ``""`` give relative results. ``mirror_relative``
    refuses those.

    Args:
        path: the source as the blend names it.
        root: the configured ``indexes_root``; None means next to the source.

    Raises:
        ValueError: ``path`` is spelled as a URL that cannot be split.
    """
    if root is None:
        parts = urlparse(path)
        if path.startswith("pipe:") or (parts.scheme and parts.netloc):
            return path + ".idx"
        return f"{PurePosixPath(path)}.idx"
    relative = _relative(path)
    trimmed = root.rstrip("/\\")
    if _SCHEME.match(trimmed):
        return f"{trimmed}/{relative}.idx"
    joined = f"{trimmed}/{relative}.idx"
    # pathlib leaves a path that is spelt plainly as it is, and takes 10 µs for it.
    plain = trimmed.startswith("/") and _NOT_PLAIN.search(joined) is None
    return joined if plain else str(PurePosixPath(trimmed) / f"{relative}.idx")


def _relative(path: str) -> str:
    relative = _SCHEME.sub("", path, count=1).lstrip("/\\")
    if relative[1:2] == ":":
        relative = relative[2:].lstrip("/\\")
    return relative


def mirror_relative(path: str) -> str:
    """Where the sidecar of ``path`` lies under ``idx/`` of a mirror.

    Any ``..`` is refused, also one that stays inside: readers open the unnormalised path, which goes through
    a folder that the mirror does not have.

    Raises:
        BlendexError: INDEX_PATH_ESCAPE, or PATH_UNSUPPORTED for a pipe.
    """
    if path.startswith("pipe:"):
        refusal = unsupported(path)
        assert refusal is not None
        raise refusal
    bare = _SCHEME.sub("", path, count=1).lstrip("/\\")
    if "\0" in path:
        raise _escape("a path", "holds a NUL character")
    if bare[1:2] == ":":
        raise _escape(path, f"would lose {bare[:2]} in its index path")
    components = bare.split("/")
    if components[-1] in ("", "."):
        raise _escape(path, "does not end in a file name")
    if ".." in components:
        raise _escape(path, "holds .., which leads out of the mirror or through a folder it does not have")
    # What is spelled plainly is what the path of it says; making one costs ten times as much.
    plain = "" not in components and "." not in components
    relative = f"{bare}.idx" if plain else str(PurePosixPath(f"{bare}.idx"))
    _check_lengths(path, relative)
    return relative


# What the files of a kind are called: endings in place of the .idx of the index rule; the first is the index itself.
# wds_v2_index_path and wds_v2_metadata_path (NeMo Speech main); a route is named by the blend.
_ENDINGS = {"wds_tar_v2": (".wds-v2.idx", ".wds-v2.idx.meta.json"), "sharegpt_route": ("",)}


def sidecar_files(kind: str, path: str) -> tuple[str, ...]:
    """The files under ``idx/`` of a mirror that the source ``path`` of ``kind`` has; the index first.

    Raises:
        BlendexError: as ``mirror_relative`` does.
    """
    relative = mirror_relative(path)
    endings = _ENDINGS.get(kind)
    if endings is None:
        return (relative,)
    bare = relative.removesuffix(".idx")
    files = tuple(bare + ending for ending in endings)
    for file in files:
        _check_lengths(path, file)
    return files


def index_of(kind: str, path: str, root: str | None) -> str:
    """The index of the source ``path`` of ``kind`` as training computes it.

    Raises:
        ValueError: as ``index_path`` does.
    """
    endings = _ENDINGS.get(kind)
    if endings is None:
        return index_path(path, root)
    if endings[0] == "":
        return path  # the entry itself names it
    return index_path(path, root).removesuffix(".idx") + endings[0]


def _check_lengths(path: str, relative: str) -> None:
    try:
        encoded = relative.encode("utf-8")
    except UnicodeEncodeError:
        raise _escape("a path", "is not valid Unicode") from None
    if len(encoded) <= _NAME_MAX:
        return
    if len(encoded) > _PATH_MAX:
        raise _escape(f"{path[:60]}…", f"is longer than {_PATH_MAX} bytes")
    if any(len(name) > _NAME_MAX for name in encoded.split(b"/")):
        raise _escape(f"{path[:60]}…", f"has a component longer than {_NAME_MAX} bytes with .idx")


def _escape(path: str, reason: str) -> BlendexError:
    return BlendexError(
        Code.INDEX_PATH_ESCAPE,
        f"{path} {reason}; no mirror can hold its index.",
        next_step="Write the path plainly (absolute, normalised, naming a file), or exclude the entry.",
    )
