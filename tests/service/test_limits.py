"""What comes in is bounded: heads, bodies, their time, depth, ranges. docs/security.md lists all that is."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from starlette.types import Message

from blendex.errors import BlendexError
from service import bodies
from service.limits import BodyLimit
from service.watch import MOST_STREAMS
from tests.fuzz import api
from tests.service.conftest import Service
from tests.support import corpus


def raw(service: Service, data: bytes) -> bytes:
    """What a socket gets that sends just this."""
    host, port = service.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(data)
        got = b""
        while piece := connection.recv(65_536):
            got += piece
        return got


@pytest.mark.parametrize(
    "head",
    [
        b"GET /v1/builds?text=" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-A: " + b"a" * 70_000 + b"\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + b"X-A: b\r\n" * 10_000 + b"\r\n",
    ],
    ids=["address", "header", "headers"],
)
def test_long_heads_are_refused(idle: Service, head: bytes) -> None:
    assert raw(idle, head).startswith(b"HTTP/1.1 4")


@pytest.mark.parametrize(
    "body", [b"[" * 60_000, b'{"a":' * 10_000, b"[" + b"1," * 30_000 + b"1]", b'{"build": "' + b"a" * 9_000]
)
def test_deep_and_wide_bodies_are_bad_requests(idle: Service, body: bytes) -> None:
    answer = idle.http.put("/v1/names/a", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


@pytest.mark.parametrize(
    "ranges", ["bytes=" + ",".join(f"{n}-{n}" for n in range(2_000)), "bytes=0-" + "9" * 4_000, "bytes=9-1", "x=1-2"]
)
def test_ranges_cost_nothing(service: Service, ready: dict[str, Any], ranges: str) -> None:
    answer = service.http.get(f"/v1/mirrors/{ready['mirror']}/receipt", headers={"Range": ranges})
    assert answer.status_code in (200, 206, 400, 416)
    assert len(answer.content) < 2_000_000


def run(pieces: list[tuple[float, Message]], **values: float) -> list[Message]:
    """What a client sees that sends these after these pauses, of an app that reads all and says yes."""

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"yes"})

    sent: list[Message] = []

    async def main() -> None:
        async def receive() -> Message:
            pause, message = pieces.pop(0)
            await asyncio.sleep(pause)
            return message

        async def send(message: Message) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/v1/builds", "headers": [], "query_string": b""}
        await BodyLimit(app, 100, **values)(scope, receive, send)

    # In a thread: tests of pages leave a loop running in this one.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, main()).result()
    return sent


def piece(size: int, more: bool) -> Message:
    return {"type": "http.request", "body": b"a" * size, "more_body": more}


def test_a_body_that_comes_in_time_is_taken() -> None:
    assert run([(0, piece(50, True)), (0, piece(50, False))])[0]["status"] == 200


@pytest.mark.parametrize("values", [{"idle_seconds": 0.01}, {"body_seconds": 0.01}])
def test_a_body_that_does_not_come_is_answered(values: dict[str, float]) -> None:
    sent = run([(0, piece(50, True)), (600, piece(1, False))], **values)
    assert sent[0]["status"] == 408
    assert b"did not come in time" in sent[1]["body"]


def test_what_attackers_send_is_refused_with_its_reason(service: Service) -> None:
    for name, (code, request) in api.attacks(service.data).items():
        api.attack(service, name, code, request, times=1)


def test_links_never_say_what_a_request_said(service: Service, ready: dict[str, Any]) -> None:
    page = service.http.get(f"/builds/{ready['id']}", headers={"Host": "evil.example"})
    assert "evil.example" not in page.text
    assert f"{service.url}/v1/builds/{ready['id']}/path" in page.text


def test_streams_are_counted(service: Service, ready: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service.app.state.house.watch, "streams", MOST_STREAMS)
    answer = service.http.get(f"/v1/builds/{ready['id']}/events")
    assert (answer.status_code, answer.json()["code"]) == (429, "busy")


def test_members_of_a_tar_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MOST_MEMBERS", 2)
    tar = corpus.tar_of([(f"{number}.yaml", b"[]") for number in range(3)])
    with pytest.raises(BlendexError, match="more than 2 members"):
        bodies.read_tar(tar, 100, 100_000)
