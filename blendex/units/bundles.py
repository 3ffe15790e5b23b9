"""The bundle of an attempt: a private file until it is whole, then an object, or nothing.

The bundle protocol: the child writes a private file that ends with its own directory, flushes it, and links it to
``objects/<sha256>.bundle`` (exists: same bytes by its name, compare the size and use it). Only then does the
catalog hear of it, by a conditional update that names the fence of the lease. A crash between the two loses no
work: an object that no row knows is adopted, not deleted. A crash before the link leaves a private file in
staging, which the sweeper takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from blendex.formats.bundle import BundleWriter
from blendex.storage.root import Root


@contextmanager
def private_bundle(root: Root, attempt: str) -> Iterator[BundleWriter]:
    """A bundle that nobody sees; nothing is left of it when what is done with it fails."""
    writer = BundleWriter(root.private(attempt, ".bundle"))
    try:
        yield writer
    except BaseException:
        writer.discard()
        raise


def publish(root: Root, writer: BundleWriter) -> tuple[str | None, int]:
    """Make an object of a bundle: its name, and its size in bytes; None, and 0, of one that holds nothing."""
    if not writer.entries:
        writer.discard()
        return None, 0
    sha256, size = writer.finish()
    return root.publish_object(writer.path, sha256, ".bundle", size), size
