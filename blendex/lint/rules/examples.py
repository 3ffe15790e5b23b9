"""Configs around a few entries, for the examples of rules."""

from __future__ import annotations


def listing(text: str) -> str:
    """A training config around some entries."""
    return "data:\n  train_ds:\n    input_cfg:\n" + "".join(f"      {line}\n" for line in text.splitlines())


def one_entry(rest: str) -> str:
    """A training config around one entry."""
    return listing(f"- {rest}")


GOOD = one_entry("{type: nemo, manifest_filepath: /d/a.json}")
