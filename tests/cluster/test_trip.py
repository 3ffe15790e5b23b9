"""The trip on a cluster: the same mirror as in one process, from any api process, told within a second."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.cluster import Cluster, wait_for
from tests.support.corpus import corpus, wait_until_calm

pytestmark = pytest.mark.slow

Calm = Callable[[str, Path], dict[str, Any]]


def test_the_same_mirror_as_in_one_process(cluster: Cluster, calm: Calm, data: Path) -> None:
    blend = corpus(data, shards=200, rows=3)
    wait_until_calm()
    before = cluster.metric("blendex_wakes_received_total")
    build = cluster.ended(cluster.post(blend, data)["id"])
    cluster.check(build, calm(blend, data), wasted=0)
    assert cluster.metric("blendex_wakes_received_total") > before  # not by polling alone
    again = cluster.ended(cluster.post(blend, data, api=1)["id"])
    assert (again["path"], again["opened"], again["reused"]) == (build["path"], 0, 400)


def test_every_api_process_says_the_same_within_a_second(cluster: Cluster, data: Path) -> None:
    """Events and text answers of both, while a build posted to one of them runs."""
    blend = corpus(data, shards=150, rows=3, name="b")
    build = cluster.post(blend, data, name="coherent")["id"]
    seen: list[dict[str, float]] = [{}, {}]

    def follow(number: int) -> None:
        with cluster.apis[number].http.stream("GET", f"/v1/builds/{build}/events") as stream:
            for line in stream.iter_lines():
                if line.startswith("data:"):
                    state = json.loads(line[5:])["state"]
                    seen[number].setdefault(state, time.monotonic())

    threads = [threading.Thread(target=follow, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    paths = [
        cluster.apis[number].http.get("/v1/names/coherent/path", params={"wait": 30}) if number else
        cluster.apis[number].http.get(f"/v1/builds/{build}/path", params={"wait": 30})
        for number in (0, 1)
    ]  # fmt: skip
    for thread in threads:
        thread.join(60)
    assert [answer.status_code for answer in paths] == [200, 200]
    assert paths[0].text == paths[1].text
    assert seen[0].keys() & seen[1].keys() >= {"ready"}
    for state in seen[0].keys() & seen[1].keys():
        assert abs(seen[0][state] - seen[1][state]) < 1, state


def test_fifty_identical_posts_to_both_are_one_build(cluster: Cluster, data: Path) -> None:
    blend = corpus(data, shards=60, rows=3, name="c")
    wait_until_calm()
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda number: cluster.post(blend, data, api=number % 2), range(50)))
    builds = {answer["id"] for answer in answers}
    ended = [cluster.ended(build) for build in builds]
    # Those posted while the first one ran are the first one; a later one finds everything done.
    assert sum(build["opened"] for build in ended) == 120
    assert len({build["path"] for build in ended}) == 1


def test_thirty_near_identical_blends_read_each_source_once(cluster: Cluster, data: Path) -> None:
    common = corpus(data, shards=38, rows=2, name="d")
    blends = [common + corpus(data, shards=2, rows=2, name=f"d{number}") for number in range(30)]
    wait_until_calm()  # what was written a moment ago is read again, by right
    with ThreadPoolExecutor(6) as pool:
        ids = [
            answer["id"]
            for answer in pool.map(lambda item: cluster.post(item[1], data, api=item[0] % 2), enumerate(blends))
        ]
    ended = [cluster.ended(build, 180) for build in ids]
    assert {build["state"] for build in ended} == {"ready"}
    assert sum(build["opened"] for build in ended) == 76 + 30 * 4
    assert len({build["mirror"] for build in ended}) == 30
    cluster.at_rest()


def test_workers_are_listed(cluster: Cluster) -> None:
    found = cluster.apis[0].http.get("/v1/workers").json()["workers"]
    assert len(found) == 3
    assert {worker["state"] for worker in found} == {"working"}
    assert {worker["pid"] for worker in found} == {worker.pid for worker in cluster.workers}


def test_a_worker_takes_only_its_classes(cluster: Cluster, data: Path) -> None:
    worker = cluster.add_worker("--classes", "publish", "--slots", "1", "--budget", "300")
    try:
        build = cluster.ended(cluster.post(corpus(data, shards=100, rows=2, name="e"), data)["id"])
        assert build["state"] == "ready"
        mine = [item for item in cluster.apis[0].http.get("/v1/workers").json()["workers"] if item["pid"] == worker.pid]
        assert mine[0]["classes"] == ["publish"]
        assert mine[0]["budget_bytes"] == 300 * 2**20
        assert worker.metric("blendex_claims_total", work="index") == 0
        assert worker.metric("blendex_claims_total", work="plan") == 0
    finally:
        cluster.remove(worker)
    wait_for(lambda: len(cluster.apis[0].http.get("/v1/workers").json()["workers"]) == 3, 10)
