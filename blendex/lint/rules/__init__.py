"""The rules, by what they look at. Importing this enters them all."""

from blendex.lint.rules import blends, chain, entries, indexes, mode, packs, runtime, storage, validation

__all__ = ["blends", "chain", "entries", "indexes", "mode", "packs", "runtime", "storage", "validation"]
