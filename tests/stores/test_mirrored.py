"""Local copies of a bucket: what has none is asked of the store as without them, many at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from blendex.errors import BlendexError, Code
from blendex.storage.interface import Stat
from blendex.storage.profiles import Profile
from blendex.storage.stores import Stores
from tests.support.aisstate import Cluster

pytestmark = pytest.mark.usefixtures("fresh_memory")

KEYS = [f"m/{number:02}.jsonl" for number in range(40)]
ADDRESSES = [f"lab:s3://speech/{key}" for key in [*KEYS, "m/none.jsonl"]]


@pytest.fixture
def stores(cluster: Cluster, tmp_path: Path) -> Stores:
    """Forty objects, every third of which has a copy, longer than it, and one that is nowhere."""
    cluster.bucket("speech", "s3")
    for number, key in enumerate(KEYS):
        cluster.put("speech", key, b'{"a": 1}\n', "s3")
        if number % 3 == 0:
            path = tmp_path / "copies/speech" / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b'{"a": 1, "copied": true}\n')
    profile = cluster.profile(name="lab", mode="batch", local_mirrors=[str(tmp_path / "copies")])
    return Stores([], [Profile.from_dict(profile)])


def test_what_has_no_copy_is_listed_and_not_asked_for_one_by_one(stores: Stores, cluster: Cluster) -> None:
    *found, missing = stores.stat_many(ADDRESSES)
    sizes = []
    for stat, address in zip(found, ADDRESSES, strict=False):
        assert isinstance(stat, Stat)
        assert stat.address == address
        sizes.append(stat.size)
    assert sizes == [25 if number % 3 == 0 else 9 for number in range(40)]
    assert isinstance(missing, BlendexError)
    assert missing.code is Code.SOURCE_MISSING
    assert (cluster.count("list"), cluster.count("head")) == (1, 0)


def test_what_has_no_copy_comes_in_batches(stores: Stores, cluster: Cluster) -> None:
    *found, missing = stores.open_many((address, True) for address in ADDRESSES)
    for number, opened in enumerate(found):
        assert not isinstance(opened, BlendexError)
        with opened:
            assert opened.stat.address == ADDRESSES[number]
            assert (b"copied" in opened.pread(100, 0)) == (number % 3 == 0)
    assert isinstance(missing, BlendexError)
    assert cluster.count("moss") == 2  # one that tries, one with the rest
    assert cluster.count("get") <= 1
    stores.close()
