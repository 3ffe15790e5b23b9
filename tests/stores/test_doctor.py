"""``blendex doctor`` names what is wrong with a profile, and what to set."""

from __future__ import annotations

import json
import time
from email.utils import formatdate
from typing import Any

import pytest
from typer.testing import CliRunner

from blendex.cli.app import app
from tests.support import faultproxy
from tests.support.aisstate import Cluster
from tests.support.aiswire import Wire
from tests.support.s3 import S3

pytestmark = pytest.mark.usefixtures("fresh_memory")


def examined(monkeypatch: pytest.MonkeyPatch, profile: dict[str, Any], *urls: str) -> dict[str, Any]:
    quick = {"patience_seconds": 0.5, "connect_seconds": 0.5, "read_seconds": 1}
    monkeypatch.setenv("BLENDEX_STORES", json.dumps({"lab": profile | quick}))
    result = CliRunner().invoke(app, ["doctor", "--json", *urls])
    answer = json.loads(result.stdout)
    assert result.exit_code == (not answer["healthy"])
    checks = [check for check in answer["checks"] if check["kind"] == "stores"]
    assert all(check["do"] for check in checks if check["verdict"] == "wrong")
    return {check["check"]: check for check in checks}


@pytest.fixture
def lab(cluster: Cluster) -> Cluster:
    cluster.bucket("speech")
    for number in range(3):
        cluster.put("speech", f"m/{number}.jsonl", b'{"a": 1}\n')
    return cluster


def test_a_fit_cluster(monkeypatch: pytest.MonkeyPatch, lab: Cluster) -> None:
    checks = examined(monkeypatch, lab.profile(buckets=["speech"]))
    assert {name: check["verdict"] for name, check in checks.items()} == {
        "sdk": "ok", "reach": "ok", "clock": "ok", "auth": "ok", "read": "ok", "range": "ok", "batch": "ok",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("operation", "kind", "check", "words"),
    [
        ("list", "401", "auth", "no permission"),
        ("list", "html", "auth", "something else"),
        ("get", "wrong-bytes", "read", "checksum mismatch"),
        ("get", "dead", "read", "HOSTNAME_LIST"),
        ("range", "ignore-range", "range", "ignores byte ranges"),
        ("batch", "404", "batch", "no usable GetBatch"),
        ("moss", "empty", "batch", "one by one but not through"),
    ],
)
def test_what_is_wrong_with_a_cluster(
    monkeypatch: pytest.MonkeyPatch, lab: Cluster, operation: str, kind: str, check: str, words: str
) -> None:
    lab.faults.add(operation, kind, 100)
    found = examined(monkeypatch, lab.profile(), "ais://speech/m/")
    assert found[check]["verdict"] == "wrong"
    assert words in found[check]["says"]


def test_a_clock_that_differs(monkeypatch: pytest.MonkeyPatch, lab: Cluster) -> None:
    monkeypatch.setattr(Wire, "date_time_string", lambda *_: formatdate(time.time() - 3600, usegmt=True))
    for _ in range(5):
        found = examined(monkeypatch, lab.profile(buckets=["speech"]))
        assert found["clock"]["verdict"] == "wrong"
        if "3600 s" in found["clock"]["says"]:
            break  # the header has whole seconds: at the end of one an answer that took its time says one more
    assert "3600 s ahead of the store" in found["clock"]["says"]
    assert "NTP" in found["clock"]["do"]


def test_tokens_that_prove_nothing(monkeypatch: pytest.MonkeyPatch, lab: Cluster) -> None:
    lab.weak = True
    found = examined(monkeypatch, lab.profile(buckets=["speech"]))
    assert found["token"]["verdict"] == "wrong"
    assert "trust_size" in found["token"]["do"]


def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("s3", "aistore"):
        found = examined(monkeypatch, {"kind": kind, "endpoint": "http://127.0.0.1:9", "buckets": ["speech"]})
        assert found["reach"]["verdict"] == "wrong"
        assert "auth" not in found


def test_a_fit_s3(monkeypatch: pytest.MonkeyPatch, s3: S3, bucket: str) -> None:
    s3.put(bucket, "m/0.jsonl", b"{}\n")
    checks = examined(monkeypatch, s3.profile(), f"s3://{bucket}/m/")
    assert {name: check["verdict"] for name, check in checks.items()} == {
        "sdk": "ok", "reach": "ok", "clock": "ok", "auth": "ok", "read": "ok", "range": "ok",
    }  # fmt: skip


def test_s3_that_refuses(monkeypatch: pytest.MonkeyPatch, s3: S3, bucket: str) -> None:
    with faultproxy.serve(s3.url) as proxy:
        proxy.faults.add("list", "403")
        found = examined(monkeypatch, s3.profile(endpoint=proxy.url), f"s3://{bucket}/")
    assert found["auth"]["verdict"] == "wrong"


def test_a_bucket_that_no_profile_serves(monkeypatch: pytest.MonkeyPatch, lab: Cluster) -> None:
    found = examined(monkeypatch, lab.profile(buckets=["speech"]), "ais://other/x")
    assert "no endpoint profile serves ais://other" in found["auth"]["says"]
