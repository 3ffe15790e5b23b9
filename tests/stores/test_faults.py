"""Every fault of a store ends in the same index, or in an error that names the object, the cause and the next step.

One unit is indexed with the fault and without: entries are equal byte for byte, or what is missing failed by name. No
fault costs more than the bytes once again, and none takes longer than the profile's patience.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from blendex.errors import BlendexError, Code
from blendex.storage import batch
from tests.stores.reading import MANIFESTS, MENDED, OBJECTS, PATIENCE, TARS, hop, index, judge
from tests.support import faultproxy
from tests.support.aisstate import Cluster
from tests.support.s3 import S3

pytestmark = pytest.mark.usefixtures("fresh_memory")

AIS_FAULTS = [
    *[("get", kind, MENDED) for kind in ("drop", "short", "reset", "slow", "hang", "500", "502", "503", "429", "409",
                                         "wrong-bytes", "wrong-checksum", "410", "other-version")],
    *[("range", kind, MENDED) for kind in ("drop", "short", "reset", "slow", "500", "503", "429", "409", "ignore-range",
                                           "410", "416", "other-version")],
    ("get", "401", {Code.STORE_DENIED}),
    ("get", "403", {Code.STORE_DENIED}),
    ("get", "507", {Code.STORE_BROKEN}),
    ("get", "html", {Code.STORE_BROKEN}),
    ("get", "404", {Code.SOURCE_MISSING}),
    ("range", "wrong-range", {Code.STORE_BROKEN}),
    ("range", "404", {Code.SOURCE_MISSING}),
    ("range", "html", {Code.STORE_BROKEN}),
    ("head", "drop", MENDED),
    ("head", "503", MENDED),
    ("head", "html", {Code.STORE_BROKEN}),
    ("head", "401", {Code.STORE_DENIED}),
]  # fmt: skip


@pytest.mark.parametrize(("operation", "kind", "codes"), AIS_FAULTS)
def test_individual_reads_from_aistore(
    cluster: Cluster, tmp_path: Path, right: dict[str, Any], operation: str, kind: str, codes: set[Code],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    fill(cluster)
    key = f"m/{random.randrange(MANIFESTS):02}.jsonl" if operation == "get" else f"t/{random.randrange(TARS)}.tar"
    cluster.faults.add(operation, kind, argument=1.5, key=key)
    hop(monkeypatch, operation)
    found = index(tmp_path, cluster.profile(mode="individual", **PATIENCE), "ais", "speech")
    assert cluster.faults.met == [(operation, kind)]
    judge(found, right, codes)


BATCH_FAULTS = [
    *[("batch", kind) for kind in ("404", "501", "400", "503", "500", "429", "html", "drop", "401")],
    *[("moss", kind) for kind in ("503", "500", "404", "409", "html", "drop", "hang", "missing", "empty", "fewer",
                                  "fewer-no-trailer", "cut-clean", "cut-reset", "swap", "wrong-name", "wrong-bytes",
                                  "slow", "nothing", "not-a-tar")],
]  # fmt: skip


@pytest.mark.parametrize("times", [1, pytest.param(99, marks=pytest.mark.long)])
@pytest.mark.parametrize(("operation", "kind"), BATCH_FAULTS)
def test_batches_from_aistore(
    cluster: Cluster, tmp_path: Path, right: dict[str, Any], operation: str, kind: str, times: int
) -> None:
    fill(cluster)
    cluster.faults.add(operation, kind, times, argument=1.0)
    found = index(tmp_path, cluster.profile(mode="batch", **PATIENCE), "ais", "speech")
    assert (operation, kind) in cluster.faults.met
    judge(found, right, MENDED)
    if kind not in ("wrong-bytes", "empty") and times > 1:
        assert found["notes"]


def test_batches_that_break_twice_in_a_row_are_not_sent_again(
    cluster: Cluster, tmp_path: Path, right: dict[str, Any]
) -> None:
    fill(cluster)
    cluster.faults.add("moss", "fewer-no-trailer", 99)
    profile = cluster.profile(mode="batch", **PATIENCE)
    judge(index(tmp_path / "1", profile, "ais", "speech"), right, MENDED)
    judge(index(tmp_path / "2", profile, "ais", "speech"), right, MENDED)
    third = index(tmp_path / "3", profile, "ais", "speech")
    judge(third, right, MENDED)
    assert cluster.count("batch") == batch.BREAKS
    assert not third["notes"]


def test_after_a_rest_batches_begin_with_few(
    cluster: Cluster, tmp_path: Path, right: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(cluster)
    monkeypatch.setattr(batch, "UNABLE_SECONDS", 0.0)
    profile = cluster.profile(mode="batch", **PATIENCE)
    sent = []
    for number in range(3):
        if number == 1:
            cluster.faults.add("batch", "404")
        judge(index(tmp_path / str(number), profile, "ais", "speech"), right, MENDED)
        sent.append(cluster.count("moss"))
    assert sent == [2, 2, 4]  # two objects and the rest; refused; two objects and the rest


def fill(cluster: Cluster) -> None:
    cluster.bucket("speech")
    for key, data in OBJECTS.items():
        cluster.put("speech", key, data)


S3_FAULTS = [
    *[("get", kind, MENDED) for kind in ("drop", "short", "reset", "slow", "hang", "500", "503", "429", "412")],
    *[("range", kind, MENDED) for kind in ("drop", "short", "reset", "slow", "500", "503", "ignore-range", "412",
                                           "other-version")],
    ("range", "wrong-range", {Code.STORE_BROKEN}),
    ("get", "403", {Code.STORE_DENIED}),
    ("get", "404", {Code.SOURCE_MISSING}),
    ("head", "drop", MENDED),
    ("head", "503", MENDED),
    ("head", "403", {Code.STORE_DENIED}),
]  # fmt: skip


@pytest.mark.parametrize(("operation", "kind", "codes"), S3_FAULTS)
def test_reads_from_s3(
    s3: S3, tmp_path: Path, right: dict[str, Any], operation: str, kind: str, codes: set[Code],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    hop(monkeypatch, operation)
    with faultproxy.serve(s3.url) as proxy:
        key = f"m/{random.randrange(MANIFESTS):02}.jsonl" if operation == "get" else f"t/{random.randrange(TARS)}.tar"
        proxy.faults.add(operation, kind, argument=1.5, key=key)
        found = index(tmp_path, s3.profile(endpoint=proxy.url, **PATIENCE), "s3", "right")
        assert proxy.faults.met == [(operation, kind)]
    judge(found, right, codes)


@pytest.mark.parametrize(("kind", "words"), [("loop", "circle"), ("dead", "HOSTNAME_LIST")])
def test_redirects_that_lead_nowhere(cluster: Cluster, tmp_path: Path, kind: str, words: str) -> None:
    fill(cluster)
    cluster.faults.add("get", kind, 10**6)
    try:
        found = index(tmp_path, cluster.profile(mode="individual", **PATIENCE), "ais", "speech")
        errors = [found["failures"][path] for path in found["failures"] if path.endswith(".jsonl")]
    except BlendexError as error:
        errors = [error]
    assert errors
    for error in errors:
        assert words in error.message
        assert error.next_step


def test_nobody_at_the_endpoint(tmp_path: Path) -> None:
    for kind, scheme in (("s3", "s3"), ("aistore", "ais")):
        profile = {
            "kind": kind,
            "endpoint": "http://127.0.0.1:9",
            "buckets": ["*"],
            "access_key": "a",
            "secret_key": "b",
        }
        with pytest.raises(BlendexError) as caught:
            index(tmp_path / kind, profile | PATIENCE | {"patience_seconds": 0.5}, scheme, "speech")
        assert caught.value.code is Code.STORE_UNREACHABLE
