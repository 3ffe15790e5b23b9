"""The trip on a cluster: the same mirror as in one process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cluster.cluster import Cluster
from tests.support.corpus import corpus, wait_until_calm

Calm = Callable[[str, Path], dict[str, Any]]


def test_the_same_mirror_as_in_one_process(cluster: Cluster, calm: Calm, data: Path) -> None:
    blend = corpus(data, shards=200, rows=3)
    wait_until_calm()
    build = cluster.ended(cluster.post(blend, data)["id"])
    cluster.check(build, calm(blend, data), wasted=0)
