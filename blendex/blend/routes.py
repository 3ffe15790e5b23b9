"""Routing indexes of ShareGPT collections: from an entry to what its ``.sgroute`` is made of.

The rules are those of ``build_indexes.py`` and of the adapter that opens the route (NeMo Speech main); where the
two differ, in the spelling of prefixes, the adapter's, because it is the one that refuses.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from blendex.blend.entries import Entry
from blendex.blend.load import MapNode, SeqNode
from blendex.blend.model import Derivation, Source
from blendex.blend.types import SHAREGPT_ROUTE
from blendex.errors import BlendexError, Code

if TYPE_CHECKING:
    from blendex.blend.walk import Walk

SUFFIX = ".sgroute"
PLACEHOLDERS = ("<sound>", "<speech>")
_NAMES = ("tar_routing_filepath", "tar_routing_index")


def derivation(walk: Walk, entry: Entry, by_key: dict[str, list[Source]], specs: dict[str, list[str]]) -> Derivation:
    """What the route of ``entry`` is derived from.

    Args:
        walk: the walk that met the entry.
        entry: a ``share_gpt`` entry in collection mode.
        by_key: its sources, under the keys that name them.
        specs: for each of these, the text it was expanded from.

    Raises:
        BlendexError: MISSING_KEY, BAD_VALUE.
    """
    given = {name: _value(walk, entry, name) for name in _NAMES}
    named = {name: value for name, value in given.items() if value not in (None, "")}
    if not named:
        raise _missing("tar_routing_filepath")
    if len(set(map(str, named.values()))) > 1:
        raise BlendexError(
            Code.BAD_VALUE, "tar_routing_filepath and tar_routing_index differ.", next_step="Keep the first of them."
        )
    path = next(iter(named.values()))
    if not isinstance(path, str) or not path.endswith(SUFFIX) or "\0" in path:
        raise BlendexError(
            Code.BAD_VALUE,
            f"tar_routing_filepath does not end in {SUFFIX}.",
            next_step=f"Give it a name with {SUFFIX}; the ready blend points into the mirror, wherever it led.",
        )
    for name in ("manifest_filepath", "tarred_audio_filepaths"):
        if not by_key.get(name):
            raise _missing(name)
    manifests, tars = by_key["manifest_filepath"], by_key["tarred_audio_filepaths"]
    parameters = {
        "manifests": len(manifests),
        "specs": specs["manifest_filepath"],
        "prefix_map": _prefixes(walk, entry),
        "placeholders": _placeholders(walk, entry),
    }
    return Derivation(Source(SHAREGPT_ROUTE, path), (*manifests, *tars), parameters)


def _value(walk: Walk, entry: Entry, name: str) -> Any:
    assert entry.node is not None
    return walk.resolver.resolve(entry.node.get(name), entry.spot_of(name).place, name).value


def _missing(name: str) -> BlendexError:
    return BlendexError(Code.MISSING_KEY, f"tar_lookup_mode: collection needs {name}.", next_step=f"Set {name}.")


def _strings(walk: Walk, entry: Entry, name: str) -> list[tuple[str, str]]:
    """Keys and values of the list or mapping under ``name``, all text; nothing when it is not set."""
    assert entry.node is not None
    found = walk.resolver.resolve(entry.node.get(name), entry.spot_of(name).place, name)
    if found.value in (None, "", [], {}):
        return []
    if isinstance(found.value, str):
        return [("0", found.value)]
    if found.place is None or not isinstance(found.value, MapNode | SeqNode):
        raise _bad(name, "is neither text nor a list or mapping of it")
    items = found.value.items() if isinstance(found.value, MapNode) else enumerate(found.value)
    made = []
    for key, raw in items:
        value = walk.resolver.resolve(raw, found.place, key).value
        if not isinstance(value, str) or not value:
            raise _bad(name, "holds something other than text")
        made.append((str(key), value))
    return made


def _bad(name: str, what: str) -> BlendexError:
    return BlendexError(Code.BAD_VALUE, f"{name} {what}.", next_step="Correct it; training refuses it as well.")


def _placeholders(walk: Walk, entry: Entry) -> list[str]:
    return [value for _, value in _strings(walk, entry, "audio_placeholders")] or list(PLACEHOLDERS)


def _prefixes(walk: Walk, entry: Entry) -> dict[str, str]:
    """``audio_path_prefix_map`` as ``AudioPathPrefixMap`` normalises it; its digest is a part of the route."""
    name = "audio_path_prefix_map"
    made: dict[str, str] = {}
    for key, value in _strings(walk, entry, name):
        prefix = _absolute(key, name)
        if prefix in made:
            raise _bad(name, f"gives the prefix {prefix[:200]} twice")
        try:
            parts = urlsplit(value)
        except ValueError:
            raise _bad(name, "holds a URL that cannot be split") from None
        if not (parts.scheme and "://" in value):
            made[prefix] = _absolute(value, name)
            continue
        if not parts.netloc or parts.query or parts.fragment or {".", ".."} & set(parts.path.split("/")):
            raise _bad(name, f"leads to {value[:200]}, which is no plain URL of a bucket or folder")
        made[prefix] = urlunsplit((parts.scheme, parts.netloc, str(PurePosixPath(parts.path or "/")), "", ""))
    return dict(sorted(made.items()))


def _absolute(path: str, name: str) -> str:
    if not path.startswith("/") or path.startswith("//") or {".", ".."} & set(path.split("/")):
        raise _bad(name, f"holds {path[:200]}, which is no plain absolute path")
    return str(PurePosixPath(path))
