"""The database is away, and the api restarted: what is published is found all the same."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cluster.cluster import Api, wait_for
from tests.support import services

TEXT = {"Accept": "text/plain"}


@pytest.fixture
def postgres() -> Iterator[services.Postgres]:
    """A server of the test's own, to be stopped."""
    if not services.has_postgres() and not os.environ.get("CI"):
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    server = services.Postgres()
    yield server
    server.start() if not (server._data / "postmaster.pid").exists() else None
    server.close()


def ask(api: Api, address: str, **headers: str) -> httpx.Response:
    return api.http.get(address, headers=headers)


def check_degraded(api: Api, build: dict[str, Any], blend: str) -> None:
    """Published things are found and say that they come from the root; nothing can be submitted."""
    path, own = build["path"], f"/v1/builds/{build['id']}"
    mirror = f"/v1/mirrors/{build['mirror']}"
    for address in (f"{own}/path", "/v1/names/sample/path", f"{mirror}/path", own, "/v1/names/sample"):
        answer = ask(api, address, **TEXT)
        assert (answer.status_code, answer.text) == (200, path + "\n"), (address, answer.text)
        assert answer.headers["X-Blendex-Degraded"] == "catalog", address
        value = ask(api, address, Accept="application/json")
        assert (value.json()["path"], value.json()["degraded"]) == (path, "catalog"), address
        assert value.headers["X-Blendex-Degraded"] == "catalog"
    assert ask(api, mirror).json()["degraded"] == "catalog"
    assert ask(api, f"{mirror}/receipt").json()["key"] == build["mirror"]
    assert path in ask(api, f"{own}/blend").text
    export = ask(api, f"{own}/path?format=export")
    assert f"BLENDEX_MIRROR='{path}'" in export.text
    # Whether there is another one nobody can say now: not 404.
    for unknown in ("/v1/builds/" + "0" * 26, "/v1/names/other", f"/v1/builds/{'0' * 26}/path"):
        answer = ask(api, unknown)
        assert (answer.status_code, answer.headers["X-Content-Type-Options"]) == (503, "nosniff")
        assert 1 <= int(answer.headers["Retry-After"]) <= 30
    for refused in (api.http.post("/v1/builds", content=blend), ask(api, "/v1/builds"), ask(api, "/v1/names")):
        assert (refused.status_code, refused.json()["code"]) == (503, "catalog_away")
        assert 1 <= int(refused.headers["Retry-After"]) <= 30
    assert api.http.post("/v1/builds", content=blend, headers=TEXT).status_code == 503
    ready = ask(api, "/readyz")
    assert (ready.status_code, ready.json()["ready"], ready.json()["degraded"]) == (200, True, "catalog")
    page = ask(api, "/builds", Accept="text/html")
    assert page.status_code == 503
    assert "database does not answer" in page.text
    page = ask(api, "/health", Accept="text/html")
    assert page.status_code == 200
    assert "database does not answer" in page.text
    assert "blendex_up 0.0" in ask(api, "/metrics").text


@pytest.mark.slow
def test_look_ups_without_the_database_and_after_a_restart(
    postgres: services.Postgres, tmp_path: Path, blend: str
) -> None:
    url = postgres.url.render_as_string(hide_password=False)
    environment = {"BLENDEX_DATABASE_URL": url, "BLENDEX_ROOT": str(tmp_path / "root"), "BLENDEX_SLOTS": "2"}
    api = Api(environment)
    try:
        build = api.http.post("/v1/builds", content=blend, params={"wait": 60, "name": "sample"}).json()
        assert build["state"] == "ready", build
        assert "degraded" not in ask(api, "/v1/names/sample").json()
        postgres.stop()
        wait_for(lambda: "degraded" in ask(api, "/readyz").json())
        answer = ask(api, "/v1/names/sample/path", **TEXT)
        assert (answer.text, answer.headers["X-Blendex-Degraded"]) == (build["path"] + "\n", "catalog")
        api.close()
        api = Api(environment)
        check_degraded(api, build, blend)
        postgres.start()
        wait_for(lambda: ask(api, "/readyz").json()["database"] == "ok")
        answer = ask(api, "/v1/names/sample")
        assert answer.json()["path"] == build["path"]
        assert "X-Blendex-Degraded" not in answer.headers
        again = api.http.post("/v1/builds", content=blend, params={"wait": 60}).json()
        assert (again["state"], again["path"], again["opened"]) == ("ready", build["path"], 0)
    finally:
        api.close()


@pytest.mark.long
def test_a_database_of_another_root_ends_the_process_when_it_comes_back(
    postgres: services.Postgres, tmp_path: Path
) -> None:
    url = postgres.url.render_as_string(hide_password=False)
    first = Api({"BLENDEX_DATABASE_URL": url, "BLENDEX_ROOT": str(tmp_path / "one")})
    first.close()
    postgres.stop()
    api = Api({"BLENDEX_DATABASE_URL": url, "BLENDEX_ROOT": str(tmp_path / "two")})
    try:
        assert ask(api, "/readyz").json()["degraded"] == "catalog"
        postgres.start()
        assert api.popen.wait(60) != 0
        assert "belongs to catalog" in api.text()
    finally:
        api.close()
