"""Builds of many objects while faults come at random: the mirror is the one of a quiet day, or nothing is published."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from blendex.blend.world import World
from blendex.builds.run import run_build
from blendex.builds.site import Site
from blendex.builds.submission import Submission
from tests.support.aisstate import Cluster
from tests.support.corpus import corpus, sidecars, submission
from tests.support.inline import InlineRunner

pytestmark = pytest.mark.usefixtures("fresh_memory")

OpenSite = Callable[..., Site]
SHARDS = 250  # pairs of manifest and tar
FEW = 60  # of the storm that every run has
MENDED = {
    "get": ("drop", "short", "reset", "500", "503", "429", "wrong-bytes", "wrong-checksum", "other-version"),
    "range": ("drop", "short", "reset", "500", "503", "ignore-range", "other-version"),
    "head": ("drop", "500", "503", "429"),
    "list": ("drop", "500", "503", "429"),
    "batch": ("404", "501", "500", "503", "429", "html", "drop"),
    "moss": ("404", "500", "503", "drop", "missing", "empty", "fewer", "fewer-no-trailer", "cut-clean", "cut-reset",
             "swap", "wrong-name", "wrong-bytes", "nothing", "not-a-tar"),
}  # fmt: skip


@pytest.fixture
def dialect() -> str:
    return "sqlite"


def storm(open_site: OpenSite, data: Path, tmp_path: Path, cluster: Cluster, mode: str, seed: int, shards: int) -> None:
    chance = random.Random(seed)
    blend = corpus(data, shards=shards, rows=12)
    quiet = run_build(open_site(), submission(blend, data), runner=InlineRunner())
    cluster.bucket("speech")
    cluster.put_tree("speech", data)
    size = sum(len(item.data) for item in cluster.buckets["ais", "speech"].values())
    keys = sorted(cluster.buckets["ais", "speech"])
    for operation, kinds in MENDED.items():
        for kind in kinds:
            for _ in range(2):
                key = chance.choice(keys) if operation in ("get", "range", "head") else None
                cluster.faults.add(operation, kind, key=key)
    world = World(base=str(data), view=((str(data), "ais://speech"),))
    profile = cluster.profile(mode=mode, patience_seconds=20, read_seconds=2)
    site = open_site(tmp_path / "remote", stores={"lab": profile}, unit_sources=64)
    built = run_build(site, Submission(blend.encode(), f"{data}/blend.yaml", world), runner=InlineRunner())
    assert built["state"] == "ready", built["problems"]
    assert built["mirror"] == quiet["mirror"]
    assert sidecars(str(built["path"])) == sidecars(str(quiet["path"]))
    assert len(cluster.faults.met) >= len(MENDED)
    assert cluster.sent <= 2 * size


def test_a_storm(open_site: OpenSite, data: Path, tmp_path: Path, cluster: Cluster) -> None:
    seed = random.randrange(10_000)
    print(f"seed {seed}")
    storm(open_site, data, tmp_path, cluster, "batch", seed, FEW)


@pytest.mark.long
@pytest.mark.parametrize("mode", ["individual", "batch"])
@pytest.mark.parametrize("seed", range(10))
def test_many_storms(open_site: OpenSite, data: Path, tmp_path: Path, cluster: Cluster, mode: str, seed: int) -> None:
    storm(open_site, data, tmp_path, cluster, mode, seed, SHARDS)
