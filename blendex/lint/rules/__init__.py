"""The rules, by what they look at. Importing this enters them all."""

from blendex.lint.rules import (
    blends,
    chain,
    content,
    entries,
    indexes,
    mode,
    packs,
    pairs,
    paths,
    runtime,
    storage,
    validation,
)

__all__ = [
    "blends",
    "chain",
    "content",
    "entries",
    "indexes",
    "mode",
    "packs",
    "pairs",
    "paths",
    "runtime",
    "storage",
    "validation",
]
