"""Builds after they were posted: lists, problems, cancel, retry, accept, events."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from blendex.catalog import states
from tests.service.conftest import Service
from tests.support import corpus


def test_pages(service: Service, ready: dict[str, Any], shards: tuple[str, Path]) -> None:
    service.built(shards[0])
    seen: list[str] = []
    following: str | None = "/v1/builds?limit=1"
    while following and len(seen) < 100:
        page = service.http.get(following).json()
        seen += [build["id"] for build in page["builds"]]
        following = page["next"]
    assert seen == sorted(set(seen), reverse=True)
    assert ready["id"] in seen
    failed = service.http.get("/v1/builds?state=failed").json()["builds"]
    assert all(build["state"] == "failed" for build in failed)
    for query in ("state=done", "limit=0", "limit=201", "limit=x", "after=a"):
        assert service.http.get(f"/v1/builds?{query}").status_code == 400
    assert service.http.get("/v1/builds?before=..").status_code == 404


def test_labels_and_log(service: Service, shards: tuple[str, Path]) -> None:
    build = service.built(shards[0], label=["project=granary", "run=7"])
    assert build["labels"] == {"project": "granary", "run": "7"}
    found = service.http.get("/v1/builds", params={"label": ["run=7", "project=granary"], "limit": 1}).json()
    assert [item["id"] for item in found["builds"]] == [build["id"]]
    assert "label=run%3D7&label=project%3Dgranary" in found["next"]
    assert service.http.get(found["next"]).json()["builds"] == []
    for query in ("label=run", "label=a=b&label=a=c", "label=a%20b=c"):
        assert service.http.get(f"/v1/builds?{query}").status_code == 400
        assert service.http.post(f"/v1/builds?{query}", content=shards[0]).status_code == 400
    lines = service.http.get(build["links"]["log"]).json()["log"]
    assert (lines[0]["event"], lines[-1]["event"]) == ("ready", "submitted")
    assert all(line["says"] for line in lines)
    assert len(service.http.get(build["links"]["log"], params={"limit": 2}).json()["log"]) == 2


def test_bad_file_then_accept(service: Service, shards: tuple[str, Path]) -> None:
    blend, folder = shards
    bad = corpus.put(folder / "bad.json", b'{"audio_filepath": "a.wav", "duration": 1}\n{"half": ')
    blend += f"- type: nemo\n  manifest_filepath: {bad}\n  weight: 0.5\n"
    build = service.built(blend)
    assert build["state"] == "failed"
    own = f"/v1/builds/{build['id']}"
    told = service.http.get(f"{own}/problems").json()
    assert told["count"] == len(told["problems"]) >= 1
    assert str(bad) in json.dumps(told)
    report = service.http.get(f"{own}/findings").json()
    assert [(item["name"], item["severity"]) for item in report["findings"]] == [("half_line", "refuse")]
    assert report["sources"][0]["path"] == str(bad)
    assert service.http.get(f"{own}/findings?limit=0").json()["more"] == 1
    assert service.http.get("/v1/builds/nope/findings").status_code == 404
    assert service.http.post(f"{own}/accept").status_code == 400
    assert service.http.post(f"{own}/accept", json={"reason": "x"}).status_code == 400
    assert service.http.post(f"{own}/accept?why=a", json={"why": "b"}).status_code == 400
    accepted = service.http.post(f"{own}/accept", json={"why": "half a line", "who": "ada"})
    assert accepted.status_code == 200, accepted.text
    answer = service.http.get(f"{own}/path?wait=60")
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-mirror-excluded"] == "1"
    shown = service.http.get(own).json()
    assert (shown["excluded"][0]["by"], shown["excluded"][0]["why"]) == ("ada", "half a line")
    assert str(bad) not in service.http.get(f"{own}/blend").text
    receipt = service.http.get(f"{shown['links']['mirror']}/receipt").json()
    assert receipt["excluded"][0]["by"] == "ada"
    assert service.http.post(f"{own}/accept?why=again").status_code == 409


def test_bad_file_then_retry(service: Service, shards: tuple[str, Path]) -> None:
    blend, folder = shards
    bad = corpus.put(folder / "bad.json", b"no json\n")
    blend += f"- type: nemo\n  manifest_filepath: {bad}\n"
    build = service.built(blend)
    assert build["state"] == "failed"
    corpus.put(bad, corpus.manifest(3))
    retried = service.http.post(f"/v1/builds/{build['id']}/retry")
    assert retried.status_code == 200
    assert service.http.get(f"/v1/builds/{build['id']}/path?wait=60").status_code == 200
    again = service.http.post(f"/v1/builds/{build['id']}/retry")
    assert (again.status_code, again.json()["code"]) == (409, "wrong_state")
    excluded = service.built(blend.replace("bad.json", "none.json"), on_bad="exclude")
    assert (excluded["state"], len(excluded["excluded"])) == ("ready", 1)


def test_retry_of_one_source(service: Service, shards: tuple[str, Path]) -> None:
    blend, folder = shards
    bad = [corpus.put(folder / f"a/audio_{number}.tar", b"no tar" * 200) for number in (0, 2)]
    build = service.built(blend)
    own = f"/v1/builds/{build['id']}"
    assert {item["path"] for item in build["problems"]} == {str(path) for path in bad}
    for body in ({"source": f"{folder}/a/audio_1.tar"}, {"path": str(bad[0])}, {"source": 7}):
        assert service.http.post(f"{own}/retry", json=body).status_code == 400, body
    for path in bad:
        corpus.put(path, corpus.tar([f"a{path.stem[-1]}_{number}.wav" for number in range(5)]))
    corpus.wait_until_calm()
    assert service.http.post(f"{own}/retry", json={"source": str(bad[0])}).json()["state"] == "queued"
    assert service.http.get(f"{own}/path?wait=60").status_code == 409
    left = service.http.get(own).json()
    assert [item["path"] for item in left["problems"]] == [str(bad[1])]
    service.http.post(f"{own}/retry")
    assert service.http.get(f"{own}/path?wait=60").status_code == 200


def test_builds_are_filtered(service: Service, ready: dict[str, Any], shards: tuple[str, Path]) -> None:
    other = service.built(shards[0])["id"]

    def found(**query: str) -> set[str]:
        return {item["id"] for item in service.http.get("/v1/builds", params=query).json()["builds"]}

    assert ready["id"] in found(name="sample")
    assert other not in found(name="sample")
    assert found(text=other[:20]) >= {other}
    assert found(owner="nobody") == set()
    page = service.http.get("/v1/builds", params={"owner": "local", "limit": "1"}).json()
    assert "owner=local" in page["next"]


def test_cancel(idle: Service, blend: str) -> None:
    build = idle.post(blend + "# to be cancelled\n")
    own = f"/v1/builds/{build['id']}"
    assert idle.http.post(f"{own}/retry").status_code == 409
    for _ in range(2):
        assert idle.http.post(f"{own}/cancel").json()["state"] == "cancelled"
    assert idle.http.post(f"{own}/retry").json()["state"] == "queued"
    assert idle.http.get(f"{own}/blend").status_code == 409
    for action in ("cancel", "retry", "accept?why=x"):
        assert idle.http.post(f"/v1/builds/{'0' * 26}/{action}").status_code == 404


@contextmanager
def streaming(service: Service, build: str, **headers: str) -> Iterator[Iterator[dict[str, Any]]]:
    with service.http.stream("GET", f"/v1/builds/{build}/events", headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["x-accel-buffering"] == "no"

        def events() -> Iterator[dict[str, Any]]:
            event: dict[str, Any] = {}
            for line in answer.iter_lines():
                name, _, value = line.partition(": ")
                if not line and "data" in event:
                    yield event | json.loads(event["data"])
                    event = {}
                elif name:
                    event[name] = value

        yield events()


def test_events_until_the_end(service: Service, shards: tuple[str, Path]) -> None:
    build = service.post(shards[0])
    with streaming(service, build["id"]) as events:
        seen = list(events)
    assert seen[-1]["state"] == "ready"
    assert seen[-1]["path"]
    assert seen[-1]["links"]["mirror"]
    versions = [int(event["id"]) for event in seen] if seen[0]["id"].isdigit() else [e["version"] for e in seen]
    assert versions == sorted(set(versions))
    last = str(seen[-1]["version"])
    done = service.http.get(f"/v1/builds/{build['id']}/events", headers={"Last-Event-ID": last})
    assert done.status_code == 204
    with streaming(service, build["id"], **{"Last-Event-ID": "0" * 9}) as events:
        assert [event["state"] for event in events] == ["ready"]
    assert service.http.get(f"/v1/builds/{'0' * 26}/events").status_code == 404


def test_events_resume(idle: Service, blend: str) -> None:
    build = idle.post(blend + "# followed\n")["id"]
    with streaming(idle, build) as events:
        first = next(events)
    assert (first["state"], first["event"]) == ("queued", "build")

    def change() -> None:
        time.sleep(0.5)
        with idle.site.work.write() as session:
            states.move_build(session, build, "planning", 0)

    thread = threading.Thread(target=change)
    thread.start()
    with streaming(idle, build, **{"Last-Event-ID": str(first["version"])}) as events:
        assert next(events)["state"] == "planning"  # the state that was seen is not sent again
        idle.http.post(f"/v1/builds/{build}/cancel")
        assert [event["state"] for event in events] == ["cancelled"]
    thread.join()
    with streaming(idle, build, **{"Last-Event-ID": "junk"}) as events:
        assert [event["state"] for event in events] == ["cancelled"]


def test_packs_are_a_build_of_their_own(service: Service, shards: tuple[str, Path]) -> None:
    build = service.built(shards[0])
    assert build["state"] == "ready"
    answer = service.http.post(f"/v1/builds/{build['id']}/packs?wait=60")
    assert answer.status_code in (200, 202), answer.text
    made = answer.json()
    assert answer.headers["location"] == f"/v1/builds/{made['id']}"
    assert made["id"] != build["id"]
    assert service.http.get(f"/v1/builds/{made['id']}/path?wait=60").status_code == 200
    shown = service.http.get(f"/v1/builds/{made['id']}").json()
    assert any("file" in item for item in shown["packs"])
    assert "index_pack:" in service.http.get(f"/v1/builds/{made['id']}/blend").text
    assert service.http.post(f"/v1/builds/{build['id']}/packs?packs=a%20b").status_code == 400
    assert service.http.post(f"/v1/builds/{build['id']}/packs?sidecars=some").status_code == 400
    assert service.http.post(f"/v1/builds/{build['id']}/packs?tars=some").status_code == 400
    assert service.http.post(f"/v1/builds/{build['id']}/packs?tars=paths&sidecars=all").status_code == 400
    assert service.http.post("/v1/builds/nope/packs").status_code == 404


def test_a_build_follows_its_paths(service: Service, shards: tuple[str, Path]) -> None:
    build = service.built(shards[0])
    old = str(shards[1])
    new = shards[1].with_name("moved")
    shutil.copytree(old, new)
    made = service.http.post(f"/v1/builds/{build['id']}/rebind?wait=60", params={"map": f"{old}={new}"}).json()
    path = service.http.get(f"/v1/builds/{made['id']}/path?wait=60")
    assert path.status_code == 200, path.text
    assert str(new) in service.http.get(f"/v1/builds/{made['id']}/blend").text
    for query in ("", "?map=a=b", "?map=/nowhere=/new"):
        assert service.http.post(f"/v1/builds/{build['id']}/rebind{query}").status_code == 400
    assert service.http.post("/v1/builds/nope/rebind?map=/a=/b").status_code == 404
