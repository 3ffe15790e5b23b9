"""Holds over HTTP: taken by look-ups before the answer, listed, renewed and released; what is collected answers 410."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from blendex.builds import keeping
from blendex.cli.client import open_client
from tests.service.conftest import Service
from tests.support.aging import age

TEXT = {"Accept": "text/plain"}


@pytest.fixture
def own(service: Service, shards: tuple[str, Path]) -> dict[str, Any]:
    """A mirror of the test's own, that nobody holds."""
    build = service.built(shards[0])
    assert build["state"] == "ready", build
    return build


def held(service: Service, key: str) -> list[tuple[str, str]]:
    found = service.http.get(f"/v1/mirrors/{key}/holds").json()["holds"]
    return [(item["kind"], item["holder"]) for item in found]


def test_a_look_up_takes_the_hold_of_a_job_before_it_answers(service: Service, own: dict[str, Any]) -> None:
    end = int(time.time()) + 3600
    for address in (f"/v1/builds/{own['id']}/path", f"/v1/mirrors/{own['mirror']}/path"):
        answer = service.http.get(address, params={"job": "4711", "end": end})
        assert (answer.status_code, answer.text) == (200, own["path"] + "\n")
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-lease-until"] == time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(end))
        assert held(service, own["mirror"]) == [("job", "4711")]
    tag = answer.headers["etag"]
    again = service.http.get(address, params={"holder": "chain:granary"}, headers={"If-None-Match": tag})
    assert (again.status_code, "x-lease-until" in again.headers) == (304, True)
    late = {"job": "4712", "end": "2030-01-01T00:00Z"}
    shown = service.http.get(f"/v1/builds/{own['id']}", params=late, headers=TEXT)
    assert shown.status_code == 400, shown.text  # longer than a job may hold
    wants = {"Accept": "application/json"}
    found = service.http.get(f"/v1/builds/{own['id']}/path", params={"job": "4712"}, headers=wants)
    assert found.json()["lease_until"] > end
    assert held(service, own["mirror"]) == [("job", "4711"), ("chain", "granary"), ("job", "4712")]
    plain = service.http.get(f"/v1/builds/{own['id']}/path")
    assert "x-lease-until" not in plain.headers


def test_who_expects_another_mirror_or_only_looks_holds_nothing(service: Service, own: dict[str, Any]) -> None:
    address = f"/v1/builds/{own['id']}"
    assert service.http.get(f"{address}/path", params={"job": "1", "expect": "0" * 64}).status_code == 409
    assert service.http.get(address, params={"job": "1"}).status_code == 400
    assert held(service, own["mirror"]) == []


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ({"job": "4711; rm"}, "no id of a job"), ({"job": ""}, "no id of a job"),
        ({"job": "1", "end": "soon"}, "no time"), ({"job": "1", "end": "1000"}, "in the past"),
        ({"job": "1", "end": "99999999999"}, "at most 14 days"), ({"end": "99"}, "end goes with job"),
        ({"holder": "ada"}, "is not chain:NAME"), ({"holder": "chain:"}, "no name"),
        ({"holder": "chain:x", "job": "1"}, "exclude each other"),
    ],
)  # fmt: skip
def test_what_is_no_hold_is_named(service: Service, ready: dict[str, Any], query: dict[str, str], told: str) -> None:
    before = held(service, ready["mirror"])
    answer = service.http.get(f"/v1/builds/{ready['id']}/path", params=query)
    assert answer.status_code == 400, answer.text
    assert told in answer.text
    assert answer.text.count("\n") == 1
    assert held(service, ready["mirror"]) == before


def test_pins_are_taken_renewed_and_released(service: Service, ready: dict[str, Any]) -> None:
    address = f"/v1/mirrors/{ready['mirror']}/holds"
    body = {"kind": "pin", "holder": "ada l/x", "reason": "<b>the paper</b>"}
    first = service.http.post(address, json=body).json()
    assert (first["kind"], first["until"]) == ("pin", None)
    second = service.http.post(address, json=body | {"until": str(int(time.time()) + 99_999)}).json()
    assert second["until"] is not None
    assert second["since"] == first["since"]
    assert set(held(service, ready["mirror"])) >= {("name", "sample"), ("pin", "ada l/x")}
    page = service.http.get(f"/mirrors/{ready['mirror']}").text
    assert "Who holds it" in page
    assert "&lt;b&gt;the paper&lt;/b&gt;" in page
    assert service.http.delete(f"{address}/pin/ada%20l%2Fx").status_code == 200
    assert held(service, ready["mirror"]).count(("pin", "ada l/x")) == 0
    listed = {"job": {"kind": "job", "holder": "9"}, "chain": {"kind": "chain", "holder": "c"}}
    for kind, more in listed.items():
        assert service.http.post(address, json=more).status_code == 200
        assert service.http.delete(f"{address}/{kind}/{more['holder']}").status_code == 200
        assert service.http.delete(f"{address}/{kind}/{more['holder']}").status_code == 404
    for bad in ({"kind": "name"}, {"kind": "pin"}, {"kind": "chain", "until": "1"}, {"kind": "job", "reason": "a\nb"}):
        assert service.http.post(address, json={"holder": "x"} | bad).status_code == 400, bad
    assert service.http.delete(f"{address}/name/sample").status_code == 400
    assert service.http.delete(f"{address}/pin/a%00b").status_code == 404
    assert service.http.post(f"/v1/mirrors/{'0' * 64}/holds", json=body).status_code == 404
    assert service.http.get(f"/v1/mirrors/{'0' * 64}/holds").status_code == 404


def test_what_was_collected_answers_410_and_keeps_its_receipt(
    service: Service, own: dict[str, Any], ready: dict[str, Any]
) -> None:
    assert service.http.get(f"/v1/builds/{own['id']}/path").status_code == 200
    for _ in range(2):  # nobody asks for long, twice: condemned, then collected
        age(service.site, mirror=own["mirror"])
        done = keeping.collected(service.site, dry=False)
    assert own["mirror"] in done["mirrors"]
    for address in (f"/v1/builds/{own['id']}/path", f"/v1/mirrors/{own['mirror']}/path"):
        for query in ({}, {"job": "1"}):
            answer = service.http.get(address, params=query)
            assert (answer.status_code, answer.headers["x-mirror-state"]) == (410, "collected")
            assert "POST /v1/builds" in answer.text
            assert answer.text.count("\n") == 1
    assert json.loads(service.http.get(f"/v1/mirrors/{own['mirror']}/receipt").text)["key"] == own["mirror"]
    assert service.http.get(f"/v1/builds/{own['id']}/blend").status_code == 409
    job = {"kind": "job", "holder": "1"}
    assert service.http.post(f"/v1/mirrors/{own['mirror']}/holds", json=job).status_code == 409
    assert service.http.get(f"/mirrors/{own['mirror']}").status_code == 200
    assert service.http.put("/v1/names/x", json={"build": own["id"]}).status_code == 409
    # A name holds: the sample is where it was.
    assert service.http.get(f"/v1/builds/{ready['id']}/path").status_code == 200


def test_the_command_line_asks_a_service(service: Service, ready: dict[str, Any]) -> None:
    client = open_client(None, service.url)
    held_by = client.hold(ready["mirror"], {"holder": "a/b c", "reason": "x", "until": str(int(time.time()) + 999)})
    assert held_by["kind"] == "pin"
    assert ("pin", "a/b c") in [(item["kind"], item["holder"]) for item in client.holds(ready["mirror"])["holds"]]
    left = client.release(ready["mirror"], "pin", "a/b c")["holds"]
    assert ("pin", "a/b c") not in [(item["kind"], item["holder"]) for item in left]
    client.close()  # type: ignore[attr-defined]
