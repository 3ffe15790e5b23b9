"""Every row of the table of text answers."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from blendex.catalog import states
from blendex.errors import BlendexError, Code
from service.replies import LONGEST_RETRY, line, retry_after
from tests.service.conftest import Service


def one_line(answer: httpx.Response) -> str:
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.text.endswith("\n")
    assert answer.text.count("\n") == 1
    return answer.text[:-1]


@pytest.mark.parametrize("address", ["/v1/builds/{id}/path", "/v1/mirrors/{mirror}/path", "/v1/names/sample/path"])
def test_ready(service: Service, ready: dict[str, Any], address: str) -> None:
    answer = service.http.get(address.format(**ready))
    assert answer.status_code == 200
    assert one_line(answer) == ready["path"]
    assert os.path.isabs(ready["path"])
    assert answer.headers["etag"] == f'"{ready["mirror"]}"'
    assert answer.headers["x-mirror-state"] == "ready"
    assert answer.headers["x-mirror-excluded"] == "0"


def test_accept_decides(service: Service, ready: dict[str, Any]) -> None:
    own = f"/v1/builds/{ready['id']}"
    assert service.http.get(own).json()["id"] == ready["id"]
    assert one_line(service.http.get(own, headers={"Accept": "text/plain"})) == ready["path"]
    assert service.http.get(f"{own}/path", headers={"Accept": "application/json"}).json()["key"] == ready["mirror"]
    preferred = {"Accept": "application/json;q=0.5, text/*"}
    assert one_line(service.http.get("/v1/names/sample", headers=preferred)) == ready["path"]


def test_unchanged(service: Service, ready: dict[str, Any]) -> None:
    etag = f'"{ready["mirror"]}"'
    for header in (etag, f'W/{etag}, "other"', "*"):
        answer = service.http.get(f"/v1/builds/{ready['id']}/path", headers={"If-None-Match": header})
        assert answer.status_code == 304
        assert not answer.content
        assert answer.headers["etag"] == etag
    changed = service.http.get(f"/v1/builds/{ready['id']}/path", headers={"If-None-Match": '"other"'})
    assert changed.status_code == 200


def test_head(service: Service, ready: dict[str, Any]) -> None:
    answer = service.http.head(f"/v1/builds/{ready['id']}/path")
    assert answer.status_code == 200
    assert not answer.content
    assert answer.headers["content-length"] == str(len(ready["path"]) + 1)
    assert service.http.head("/v1/builds/none/path").status_code == 404
    assert service.http.head(f"/v1/builds/{ready['id']}/events").status_code == 200


def test_building(idle: Service, blend: str) -> None:
    build = idle.post(blend)
    began = time.monotonic()
    answer = idle.http.get(f"/v1/builds/{build['id']}/path", params={"wait": 0.3})
    assert 0.25 < time.monotonic() - began < 5
    assert answer.status_code == 503
    assert one_line(answer) == "building: queued 0/0 sources, ETA unknown"
    assert 1 <= int(answer.headers["retry-after"]) <= LONGEST_RETRY
    assert answer.headers["x-mirror-state"] == "building"
    told = idle.http.get(f"/v1/builds/{build['id']}/path", headers={"Accept": "application/json"})
    assert (told.status_code, told.json()["state"], told.json()["stage"]) == (503, "building", "queued")
    posted = idle.http.post("/v1/builds", content=blend, params={"wait": 0}, headers={"Accept": "text/plain"})
    assert posted.status_code == 503  # never 202 on a text answer
    assert posted.headers["location"] == f"/v1/builds/{build['id']}"


def test_retry_after_is_bounded_and_spread() -> None:
    for expected in (None, 0.0, 3.0, 1e9):
        assert all(1 <= int(retry_after(expected)) <= LONGEST_RETRY for _ in range(50))
    assert len({retry_after(1e9) for _ in range(50)}) > 3


def test_waiters_are_woken_and_counted(idle: Service, blend: str) -> None:
    build = idle.post(blend + "# waiters\n")
    address = f"/v1/builds/{build['id']}/path?wait=20"
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(idle.http.get, address) for _ in range(2)]
        time.sleep(0.5)
        began = time.monotonic()
        assert idle.http.get(address).status_code == 503  # the third one gets the answer of now
        assert time.monotonic() - began < 2
        idle.http.post(f"/v1/builds/{build['id']}/cancel")
        assert [future.result().status_code for future in waiting] == [409, 409]
        assert time.monotonic() - began < 5


def test_cancelled_and_failed(idle: Service, blend: str) -> None:
    build = idle.post(blend + "# cancelled\n")
    assert idle.http.post(f"/v1/builds/{build['id']}/cancel").json()["state"] == "cancelled"
    answer = idle.http.get(f"/v1/builds/{build['id']}/path")
    assert answer.status_code == 409
    assert "retry-after" not in answer.headers
    text = one_line(answer)
    assert text.startswith("cancelled: ")
    assert text.endswith(f"{idle.url}/v1/builds/{build['id']}/problems")

    build = idle.post(blend + "# failed\n")
    error = BlendexError(Code.SOURCE_MISSING, "there is\nno \x1b[31msuch file.", file="/data/$(rm -rf x)\r\n.tar")
    with idle.site.work.write() as session:
        assert states.move_build(session, build["id"], "failed", 0, error=error.as_dict())
    answer = idle.http.get(f"/v1/builds/{build['id']}/path")
    assert answer.status_code == 409
    assert one_line(answer).startswith("failed: /data/$(rm -rf x) .tar: there is no [31msuch file.")
    snippet = one_line(idle.http.get(f"/v1/builds/{build['id']}/path?format=export"))
    assert snippet.startswith("# failed: ")  # a shell that evaluates it does nothing
    told = idle.http.get(f"/v1/builds/{build['id']}/path", headers={"Accept": "application/json"}).json()
    assert (told["status"], told["code"], told["state"]) == (409, "source_missing", "failed")


def test_other_than_expected(service: Service, ready: dict[str, Any]) -> None:
    address = f"/v1/builds/{ready['id']}/path"
    assert service.http.get(address, params={"expect": ready["mirror"]}).status_code == 200
    answer = service.http.get(address, params={"expect": "0" * 64}, headers={"If-None-Match": "*"})
    assert answer.status_code == 409
    assert ready["mirror"] in one_line(answer)
    assert service.http.get(address, params={"expect": "latest"}).status_code == 400


def test_collected(service: Service, shards: tuple[str, Path]) -> None:
    build = service.built(shards[0])
    for address in (f"/v1/builds/{build['id']}/path", f"/v1/mirrors/{build['mirror']}/path"):
        assert service.http.get(address).status_code == 200
    service.site.root.discard(build["path"])
    for address in (f"/v1/builds/{build['id']}/path", f"/v1/mirrors/{build['mirror']}/path"):
        answer = service.http.get(address)
        assert answer.status_code == 410
        assert "Post the blend again" in one_line(answer)
    mirror = service.http.get(f"/v1/mirrors/{build['mirror']}").json()
    assert (mirror["state"], mirror["path"]) == ("collected", None)
    receipt = service.http.get(f"/v1/mirrors/{build['mirror']}/receipt")
    assert receipt.json()["key"] == build["mirror"]
    lines = service.http.get(f"/v1/mirrors/{build['mirror']}/receipt?sources=1").text.splitlines()
    assert len(lines) == build["sources"]
    assert service.http.get(f"/v1/builds/{build['id']}/blend").status_code == 409


@pytest.mark.parametrize(
    "address",
    [
        "/v1/builds/{}/path",
        "/v1/builds/0000000000000000000000000{}/path",
        "/v1/mirrors/{}/path",
        "/v1/names/{}/path",
    ],
)
@pytest.mark.parametrize("name", ["x", "%00", "%0a$(id)", "..%2f..", "%ff", "é"])
def test_unknown(service: Service, address: str, name: str) -> None:
    answer = service.http.get(address.format(name))
    assert answer.status_code == 404
    one_line(answer)


def test_export(service: Service, ready: dict[str, Any]) -> None:
    answer = service.http.get(f"/v1/builds/{ready['id']}/path", params={"format": "export"})
    assert answer.status_code == 200
    script = answer.text + 'printf "%s\\n" "$BLENDEX_MIRROR" "$LHOTSE_INDEXES_ROOT" "$BLENDEX_BLEND"'
    values = subprocess.run(["sh", "-euc", script], capture_output=True, text=True, check=True).stdout.splitlines()
    assert values == [ready["path"], f"{ready['path']}/idx", ready["blend"]]
    assert ready["id"] in answer.headers["etag"]
    of_mirror = service.http.get(f"/v1/mirrors/{ready['mirror']}/path?format=export").text
    assert "BLENDEX_BLEND" not in of_mirror


def test_hydra(service: Service, ready: dict[str, Any]) -> None:
    query = {"format": "hydra", "section": "data.train_ds"}
    answer = service.http.get("/v1/names/sample/path", params=query)
    assert all(item.startswith("'++data.train_ds.") and item.endswith("'") for item in answer.text.splitlines())
    assert shlex.split(answer.text) == [
        f"++data.train_ds.input_cfg={ready['blend']}",
        "++data.train_ds.indexed=true",
        f"++data.train_ds.indexes_root={ready['path']}/idx",
    ]
    for section in ("data.train_ds'; id '", "data train", "1x", "", "ü"):
        refused = service.http.get("/v1/names/sample/path", params=query | {"section": section})
        assert refused.status_code == 400
        assert one_line(refused).startswith("# ")
    assert service.http.get("/v1/names/sample/path?format=hydra").status_code == 400
    assert service.http.get("/v1/names/sample/path?section=a").status_code == 400
    assert service.http.get(f"/v1/mirrors/{ready['mirror']}/path", params=query).status_code == 400


def test_hydra_refuses_a_whole_config(service: Service, shards: tuple[str, Path]) -> None:
    entries = "".join(f"      {line}\n" for line in shards[0].splitlines())
    build = service.built(f"model:\n  train_ds:\n    input_cfg:\n{entries}")
    assert build["state"] == "ready", build
    answer = service.http.get(f"/v1/builds/{build['id']}/path?format=hydra&section=data")
    assert answer.status_code == 409
    assert build["blend"] in one_line(answer)


def test_line() -> None:
    assert line("a\nb\u2028c\x00\x1b[0m\u202ed") == "a b c [0m d"
    assert len(line("x" * 10_000)) == 2_000
