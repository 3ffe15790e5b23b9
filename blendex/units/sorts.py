"""Sorts of sources: what is alike in how much memory reading it takes."""

from __future__ import annotations

from typing import Any


def sort_of(kind: str, address: str, size: int) -> str:
    """The sort of a source: its kind, its store, and its size by powers of four.

    A few hundred words at most, so that what is observed of each can be kept for ever.
    """
    scheme, sign, _ = address.partition("://")
    return f"{kind}:{scheme if sign else 'file'}:{size.bit_length() // 2}"


def sort_of_derived(spec: dict[str, Any], records: int) -> str:
    """The sort of a source that is made from others: what it takes goes by their records, not by its own size."""
    return sort_of(spec["kind"], spec["address"], records)
