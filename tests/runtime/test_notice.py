"""Notices: what is told last is what is read, whenever the writer stops."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator

import pytest

from blendex.runtime.notice import PLACE_BYTES, Notice


@pytest.fixture
def notice() -> Iterator[Notice]:
    descriptor = Notice.create()
    made = Notice(descriptor)
    os.close(descriptor)
    yield made
    made.close()


def test_the_last_one_is_read_by_whoever_shares_the_memory() -> None:
    descriptor = Notice.create()
    notice, other = Notice(descriptor), Notice(descriptor)
    os.close(descriptor)
    assert notice.read() is None
    for path in ("/a", "/b" * 2000, "/ä"):
        other.write({"in_hand": path})
        assert notice.read() == {"in_hand": path}
    notice.clear()
    assert other.read() is None
    other.close()
    notice.close()


def test_a_death_in_the_middle_of_a_write_leaves_what_was_told_before(notice: Notice) -> None:
    notice.write({"in_hand": "first"})
    notice.write({"in_hand": "second"})
    half = mmap.PAGESIZE + PLACE_BYTES * (notice._map[0] % 2)  # the place that the next write would take
    notice._map[half : half + 20] = b"\xff" * 20
    assert notice.read() == {"in_hand": "second"}


def test_no_more_than_fits(notice: Notice) -> None:
    with pytest.raises(ValueError, match="bytes"):
        notice.write({"in_hand": "x" * PLACE_BYTES})
