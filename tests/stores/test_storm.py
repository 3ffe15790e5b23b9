"""Builds of many objects while faults come at random: the mirror is the one of a quiet day, or nothing is published.

The points are random, by a seed that is printed; which faults come is not: each one that is injected is met. Faults
that no reading can mend end in errors that name their objects, and cost nothing once they are gone.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from blendex.blend.world import World
from blendex.builds.run import run_build
from blendex.builds.site import Site
from blendex.builds.submission import Submission
from blendex.errors import Code
from blendex.storage import patience
from blendex.storage.reader import OpenedObject
from tests.support import faultproxy
from tests.support.aisstate import Cluster
from tests.support.corpus import corpus, sidecars, submission
from tests.support.faults import Faults
from tests.support.inline import InlineRunner
from tests.support.s3 import S3

pytestmark = pytest.mark.usefixtures("fresh_memory", "hasty")

OpenSite = Callable[..., Site]
SHARDS = 250  # pairs of manifest and tar
FEWER = 100  # of storms over S3, whose server of the tests is slow
FEW = 40  # of the storm that every run has
PAUSE = 4.5  # longer than reads may wait, which is longer than the servers take on a busy machine
PROFILE = {"patience_seconds": 60, "read_seconds": 3}

# By single requests: what reading mends, and what it cannot.
GETS = ("drop", "short", "reset", "slow", "hang", "500", "502", "503", "429", "409", "410", "wrong-bytes",
        "wrong-checksum", "other-version", "dead")  # fmt: skip
RANGES = ("drop", "short", "reset", "slow", "500", "503", "429", "409", "410", "416", "ignore-range", "other-version")
HEADS = ("drop", "500", "503", "429")
MENDED = {"get": GETS, "range": RANGES, "head": HEADS, "list": HEADS}
MENDED_S3 = {
    "get": ("drop", "short", "reset", "slow", "hang", "500", "503", "429", "412"),
    "range": ("drop", "short", "reset", "slow", "500", "503", "ignore-range", "412", "other-version"),
    "head": ("drop", "503"), "list": ("drop", "503"),
}  # fmt: skip
FATAL = {
    "get": {"401": Code.STORE_DENIED, "403": Code.STORE_DENIED, "404": Code.SOURCE_MISSING, "507": Code.STORE_BROKEN,
            "html": Code.STORE_BROKEN, "loop": Code.STORE_SETTINGS},
    "range": {"401": Code.STORE_DENIED, "404": Code.SOURCE_MISSING, "html": Code.STORE_BROKEN,
              "wrong-range": Code.STORE_BROKEN},
    "head": {"401": Code.STORE_DENIED, "html": Code.STORE_BROKEN},
}  # fmt: skip
# By batches, in the step of the proxy and in that of the target. After a last one none is asked for any more.
PROXY, LAST = ("500", "503", "429", "html", "drop"), ("404", "501", "400", "401")
TARGET = ("500", "503", "409", "html", "drop", "hang", "missing", "empty", "fewer", "fewer-no-trailer",
          "cut-clean", "cut-reset", "wrong-bytes", "slow", "nothing")  # fmt: skip
TARGET_LAST = (("404", 0), ("swap", 1), ("wrong-name", 2), ("not-a-tar", 0))


@pytest.fixture
def dialect() -> str:
    return "sqlite"


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits between tries are short: what they are worth is measured elsewhere."""
    monkeypatch.setattr(patience, "FIRST_WAIT", 0.01)
    monkeypatch.setattr(patience, "LONGEST_WAIT", 0.2)


@pytest.fixture
def hops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tars are read by ranges, which what is measured here would make one stream of."""
    monkeypatch.setattr(OpenedObject, "forced", "hop")


@dataclass
class Weather:
    """A corpus, what a quiet day makes of it, and a store that holds it.

    Args:
        keys: of the objects.
        quiet: the build from disk.
        build: builds the same from the store.
    """

    keys: list[str]
    size: int
    quiet: dict[str, Any]
    build: Callable[[], dict[str, Any]]

    def is_quiet(self) -> None:
        """Build, and find the mirror of the quiet day."""
        built = self.build()
        assert built["state"] == "ready", built["problems"]
        assert built["mirror"] == self.quiet["mirror"]
        assert sidecars(str(built["path"])) == sidecars(str(self.quiet["path"]))

    def is_cheap(self, sent: int, faults: Faults) -> None:
        """No more than twice the bytes of the corpus came, in all; pytest's ``-rP`` shows how much, and of what."""
        met = Counter(f"{operation} {kind}" for operation, kind in faults.met)
        print(f"{len(self.keys)} objects, {sent / self.size:.2f} times their bytes; met: {dict(met)}")
        assert sent <= 2 * self.size


def weather(
    open_site: OpenSite, data: Path, root: Path, profile: dict[str, Any], url: str, shards: int, unit: int = 64
) -> Weather:
    blend = corpus(data, shards=shards, rows=12, size=16_000)  # more than the first range of a tar
    quiet = run_build(open_site(), submission(blend, data), runner=InlineRunner())
    files = {str(path.relative_to(data)): path.stat().st_size for path in data.rglob("*") if path.is_file()}
    asked = Submission(blend.encode(), f"{data}/blend.yaml", World(base=str(data), view=((str(data), url),)))
    site = open_site(root, stores={"lab": profile | PROFILE}, unit_sources=unit)
    return Weather(sorted(files), sum(files.values()), quiet, lambda: run_build(site, asked, runner=InlineRunner()))


def strew(chance: random.Random, faults: Faults, keys: list[str], kinds: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Each fault at an object of its own, drawn by lot; which it is."""
    manifests = [key for key in keys if key.endswith("json")]
    tars = [key for key in keys if key.endswith("tar")]
    chance.shuffle(manifests)
    chance.shuffle(tars)
    chosen: dict[str, tuple[str, str]] = {}
    for operation, names in kinds.items():
        for kind in names:
            if operation == "list":
                faults.add(operation, kind)
                continue
            key = (manifests if operation == "get" else tars).pop()
            faults.add(operation, kind, key=key, argument=PAUSE if kind in ("slow", "hang") else 0.0)
            chosen[key] = (operation, kind)
    return chosen


def singles(around: Weather, chance: random.Random, faults: Faults, kinds: dict[str, tuple[str, ...]]) -> None:
    strew(chance, faults, around.keys, kinds)
    around.is_quiet()
    assert set(faults.met) == {(operation, kind) for operation, names in kinds.items() for kind in names}


def seeded(seed: int) -> random.Random:
    print(f"seed {seed}")
    return random.Random(seed)


def of_cluster(
    open_site: OpenSite, data: Path, tmp_path: Path, cluster: Cluster, mode: str, shards: int = SHARDS, unit: int = 64
) -> Weather:
    around = weather(open_site, data, tmp_path / "remote", cluster.profile(mode=mode), "ais://speech", shards, unit)
    cluster.bucket("speech")
    cluster.put_tree("speech", data)
    return around


@pytest.mark.slow
@pytest.mark.usefixtures("hops")
def test_a_storm(open_site: OpenSite, data: Path, tmp_path: Path, cluster: Cluster) -> None:
    around = of_cluster(open_site, data, tmp_path, cluster, "individual", FEW)
    quick = {key: [kind for kind in kinds if kind not in ("slow", "hang")] for key, kinds in MENDED.items()}
    singles(around, seeded(random.randrange(10_000)), cluster.faults, quick)  # type: ignore[arg-type]
    around.is_cheap(cluster.sent, cluster.faults)


@pytest.mark.usefixtures("hops")
@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_storms_over_single_reads(
    open_site: OpenSite, data: Path, tmp_path: Path, cluster: Cluster, seed: int
) -> None:
    around = of_cluster(open_site, data, tmp_path, cluster, "individual")
    singles(around, seeded(seed), cluster.faults, MENDED)
    around.is_cheap(cluster.sent, cluster.faults)


@pytest.mark.usefixtures("hops")
@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_storms_over_s3(
    open_site: OpenSite, data: Path, tmp_path: Path, s3: S3, bucket: str, seed: int
) -> None:
    with faultproxy.serve(s3.url) as proxy:
        profile = s3.profile(endpoint=proxy.url)
        around = weather(open_site, data, tmp_path / "remote", profile, f"s3://{bucket}", FEWER)
        s3.put_tree(bucket, data)
        singles(around, seeded(seed), proxy.faults, MENDED_S3)
        around.is_cheap(proxy.sent, proxy.faults)


@pytest.mark.long
@pytest.mark.parametrize(
    ("operation", "kinds", "last"),
    [("batch", PROXY, last) for last in LAST] + [("moss", TARGET[part::3], last) for last, part in TARGET_LAST],
)
def test_storms_over_batches(
    open_site: OpenSite, data: Path, tmp_path: Path, cluster: Cluster, operation: str, kinds: tuple[str, ...], last: str
) -> None:
    chance = seeded(random.randrange(10_000))
    around = of_cluster(open_site, data, tmp_path, cluster, "batch", unit=5)  # as many batches as faults, and again
    # Not two in a row: after two that broke, batches rest.
    for number, kind in enumerate([*chance.sample(kinds, len(kinds)), last], 1):
        cluster.faults.add(operation, kind, argument=PAUSE if kind in ("slow", "hang") else 0.0, skip=number)
    around.is_quiet()
    assert {kind for _, kind in cluster.faults.met} == {*kinds, last}
    around.is_cheap(cluster.sent, cluster.faults)


@pytest.mark.usefixtures("hops")
@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_storms_that_nothing_mends(
    open_site: OpenSite, data: Path, tmp_path: Path, cluster: Cluster, seed: int
) -> None:
    around = of_cluster(open_site, data, tmp_path, cluster, "individual")
    chosen = strew(seeded(seed), cluster.faults, around.keys, {name: list(kinds) for name, kinds in FATAL.items()})
    built = around.build()
    assert built["state"] == "failed"
    found = {str(problem["path"]).removeprefix(f"{data}/"): problem for problem in built["problems"]}
    assert set(found) == set(chosen)
    for key, (operation, kind) in chosen.items():
        assert found[key]["code"] == FATAL[operation][kind], (operation, kind)
        assert found[key]["message"]
        assert found[key]["next_step"]
    cluster.faults.clear()
    around.is_quiet()
    around.is_cheap(cluster.sent, cluster.faults)
