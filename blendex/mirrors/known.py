"""Mirrors that stand under the root, and the catalog does not know of."""

from __future__ import annotations

from blendex.catalog import mirrors
from blendex.catalog.engine import UnitOfWork
from blendex.errors import BlendexError
from blendex.storage.root import Root
from blendex.units.receipt import read_receipt


def adopt_mirror(work: UnitOfWork, root: Root, key: str) -> bool:
    """Tell the catalog of a mirror, by its receipt; False when it is damaged."""
    try:
        receipt = read_receipt(root.mirror(key), key)
    except BlendexError:
        return False
    with work.write() as session:
        mirrors.add(
            session,
            key=key,
            source_set=receipt["source_set"],
            content=receipt["content"],
            counts=receipt["counts"],
            published=receipt["published_ns"] / 1e9,
        )
    return True


def adopt_strays(work: UnitOfWork, root: Root) -> int:
    """Tell the catalog of mirrors that were published and never told: their builds were cancelled in between; how many.

    One that is just being published is used from now on, as it would be anyway.
    """
    with work.read() as session:
        standing = set(mirrors.standing(session))
    return sum(adopt_mirror(work, root, key) for key in root.mirrors() if key not in standing)
