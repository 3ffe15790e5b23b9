"""Rates by caller and sort of request; what a team uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from blendex.cli.remote import RemoteClient
from service import rates
from service.rates import Buckets, sort_of
from tests.service.conftest import Service, _site, listening


def test_a_bucket_holds_a_burst_and_fills_evenly() -> None:
    now = 0.0
    buckets = Buckets(2.0, lambda: now)
    assert [buckets.take("a") for _ in range(20)] == [0.0] * 20
    assert buckets.take("a") == 0.5
    assert buckets.take("b") == 0.0
    now = 0.5
    assert buckets.take("a") == 0.0
    assert buckets.take("a") == 0.5
    now = 1_000.0
    assert [buckets.take("a") for _ in range(21)].count(0.0) == 20
    slow = Buckets(0.01, lambda: now)  # less than one in a burst: one, then a wait
    assert (slow.take("a"), round(slow.take("a"))) == (0.0, 100)


def test_callers_that_are_forgotten_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "KEPT", 3)
    buckets = Buckets(0.1, lambda: 0.0)
    assert [buckets.take(str(number)) for number in range(5)] == [0.0] * 5
    assert len(buckets._held) == 3
    assert buckets.take("4") > 0
    assert buckets.take("0") == 0.0


def test_sorts() -> None:
    assert sort_of("GET", "/v1/names/a/path") == "lookup"
    assert sort_of("GET", "/v1/builds") == sort_of("HEAD", "/builds") == "read"
    assert sort_of("POST", "/v1/mirrors/resolve") == sort_of("PUT", "/v1/names/a") == "write"
    assert {sort_of("GET", path) for path in ("/healthz", "/readyz", "/metrics", "/static/a.css")} == {None}


def test_too_many_are_told_when_to_come_again(tmp_path: Path) -> None:
    site = _site(tmp_path / "root", tmp_path, reads_per_second=0.2, writes_per_second=0.01)
    with listening(site, tmp_path, lambda: None) as service:
        statuses = [service.http.get("/v1/workers").status_code for _ in range(3)]
        assert statuses == [200, 200, 429]
        answer = service.http.get("/v1/workers", headers={"X-Forwarded-For": "10.0.0.1"})  # trusted from loopback
        assert answer.status_code == 200
        refused = service.http.get("/v1/builds")
        assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
        assert refused.json()["sort"] == "read"
        assert 1 <= int(refused.headers["Retry-After"]) == refused.json()["seconds"] <= 5
        assert service.http.get(f"/v1/builds/{'0' * 26}/path").status_code == 404  # look-ups have no limit here
        assert service.http.get("/readyz").status_code == 200
        writes = [service.http.put("/v1/names/a", headers={"Accept": "text/plain"}) for _ in range(2)]
        assert [answer.status_code for answer in writes] == [400, 429]
        assert writes[1].text.startswith("rate_limited: too many requests of this sort (write).")
        assert 'blendex_requests_limited_total{sort="write"} ' in service.http.get("/metrics").text


def test_usage(idle: Service) -> None:
    answer = idle.http.get("/v1/usage").json()
    assert (answer["team"], answer["quota"]["mirror_bytes"]) == ("local", None)
    assert answer["usage"]["running_builds"] >= 0
    other = idle.http.get("/v1/usage", params={"team": "other"}).json()
    assert (other["team"], other["usage"]["mirrors"]) == ("other", 0)
    client = RemoteClient(idle.url)
    try:
        assert client.usage()["quota"] == answer["quota"]
    finally:
        client.close()
