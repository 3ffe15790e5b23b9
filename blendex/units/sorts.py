"""Sorts of sources: what is alike in how much memory reading it takes."""

from __future__ import annotations


def sort_of(kind: str, address: str, size: int) -> str:
    """The sort of a source: its kind, its store, and its size by powers of four.

    A few hundred words at most, so that what is observed of each can be kept for ever.
    """
    scheme, sign, _ = address.partition("://")
    return f"{kind}:{scheme if sign else 'file'}:{size.bit_length() // 2}"
