"""Catalogs of WebDataset shards: the files that say which tars a folder consists of, and in which order.

The rules are those of ``discover_webdataset_shards`` (``wds_catalog.py`` of NeMo Speech main).
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any

import orjson

from blendex.blend.load import Limits, parse
from blendex.blend.urls import join
from blendex.blend.world import has_scheme
from blendex.errors import BlendexError, Code

MAX_BYTES = 64 << 20
MAX_SHARDS = 1_000_000
_MAX_COMPARISONS = 20_000_000  # of shards with excluding patterns, about 10 s
GENERATED_SUFFIX = ".wds-catalog.json"
NAMES = ("wids-meta.json", ".nv-meta/split.yaml", "wds-catalog.json")
"""Where a folder has its catalog; the first that exists counts."""


def bad_catalog(path: str, what: str) -> BlendexError:
    """What is wrong with a catalog; never its text."""
    return BlendexError(
        Code.BAD_VALUE, f"The shard catalog {path} {what}.", next_step="Write the catalog again, or correct it."
    )


def shards(raw: bytes, path: str, base: str, limits: Limits, expand: Callable[[str, int], list[str]]) -> list[str]:
    """The tars that a catalog lists, in its order.

    Args:
        raw: its bytes.
        path: its path, whose name says which of the three forms it has.
        base: the folder that relative entries mean.
        limits: what it may ask for.
        expand: expands one pattern to at most so many paths.

    Raises:
        BlendexError: BAD_VALUE, PATTERN_UNBALANCED, PATTERN_TOO_MANY, what ``parse`` raises.
    """
    name = PurePosixPath(path).name
    if name == "split.yaml":
        specs, excluded = _split(parse(raw, path, limits), path)
    else:
        tree = _json(raw, path, limits)
        if name == "wids-meta.json":
            specs, excluded = _urls(tree.get("shardlist"), path, "shardlist"), []
        else:
            if tree.get("format") != "nemo-wds-shard-catalog" or tree.get("version") != 1:
                raise bad_catalog(path, "is no nemo-wds-shard-catalog of version 1")
            specs, excluded = _urls(tree.get("shards"), path, "shards"), []
    left = MAX_SHARDS
    comparisons = 0
    patterns: list[str] = []
    for spec in excluded:
        patterns += expand(spec, MAX_SHARDS - len(patterns))
    plain = {pattern for pattern in patterns if not any(mark in pattern for mark in "*?[")}
    wild = [pattern for pattern in patterns if pattern not in plain]
    found: dict[str, None] = {}
    for spec in specs:
        paths = expand(spec, left)
        left -= len(paths)
        comparisons += len(paths) * len(wild)
        if comparisons > _MAX_COMPARISONS:
            raise bad_catalog(path, "excludes by too many patterns")
        for item in paths:
            if item in plain or any(fnmatchcase(item, pattern) for pattern in wild):
                continue
            resolved = _resolved(base, item, path)
            if resolved in found:
                raise bad_catalog(path, f"names {resolved[:200]} twice")
            found[resolved] = None
    if not found:
        raise bad_catalog(path, "names no tar")
    return list(found)


def _json(raw: bytes, path: str, limits: Limits) -> dict[str, Any]:
    # Each node needs one of these marks, and about 64 bytes of memory: count before making any.
    if sum(raw.count(mark) for mark in (b",", b"[", b"{")) > limits.nodes:
        raise bad_catalog(path, f"has more than {limits.nodes:,} values")
    try:
        tree = orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise bad_catalog(path, "is not JSON") from None
    if not isinstance(tree, dict):
        raise bad_catalog(path, "is not a JSON object")
    return tree


def _urls(items: Any, path: str, what: str) -> list[str]:
    if not isinstance(items, list) or not items:
        raise bad_catalog(path, f"has no list {what}")
    urls = [item.get("url") if isinstance(item, dict) else None for item in items]
    for position, url in enumerate(urls):
        if not isinstance(url, str) or not url:
            raise bad_catalog(path, f"has no url at position {position} of {what}")
    return [url for url in urls if url]


def _split(tree: Any, path: str) -> tuple[list[str], list[str]]:
    parts = tree.get("split_parts") if isinstance(tree, dict) else None
    train = parts.get("train") if isinstance(parts, dict) else None
    if not isinstance(train, list) or not train:
        raise bad_catalog(path, "has no list split_parts.train")
    excluded = tree.get("exclude")
    for items in (train, [] if excluded is None else excluded):
        if not isinstance(items, list) or not all(isinstance(item, str) and item for item in items):
            raise bad_catalog(path, "holds something other than paths in split_parts.train or exclude")
    return list(train), list(excluded or ())


def _resolved(base: str, item: str, path: str) -> str:
    if "\0" in item:
        raise bad_catalog(path, "holds a NUL character in a path")
    if has_scheme(item):
        return item
    if item.startswith("/"):
        return str(PurePosixPath(item))
    if ".." in PurePosixPath(item).parts:
        raise bad_catalog(path, f"leads out of its folder with {item[:200]}")
    return join(base, item)
