"""In hand: what is told last is what is read, whenever the writer stops."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator

import pytest

from blendex.runtime.inhand import PLACE_BYTES, InHand


@pytest.fixture
def hand() -> Iterator[InHand]:
    descriptor = InHand.create()
    made = InHand(descriptor)
    os.close(descriptor)
    yield made
    made.close()


def test_the_last_one_is_read_by_whoever_shares_the_memory() -> None:
    descriptor = InHand.create()
    hand, other = InHand(descriptor), InHand(descriptor)
    os.close(descriptor)
    assert hand.read() is None
    for path in ("/a", "/b" * 2000, "/ä"):
        other.write({"in_hand": path})
        assert hand.read() == {"in_hand": path}
    hand.clear()
    assert other.read() is None
    other.close()
    hand.close()


def test_a_death_in_the_middle_of_a_write_leaves_what_was_told_before(hand: InHand) -> None:
    hand.write({"in_hand": "first"})
    hand.write({"in_hand": "second"})
    half = mmap.PAGESIZE + PLACE_BYTES * (hand._map[0] % 2)  # the place that the next write would take
    hand._map[half : half + 20] = b"\xff" * 20
    assert hand.read() == {"in_hand": "second"}


def test_no_more_than_fits(hand: InHand) -> None:
    with pytest.raises(ValueError, match="bytes"):
        hand.write({"in_hand": "x" * PLACE_BYTES})
