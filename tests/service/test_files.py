"""Files of pages: from memory, packed where that is wanted, and the same bytes however they are asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.service.conftest import Service

STATIC = Path("service/static")
PLAIN = {"Accept-Encoding": "identity"}


@pytest.mark.parametrize(
    ("name", "kind", "packed"),
    [
        ("dashboard/app.css", "text/css; charset=utf-8", True),
        ("htmx/htmx.min.js", "text/javascript; charset=utf-8", True),
        ("dashboard/icon.svg", "image/svg+xml", False),
        ("swagger/swagger-ui-bundle.js", "text/javascript; charset=utf-8", False),
    ],
)
def test_a_file_is_the_same_packed_or_not(idle: Service, name: str, kind: str, packed: bool) -> None:
    whole = (STATIC / name).read_bytes()
    plain = idle.http.get(f"/static/{name}", headers=PLAIN)
    other = idle.http.get(f"/static/{name}", headers={"Accept-Encoding": "gzip, br"})
    assert plain.content == other.content == whole  # httpx unpacks
    assert "content-encoding" not in plain.headers
    assert (other.headers.get("content-encoding") == "gzip") == packed
    assert (int(other.headers["content-length"]) < len(whole) / 2) == packed
    assert plain.headers["content-type"] == other.headers["content-type"] == kind
    if packed:
        # No cache on the way hands the one out for the other.
        assert "Accept-Encoding" in plain.headers["vary"]
        assert plain.headers["etag"] != other.headers["etag"]


def test_who_has_a_file_is_told_so(idle: Service) -> None:
    first = idle.http.get("/static/dashboard/app.css")
    again = idle.http.get("/static/dashboard/app.css", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    changed = idle.http.get("/static/dashboard/app.css", headers={"If-None-Match": '"other"'})
    assert changed.status_code == 200


def test_there_is_nothing_beside_the_files(idle: Service) -> None:
    for path in ("/static/dashboard/../../app.py", "/static/%2e%2e/app.py", "/static/none.css", "/static/dashboard"):
        assert idle.http.get(path).status_code == 404, path
    assert idle.http.post("/static/dashboard/app.css").status_code == 405
    head = idle.http.head("/static/dashboard/app.css", headers=PLAIN)
    assert (head.status_code, head.content) == (200, b"")
    assert int(head.headers["content-length"]) == (STATIC / "dashboard/app.css").stat().st_size
