"""The trip of a blend whose sources are objects."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from blendex.blend.world import World
from blendex.builds.run import run_build
from blendex.builds.site import Site
from blendex.builds.submission import Submission
from blendex.units.receipt import read_sources
from tests.support.aisstate import Cluster
from tests.support.corpus import corpus, sidecars, submission
from tests.support.inline import InlineRunner
from tests.support.s3 import S3

OpenSite = Callable[..., Site]


def ready(site: Site, what: Submission) -> dict[str, object]:
    result = run_build(site, what, runner=InlineRunner())
    assert result["state"] == "ready", result["problems"]
    return result


@pytest.fixture
def dialect() -> str:
    """What stores do is the same under every catalog; the trip itself is tested under both."""
    return "sqlite"


@pytest.mark.parametrize("scheme", ["ais", "s3"])
@pytest.mark.parametrize("mode", ["individual", "batch", "auto"])
def test_the_same_corpus_on_disk_and_aistore_under_the_same_paths_is_one_mirror(
    open_site: OpenSite, data: Path, tmp_path: Path, cluster: Cluster, mode: str, scheme: str
) -> None:
    blend = corpus(data, shards=25, rows=7)
    local = ready(open_site(), submission(blend, data))
    cluster.bucket("speech", scheme)
    cluster.put_tree("speech", data, "deep/corpus/", scheme)
    cluster.token = "canary-token"
    world = World(base=str(data), view=((str(data), f"{scheme}://speech/deep/corpus"),))
    site = open_site(tmp_path / "remote", stores={"lab": cluster.profile(mode=mode)})
    there = ready(site, Submission(blend.encode(), f"{data}/blend.yaml", world))
    assert there["mirror"] == local["mirror"]
    assert sidecars(str(there["path"])) == sidecars(str(local["path"]))
    # One is the access check's, which asks as training would.
    assert (cluster.count("moss") > 1) == (mode == "batch") or mode == "auto"
    assert cluster.count("list") <= 8
    again = ready(site, Submission(blend.encode(), f"{data}/blend.yaml", world))
    assert (there["opened"], again["opened"]) == (50, 0)


def test_the_same_corpus_on_disk_and_s3_under_the_same_paths_is_one_mirror(
    open_site: OpenSite, data: Path, tmp_path: Path, s3: S3, bucket: str
) -> None:
    blend = corpus(data, shards=12, rows=7)
    local = ready(open_site(), submission(blend, data))
    s3.put_tree(bucket, data, "deep/corpus/")
    world = World(base=str(data), view=((str(data), f"s3://{bucket}/deep/corpus"),))
    site = open_site(tmp_path / "remote", stores={"lab": s3.profile()})
    there = ready(site, Submission(blend.encode(), f"{data}/blend.yaml", world))
    assert there["mirror"] == local["mirror"]
    assert sidecars(str(there["path"])) == sidecars(str(local["path"]))
    assert {line["address"].split("/")[0] for line in read_sources(str(there["path"]))} == {"lab:s3:"}
    again = ready(site, Submission(blend.encode(), f"{data}/blend.yaml", world))
    assert (there["opened"], again["opened"]) == (24, 0)
