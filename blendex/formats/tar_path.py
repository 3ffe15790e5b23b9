"""A tar of which only the size is taken: what a pack holds of it is its path, and that.

Training fetches its members by name (``USE_AIS_GET_BATCH=true``), so nothing of it is read here.
"""

from __future__ import annotations

import struct

from blake3 import blake3

from blendex.formats.source import Readable
from blendex.formats.summary import Sink, Summary


def build_tar_path(source: Readable, sink: Sink, upstream: bool) -> Summary:
    """What is stored is the size alone, as a segment without offsets holds it."""
    size = struct.pack("<Q", source.size)
    sink(size)
    return Summary(0, source.size, blake3(b"size" + size).hexdigest(), ())
