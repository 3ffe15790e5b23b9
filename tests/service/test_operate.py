"""What operators look at: workers, metrics, request numbers, log lines."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from blendex.observability import logs, metrics
from tests.service.conftest import Service

DOCS = Path(__file__).parent.parent.parent / "docs" / "operate.md"


def test_workers(service: Service) -> None:
    found = service.http.get("/v1/workers").json()["workers"]
    assert [worker["state"] for worker in found] == ["working"]
    assert found[0]["classes"] == ["plan", "index", "pack", "publish"]
    assert found[0]["slots"] == 2
    assert found[0]["budget_bytes"] > 0
    assert found[0]["waiting"] is None
    assert found[0]["polled_at"] > 0


def test_what_was_predicted_and_seen(service: Service, ready: dict[str, Any]) -> None:
    seen = service.http.get("/v1/workers").json()["observations"]
    assert {item["sort"].split(":")[0] for item in seen} >= {"jsonl", "nemo_tar"}
    assert all(0 < item["last_bytes"] <= item["predicted_bytes"] for item in seen)
    assert service.http.get(f"/v1/builds/{ready['id']}").json()["attempts_failed"] == []


def families(service: Service) -> dict[str, Any]:
    answer = service.http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {family.name: family for family in text_string_to_metric_families(answer.text)}


def test_metrics_count_and_have_no_ids(service: Service, ready: dict[str, Any]) -> None:
    service.http.get(f"/v1/builds/{ready['id']}")
    found = families(service)
    routes = {sample.labels["route"] for sample in found["blendex_http_requests"].samples}
    assert "/v1/builds/{build}" in routes
    ended = {sample.labels.get("outcome") for sample in found["blendex_units_ended"].samples}
    assert "done" in ended
    assert found["blendex_up"].samples[0].value == 1
    values = {value for family in found.values() for sample in family.samples for value in sample.labels.values()}
    assert not [value for value in values if ready["id"] in value or ready["mirror"] in value]


def test_every_metric_is_documented(service: Service) -> None:
    shown = set(families(service)) | {family.name for family in metrics.REGISTRY.collect()}
    documented = set(re.findall(r"`(blendex_[a-z_]+)`", DOCS.read_text()))
    plain = {name.removesuffix("_total") for name in documented}
    assert {name for name in shown if not name.endswith("_created")} == plain


def test_request_numbers_come_back(service: Service) -> None:
    assert service.http.get("/healthz", headers={"X-Request-Id": "mine-1"}).headers["X-Request-Id"] == "mine-1"
    made = service.http.get("/healthz", headers={"X-Request-Id": "no good"}).headers["X-Request-Id"]
    assert re.fullmatch("[0-9a-f]{16}", made)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Logging as in production, into memory; put back afterwards."""
    import structlog

    stream = io.StringIO()
    root = logging.getLogger()
    before = root.handlers[:], root.level, structlog.get_config()
    monkeypatch.setattr(sys, "stderr", stream)
    logs.configure("json")
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    root.handlers[:], root.level = before[0], before[1]
    structlog.configure(**before[2])


def test_lines_carry_what_is_bound_and_no_secret(lines: Any) -> None:
    logger = logs.get_logger("blendex.test")
    with logs.bound(request="r1", build="b1", unit=7, attempt=2):
        logger.info("happened", api_token="hidden", text="two\nlines")
        logging.getLogger("other.library").warning("from %s", "elsewhere")
    logger.info("later")
    first, second, third = lines()
    assert (first["request"], first["build"], first["unit"], first["attempt"]) == ("r1", "b1", 7, 2)
    assert first["event"] == "happened"
    assert first["api_token"] == "…"
    assert second["event"] == "from elsewhere"
    assert second["build"] == "b1"
    assert "build" not in third


def test_a_build_can_be_followed_through_the_log(service: Service, shards: tuple[str, Path], lines: Any) -> None:
    answer = service.http.post(
        "/v1/builds", content=shards[0], params={"wait": 60}, headers={"X-Request-Id": "followed"}
    )
    build = answer.json()["id"]
    found = [line for line in lines() if line.get("build") == build]
    assert any(line["event"] == "build_submitted" and line["request"] == "followed" for line in found)
    ended = [line for line in found if line["event"] == "attempt_ended"]
    assert {line["work"] for line in ended} == {"plan", "index", "publish"}
    assert all(line["unit"] and line["attempt"] and line["outcome"] == "done" for line in ended)
    assert any(line["event"] == "answered" and line["request"] == "followed" for line in lines())
