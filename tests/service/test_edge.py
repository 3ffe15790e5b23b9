"""What holds for every address: problems, headers, health, the description, and what nobody foresaw."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import CheckFunction
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from sqlalchemy.exc import OperationalError

from blendex.builds.resolve import Resolver
from blendex.cli.serve import listen
from blendex.errors import Code
from service.problems import STATUS
from tests.service.conftest import Service

ROUTES = [
    "/v1/builds",
    "/v1/mirrors",
    "/v1/names",
    "/healthz",
    "/readyz",
    "/openapi.json",
    "/docs",
    "/none",
    "/v1/builds/x",
]


def test_every_code_has_a_status() -> None:
    assert set(STATUS) == set(Code)
    assert all(400 <= status < 600 for status in STATUS.values())


@pytest.mark.parametrize("route", ROUTES)
def test_headers(idle: Service, route: str) -> None:
    answer = idle.http.get(route, headers={"Origin": "https://evil.example"})
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"]
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_unknown_parameters_are_refused_everywhere(service: Service, ready: dict[str, Any]) -> None:
    links = [address for address in ready["links"].values() if address]
    for address in (
        *links,
        f"{ready['links']['mirror']}/receipt",
        "/v1/names",
        "/v1/mirrors",
        "/healthz",
        "/readyz",
    ):
        answer = service.http.get(f"{address}?wiat=1")
        assert answer.status_code == 400, address
    near = service.http.get(f"{ready['links']['path']}?wiat=1")
    assert "Did you mean wait?" in near.text


def test_routing_failures_are_problems(idle: Service) -> None:
    for method, address, status in (
        ("GET", "/none", 404),
        ("GET", "/v1/builds/", 404),
        ("GET", "/static/../app.py", 404),
        ("DELETE", "/v1/builds", 405),
        ("POST", "/v1/names", 405),
    ):
        answer = idle.http.request(method, address)
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["status"] == status
        assert answer.json()["instance"] == answer.url.path
    assert "GET" in idle.http.delete("/v1/builds").headers["allow"]


@pytest.mark.parametrize(
    "headers", [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}]
)
def test_pages_of_other_sites_cannot_post(idle: Service, blend: str, headers: dict[str, str]) -> None:
    assert idle.http.post("/v1/builds", content=blend, headers=headers).status_code == 403
    same = {"Origin": idle.url, "Sec-Fetch-Site": "same-origin"}
    assert idle.http.post("/v1/builds?dry_run=perhaps", content=blend, headers=same).status_code == 400


def test_the_unforeseen_is_not_shown(idle: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("canary")

    monkeypatch.setattr(Resolver, "build", broken)
    address = f"/v1/builds/{'0' * 26}/path"
    for accept in ("text/plain", "application/json"):
        answer = idle.http.get(address, headers={"Accept": accept})
        assert answer.status_code == 500
        assert "canary" not in answer.text
        assert answer.headers["x-content-type-options"] == "nosniff"

    def away(*_: object) -> None:
        raise OperationalError("select canary", {}, Exception("canary"))

    monkeypatch.setattr(Resolver, "build", away)
    answer = idle.http.get(address)
    assert (answer.status_code, "canary" in answer.text) == (503, False)
    assert int(answer.headers["retry-after"]) <= 30


def test_health(service: Service, idle: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    assert service.http.get("/healthz").json() == {"alive": True}
    ready = {"ready": True, "database": "ok", "root": "ok", "work": "ok"}
    assert service.http.get("/readyz").json() == ready
    assert idle.http.get("/readyz").status_code == 503
    assert idle.http.get("/readyz").json()["work"] == "has stopped"
    monkeypatch.setattr(service.site.root, "path", "/proc/none")
    assert "written" in service.http.get("/readyz").json()["root"]


def test_docs_load_nothing_from_elsewhere(idle: Service) -> None:
    page = idle.http.get("/docs")
    assert page.status_code == 200
    assert "<script>" not in page.text
    assert "http" not in page.text
    assert "script-src" not in page.headers["content-security-policy"]
    files = re.findall(r'(?:src|href)="(/[^"]+)"', page.text)
    assert len(files) >= 4
    for file in files:
        assert idle.http.get(file).status_code == 200
    vendored = Path("service/static/swagger/swagger-ui.css")
    assert idle.http.get("/static/swagger/swagger-ui.css").content == vendored.read_bytes()
    assert idle.http.get("/", follow_redirects=True).url.path == "/builds"


def test_description(idle: Service) -> None:
    document = idle.http.get("/openapi.json").json()
    schemathesis.openapi.from_dict(document).validate()
    post = document["paths"]["/v1/builds"]["post"]
    assert {"application/yaml", "application/x-tar", "application/json"} <= set(post["requestBody"]["content"])
    assert post["requestBody"]["content"]["application/yaml"]["examples"]
    assert document["components"]["schemas"]["Build"]["examples"]
    for methods in document["paths"].values():
        for operation in methods.values():
            assert operation["summary"]
            assert "422" not in operation["responses"]
            assert "application/problem+json" in operation["responses"]["default"]["content"]


def test_schemathesis(service: Service, ready: dict[str, Any]) -> None:
    assert ready["state"] == "ready"
    schema = schemathesis.openapi.from_url(f"{service.url}/openapi.json").include(method="GET")
    checks: list[CheckFunction] = [
        status_code_conformance,
        content_type_conformance,
        response_schema_conformance,
    ]
    budget = settings(
        max_examples=12,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
    )

    def check(case: schemathesis.Case) -> None:
        answer = case.call(timeout=30)
        assert answer.status_code < 500, answer.text
        case.validate_response(answer, checks=checks)

    operations = [result.ok() for result in schema.get_all_operations()]
    assert len(operations) >= 12
    for operation in operations:
        budget(given(operation.as_strategy())(check))()


def test_an_answer_is_sent_at_once() -> None:
    """Else its body waits until its head is acknowledged, which takes 40 ms."""
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
