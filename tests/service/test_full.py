"""A service that is full says so, and when to come again."""

from __future__ import annotations

from pathlib import Path

from tests.service.conftest import _site, listening


def test_one_build_too_many_is_429_and_joining_is_not(tmp_path: Path) -> None:
    blends = []
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text('{"text": "x"}\n')
        blends.append(f"- {{type: nemo, manifest_filepath: {tmp_path}/{name}.jsonl}}\n")
    site = _site(tmp_path / "root", tmp_path, max_running_builds=1)
    with listening(site, tmp_path, lambda: None, alive=lambda: False) as full:
        first = full.post(blends[0])
        refused = full.http.post("/v1/builds", content=blends[1])
        assert refused.status_code == 429
        assert refused.json()["code"] == "busy"
        assert 1 <= int(refused.headers["Retry-After"]) <= 30
        assert full.post(blends[0])["id"] == first["id"]
        full.http.post(f"/v1/builds/{first['id']}/cancel").raise_for_status()
        assert full.post(blends[1])["state"] == "queued"
