"""Mirrors, their receipts, resolve, and names."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from tests.service.conftest import Service
from tests.support import corpus


def test_mirrors(service: Service, ready: dict[str, Any], shards: tuple[str, Path]) -> None:
    service.built(shards[0])
    first = service.http.get("/v1/mirrors?limit=1").json()
    assert len(first["mirrors"]) == 1
    rest = service.http.get(first["next"].replace("limit=1", "limit=200")).json()
    keys = [mirror["key"] for mirror in [*first["mirrors"], *rest["mirrors"]]]
    assert len(keys) == len(set(keys))
    assert ready["mirror"] in keys
    assert rest["next"] is None
    mirror = service.http.get(f"/v1/mirrors/{ready['mirror']}").json()
    assert (mirror["path"], mirror["state"], mirror["sources"]) == (
        ready["path"],
        "published",
        ready["sources"],
    )
    assert service.http.get("/v1/mirrors?before=x").status_code == 404
    assert service.http.get(f"/v1/mirrors?before={'0' * 64}").status_code == 404
    assert service.http.get(f"/v1/mirrors/{'0' * 64}").status_code == 404


def test_verify(service: Service, ready: dict[str, Any]) -> None:
    own = f"/v1/mirrors/{ready['mirror']}"
    begun = service.http.post(f"{own}/verify?sources=1")
    assert (begun.status_code, begun.json()["key"]) == (202, ready["mirror"])
    deadline = time.monotonic() + 60
    while (found := service.http.get(own).json()["verification"])["state"] == "running":
        assert time.monotonic() < deadline
    assert (found["state"], found["sources"], found["with_sources"]) == ("whole", ready["sources"], True)
    assert (found["faults"], found["changed"], found["error"]) == ([], [], None)
    listed = service.http.get("/v1/mirrors?limit=200").json()["mirrors"]
    assert {item["key"]: item["verification"] for item in listed}[ready["mirror"]] == found
    assert service.http.post(f"/v1/mirrors/{'0' * 64}/verify").status_code == 404
    assert service.http.post(f"{own}/verify?sources=perhaps").status_code == 400


def test_a_source(service: Service, ready: dict[str, Any]) -> None:
    path = f"{service.data}/sample/nemo_tarred/audio_0.tar"
    found = service.http.get("/v1/sources", params={"path": path}).json()
    (source,) = found["sources"]
    (content,) = source["contents"]
    assert ready["mirror"] in content["mirrors"]
    assert (content["current"], content["content_hash"]) == (True, source["content_hash"])
    assert ready["id"] in [item["build"] for item in found["uses"]]
    assert service.http.get("/v1/sources", params={"path": path[:-1]}).status_code == 404
    assert service.http.get("/v1/sources").status_code == 400


def test_receipt(service: Service, ready: dict[str, Any]) -> None:
    address = f"/v1/mirrors/{ready['mirror']}/receipt"
    assert service.http.get(address).content == Path(ready["path"], "receipt.json").read_bytes()
    answer = service.http.get(address, params={"sources": 1})
    assert answer.headers["content-type"].startswith("application/jsonl")
    assert len([json.loads(line) for line in answer.text.splitlines()]) == ready["sources"]
    assert service.http.get(f"/v1/mirrors/{'0' * 64}/receipt").status_code == 404


def test_resolve(service: Service, ready: dict[str, Any], blend: str, shards: tuple[str, Path]) -> None:
    answer = service.http.post("/v1/mirrors/resolve", content=blend)
    assert (answer.status_code, answer.json()["path"]) == (200, ready["path"])
    assert answer.headers["etag"] == f'"{ready["mirror"]}"'
    text = service.http.post("/v1/mirrors/resolve", content=blend, headers={"Accept": "text/plain"})
    assert text.text == ready["path"] + "\n"

    new, folder = shards
    unknown = service.http.post("/v1/mirrors/resolve", content=new)
    assert (unknown.status_code, unknown.json()["missing_count"]) == (404, 6)
    assert f"{folder}/a/audio_0.tar" in unknown.json()["missing"]
    corpus.wait_until_calm()
    assert service.built(new)["state"] == "ready"
    assert service.http.post("/v1/mirrors/resolve", content=new).status_code == 200
    with (folder / "a/manifest_1.json").open("ab") as file:
        file.write(corpus.manifest(1))
    changed = service.http.post("/v1/mirrors/resolve", content=new, headers={"Accept": "text/plain"})
    assert changed.status_code == 404
    assert "1 of 6" in changed.text
    assert changed.text.count("\n") == 1
    missing = service.http.post("/v1/mirrors/resolve", content=new.replace("0..2", "0..3"))
    assert (missing.status_code, missing.json()["problem_count"] > 0) == (404, True)
    assert service.http.post("/v1/mirrors/resolve", content="a: [").status_code == 422


def test_names(service: Service, ready: dict[str, Any], shards: tuple[str, Path]) -> None:
    other = service.built(shards[0])
    for build in (ready, other):
        answer = service.http.put("/v1/names/best", json={"build": build["id"]})
        assert answer.status_code == 200, answer.text
        assert (answer.json()["build"], answer.json()["path"]) == (build["id"], build["path"])
        assert service.http.get("/v1/names/best/path").text == build["path"] + "\n"
        assert Path(service.site.root.name("best")).read_text() == build["path"] + "\n"
    shown = service.http.get("/v1/names/best").json()
    assert [item["build"] for item in shown["history"]] == [other["id"], ready["id"]]
    listed = service.http.get("/v1/names?limit=1").json()
    assert [name["name"] for name in listed["names"]] == ["best"]
    assert [name["name"] for name in service.http.get(listed["next"]).json()["names"]] == ["sample"]


def test_names_that_cannot_be(service: Service, idle: Service, ready: dict[str, Any], blend: str) -> None:
    queued = idle.post(blend + "# no name yet\n")
    assert idle.http.put("/v1/names/soon", json={"build": queued["id"]}).json()["code"] == "wrong_state"
    assert service.http.put("/v1/names/.hidden", json={"build": ready["id"]}).status_code == 400
    assert service.http.put("/v1/names/x", json={}).status_code == 400
    assert service.http.put("/v1/names/x", content=b"no json").status_code == 400
    assert service.http.put("/v1/names/x", json={"build": "0" * 26}).status_code == 404
    assert service.http.get("/v1/names/x").status_code == 404
