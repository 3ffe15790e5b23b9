"""The access check: is what was indexed served as training will ask for it?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from blendex.blend.world import World
from blendex.builds import access
from blendex.builds.resolve import Resolver
from blendex.builds.run import run_build
from blendex.builds.site import Site
from blendex.builds.submission import Submission
from service.text import export_lines
from tests.support import aistore as emulator
from tests.support.aisstate import Cluster
from tests.support.corpus import corpus
from tests.support.inline import InlineRunner

pytestmark = pytest.mark.usefixtures("fresh_memory")

OpenSite = Callable[..., Site]


@pytest.fixture
def dialect() -> str:
    return "sqlite"


def checked(open_site: OpenSite, data: Path, cluster: Cluster) -> tuple[Site, dict[str, Any], dict[str, Any]]:
    """A build of two datasets on AIStore; its site, it, and what the access check says of its datasets."""
    site = open_site(stores={"lab": cluster.profile(patience_seconds=1)})
    world = World(base=str(data), view=((str(data), "s3://speech"),))
    blend = corpus(data, shards=4, name="a") + corpus(data, shards=3, name="b")
    cluster.bucket("speech", "s3")
    for path in sorted(data.rglob("*")):
        if path.is_file():
            cluster.put("speech", str(path.relative_to(data)), path.read_bytes(), "s3")
    built = run_build(site, Submission(blend.encode(), f"{data}/b.yaml", world), runner=InlineRunner())
    assert built["state"] == "ready", built["problems"]
    return site, built, {item["dataset"]: item for item in built["access"]["datasets"]}


def lines(site: Site, built: dict[str, Any]) -> list[str]:
    return export_lines(site, Resolver(site).build(built["id"]))


def test_batches_serve_it(open_site: OpenSite, data: Path, cluster: Cluster) -> None:
    site, built, datasets = checked(open_site, data, cluster)
    assert [(item["verdict"], item["members"], item["batch"]) for item in datasets.values()] == [
        ("batch", 8, 8),
        ("batch", 6, 6),
    ]
    assert built["access"]["environment"] == {
        "AIS_ENDPOINT": cluster.url, "USE_AIS_GET_BATCH": "true", "USE_AIS_INDIVIDUAL_GETS": "false",
    }  # fmt: skip
    assert "export USE_AIS_GET_BATCH='true'" in lines(site, built)
    assert access.of_mirror(site, built["mirror"]) == built["access"]
    assert [item["access"] for item in built["datasets"]] == ["batch", "batch"]


def test_only_individual_gets_serve_it(open_site: OpenSite, data: Path, cluster: Cluster) -> None:
    cluster.faults.add("moss", "missing", 10_000)
    site, built, datasets = checked(open_site, data, cluster)
    assert {item["verdict"] for item in datasets.values()} == {"individual"}
    one = next(iter(datasets.values()))
    assert one["batch"] < one["individual"] == one["members"]
    assert "USE_AIS_INDIVIDUAL_GETS=true" in one["next_step"]
    assert "ais prefetch s3://speech --prefix" in one["next_step"]
    assert "export USE_AIS_INDIVIDUAL_GETS='true'" in lines(site, built)


def test_an_endpoint_without_batches(open_site: OpenSite, data: Path, cluster: Cluster) -> None:
    cluster.batch = False
    _, _, datasets = checked(open_site, data, cluster)
    assert {item["verdict"] for item in datasets.values()} == {"individual"}


def test_neither_serves_it(open_site: OpenSite, data: Path, cluster: Cluster) -> None:
    cluster.batch = False
    cluster.archives = False
    site, built, datasets = checked(open_site, data, cluster)
    assert {item["verdict"] for item in datasets.values()} == {"neither"}
    assert all("archpath" in item["detail"] and item["next_step"] for item in datasets.values())
    assert not any("USE_AIS" in line for line in lines(site, built))


def test_one_dataset_on_two_clusters(open_site: OpenSite, data: Path, cluster: Cluster) -> None:
    blend = corpus(data, shards=4)
    with emulator.serve() as second:
        stores = {"lab": cluster.profile(buckets=["speech"]), "far": second.profile(buckets=["more"])}
        for made, bucket in ((cluster, "speech"), (second, "more")):
            made.bucket(bucket)
            made.put_tree(bucket, data)
        tar = next(path for path in data.rglob("*.tar"))
        view = ((str(tar), f"ais://more/{tar.relative_to(data)}"), (str(data), "ais://speech"))
        world = World(base=str(data), view=view)
        site = open_site(stores=stores)
        built = run_build(site, Submission(blend.encode(), f"{data}/b.yaml", world), runner=InlineRunner())
    assert built["state"] == "ready", built["problems"]
    (dataset,) = built["access"]["datasets"]
    assert dataset["verdict"] == "neither"
    assert "2 clusters" in dataset["detail"]
    assert built["access"]["environment"] == {}


def test_files_need_no_check(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    built = run_build(
        site, Submission(corpus(data, shards=1).encode(), f"{data}/b.yaml", World()), runner=InlineRunner()
    )
    assert built["access"] == {"datasets": [], "environment": {}}
    assert access.of_mirror(site, built["mirror"]) is None
