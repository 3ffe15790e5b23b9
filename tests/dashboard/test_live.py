"""Pages that move: soon, by one poller, for many, and without piling up for whoever is slow."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, expect
from sqlalchemy import event

from blendex.catalog import builds, states
from service.dashboard.live import Renders
from service.watch import POLL_SECONDS
from tests.dashboard import synthetic
from tests.dashboard.conftest import opened
from tests.service.conftest import Service

EMPTY: dict[str, Any] = {"text": "", "nested": {}, "world": {}}
OPTIONS = {"compat": "", "allow": [], "on_bad": "fail", "packs": "auto", "sidecars": "unpacked"}


@pytest.fixture
def queued(idle: Service, request: pytest.FixtureRequest) -> Iterator[str]:
    """A build that waits, of the test's own; cancelled afterwards."""
    with idle.site.work.write() as session:
        build, _ = builds.create(
            session,
            owner="ada",
            identity=request.node.name,
            submission=EMPTY,
            file="/data/moving.yaml",
            options=OPTIONS,
        )
        build.sources = 100
        number = build.id
    yield number
    idle.http.post(f"/v1/builds/{number}/cancel")


def touch(service: Service, build: str, **values: Any) -> None:
    with service.site.work.write() as session:
        states.touch_build(session, build, **values)


def test_a_change_is_on_the_page_at_once(browser: Browser, idle: Service, queued: str) -> None:
    with opened(browser, idle.url) as context:
        page, listed = context.new_page(), context.new_page()
        listed.goto("/builds")
        page.goto(f"/builds/{queued}")
        expect(page.locator("#live")).to_contain_text("100 sources")
        # A change per second and a bit: the page keeps up with each, by itself.
        for number in (201, 302, 403):
            touch(idle, queued, sources=number)
            for one in (page.locator("#live .lead"), listed.locator(f"#b-{queued}")):
                expect(one).to_contain_text(str(number))
        idle.http.post(f"/v1/builds/{queued}/cancel")
        expect(page.locator("#live .lead .state")).to_contain_text("cancelled")
        expect(page.get_by_role("button", name="Retry")).to_be_visible()
        expect(listed.locator(f"#b-{queued}")).to_contain_text("cancelled")


def in_a_thread(work: Coroutine[Any, Any, Any]) -> Any:
    """What comes of it; the loop of this thread is the browser's."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


async def _read_until(answer: httpx.Response, wanted: str) -> tuple[str, str]:
    """The id and data of the first message that holds ``wanted``."""
    number, data = "", ""
    async for line in answer.aiter_lines():
        if line.startswith("id: "):
            number = line[4:]
        elif line.startswith("data: "):
            data += line[6:]
        elif not line:
            if wanted in data:
                return number, data
            number, data = "", ""
    raise AssertionError(wanted)


@contextmanager
def statements(service: Service) -> Iterator[list[str]]:
    """What is asked of the catalog meanwhile."""
    asked: list[str] = []

    def note(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        asked.append(statement)

    event.listen(service.site.work.engine, "before_cursor_execute", note)
    try:
        yield asked
    finally:
        event.remove(service.site.work.engine, "before_cursor_execute", note)


def polls(asked: list[str]) -> int:
    """How often the poller asked for versions."""
    return sum("builds.version" in text and "WHERE builds.id IN" in text for text in asked)


def test_two_hundred_pages_are_one_poller_and_one_rendering(idle: Service, queued: str) -> None:
    address = f"{idle.url}/builds/{queued}/live?shown=queued"
    limits = httpx.Limits(max_connections=250)

    async def run(count: int) -> int:
        renders: Renders = idle.app.state.renders
        async with httpx.AsyncClient(trust_env=False, timeout=30, limits=limits) as client:

            async def follow(wanted: str, ready: asyncio.Event) -> str:
                async with client.stream("GET", address) as answer:
                    assert answer.status_code == 200
                    counted.append(1)
                    if len(counted) == count:
                        ready.set()
                    return (await _read_until(answer, wanted))[1]

            counted: list[int] = []
            ready = asyncio.Event()
            wanted = f"{5_000 + count} sources".replace("5200", "5,200").replace("5001", "5,001")
            tasks = [asyncio.create_task(follow(wanted, ready)) for _ in range(count)]
            await ready.wait()
            await asyncio.sleep(0.6)
            with statements(idle) as asked:
                before, began = renders.made, time.monotonic()
                await asyncio.sleep(1.0)
                await asyncio.to_thread(touch, idle, queued, sources=5_000 + count)
                texts = await asyncio.gather(*tasks)
            assert len(set(texts)) == 1
            # A poll is followed by a pause, whoever listens.
            assert 0 < polls(asked) <= (time.monotonic() - began) / POLL_SECONDS + 2
            return renders.made - before

    # Two hundred pages ask as often as one does, and what moved was rendered once for all of them.
    assert (in_a_thread(run(1)), in_a_thread(run(200))) == (1, 1)


def test_who_comes_back_gets_only_what_is_newer(idle: Service, queued: str) -> None:
    address = f"{idle.url}/builds/{queued}/live?shown=queued"

    async def run() -> None:
        async with httpx.AsyncClient(trust_env=False, timeout=20) as client:
            async with client.stream("GET", address) as answer:
                seen, _ = await _read_until(answer, "sources")
            touch(idle, queued, sources=777)
            async with client.stream("GET", address, headers={"Last-Event-ID": seen}) as answer:
                newer, text = await _read_until(answer, "sources")
            assert int(newer) > int(seen)
            assert "777" in text
            # Nothing is newer than this: nothing is sent but the sign of life.
            async with client.stream("GET", address, headers={"Last-Event-ID": newer}) as answer:
                with pytest.raises((TimeoutError, asyncio.TimeoutError)):
                    async with asyncio.timeout(1.0):
                        await _read_until(answer, "sources")
            idle.http.post(f"/v1/builds/{queued}/cancel")
            async with client.stream("GET", address, headers={"Last-Event-ID": newer}) as answer:
                last, text = await _read_until(answer, "cancelled")
            gone = await client.get(address, headers={"Last-Event-ID": last})
            assert gone.status_code == 204

    in_a_thread(run())


def test_who_takes_nothing_is_dropped(idle: Service, queued: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that never reads: its stream ends, and what it has not read is not kept for it."""
    from service.dashboard import live

    monkeypatch.setattr(live, "SEND_SECONDS", 0.5)
    monkeypatch.setattr(live, "LEAST_SECONDS", 0.0)
    # A fragment of some 60 kB fills the buffers of both sides after a few dozen.
    monkeypatch.setattr("service.dashboard.build.render", lambda *_, **__: "x" * 400_000)
    host, port = idle.url.removeprefix("http://").split(":")
    address = f"/builds/{queued}/live?shown=slow"
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        slow.connect((host, int(port)))
        slow.sendall(f"GET {address} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        _wait(lambda: _open(idle) >= 1)
        deadline = time.monotonic() + 40
        while _open(idle) > 0:
            assert time.monotonic() < deadline
            touch(idle, queued, opened=1)
            time.sleep(0.05)


def _open(service: Service) -> int:
    found = re.search(r"([\d,]+) pages open", service.http.get("/health").text)
    assert found is not None
    return int(found[1])


def _wait(condition: Any, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_page_of_a_large_build_moves_too(browser: Browser, idle: Service, big: str) -> None:
    with opened(browser, idle.url) as context:
        page = context.new_page()
        page.goto(f"/builds/{big}")
        touch(idle, big, reused=61_441)
        expect(page.locator("#live")).to_contain_text("61,441")
        touch(idle, big, reused=61_440)
        assert synthetic.EACH * page.locator(".strip path").count() > 0


def test_who_listens_is_told_after_a_failure_too(idle: Service, queued: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that listen wait for one thread: what it does not foresee does not end it."""
    watch = idle.app.state.house.watch
    read, failed = watch._read, []

    def fails_once(seen: dict[str, int]) -> Any:
        if not failed:
            failed.append(seen)
            raise ValueError("nobody foresaw this")
        return read(seen)

    monkeypatch.setattr(watch, "_read", fails_once)
    monkeypatch.setattr("service.watch.AWAY_SECONDS", 0.1)

    async def run() -> None:
        async with (
            httpx.AsyncClient(trust_env=False, timeout=20) as client,
            client.stream("GET", f"{idle.url}/builds/{queued}/live?shown=queued") as answer,
        ):
            await _read_until(answer, "sources")

    in_a_thread(run())
    assert len(failed) == 1
