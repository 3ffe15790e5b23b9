"""What the pages must not do: run what users wrote, be used by other pages, show what is secret, or grow."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser

from blendex.catalog import blobs, builds, events
from tests.dashboard import synthetic
from tests.dashboard.conftest import opened
from tests.service.conftest import Service
from tests.support import corpus

PAGES = ("/builds", "/builds/new", "/mirrors", "/sources", "/workers", "/lint", "/health")
PIECES = (
    "<script>window.broken=1</script>", '"><img src=x onerror="window.broken=1">', "' onmouseover='window.broken=1",
    "{{ 7*7 }}", "{% raw %}", "</textarea><svg onload=window.broken=1>", "javascript:window.broken=1", "&lt;b&gt;",
    "\u202egnp.tar", "\x1b[31m", "\x00", "<!--", "]]>", "\u2028", "<style>*{display:none}</style>", "%0d%0aX: y", "🦜",
)  # fmt: skip


def sites(service: Service, ready: dict[str, Any], failed: dict[str, Any]) -> list[str]:
    return [*PAGES, f"/builds/{ready['id']}", f"/builds/{failed['id']}", f"/mirrors/{ready['mirror']}"]


def test_headers_and_no_inline_code(service: Service, ready: dict[str, Any], failed: dict[str, Any]) -> None:
    for address in (*sites(service, ready, failed), f"/builds/{'0' * 26}"):
        answer = service.http.get(address)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "unsafe" not in policy
        assert "script-src" not in policy
        assert answer.headers["cache-control"] == "no-store"
        assert not re.search(r"<[^>]+\s(style|on[a-z]+)\s*=", answer.text), address
        assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", answer.text))
        assert "<style" not in answer.text
        for file in re.findall(r'(?:src|href)="(/static/[^"]+)"', answer.text):
            kept = service.http.get(file)
            assert kept.status_code == 200
            assert "immutable" in kept.headers["cache-control"]


def test_a_form_needs_the_token_of_its_cookie(idle: Service) -> None:
    actions = {
        "/builds/new": {"text": "- type: nemo"},
        f"/builds/{'0' * 26}/cancel": {},
        f"/builds/{'0' * 26}/retry": {},
        f"/builds/{'0' * 26}/accept": {"why": "because"},
        f"/mirrors/{'0' * 64}/verify": {},
        "/lint": {"text": "a: 1"},
        "/lint/report": {"text": "a: 1"},
        "/theme": {"theme": "dark"},
    }
    before = len(idle.http.get("/v1/builds").json()["builds"])
    with httpx.Client(base_url=idle.url, trust_env=False) as person:
        page = person.get("/builds/new")
        token = person.cookies["blendex_csrf"]
        assert f'name="csrf" value="{token}"' in page.text
        cookie = page.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        for address, fields in actions.items():
            for wrong in ({}, {"csrf": ""}, {"csrf": "0" * 32}, {"csrf": token[:-1]}, {"csrf": "é" * 32}):
                answer = person.post(address, data=fields | wrong)
                assert answer.status_code == 400, (address, wrong)
                assert "not made for this browser" in answer.text
            # Another site's page may know no cookie, and sends its origin with it.
            evil = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
            assert person.post(address, data=fields | {"csrf": token}, headers=evil).status_code == 403
        assert (
            person.post("/theme", data={"csrf": token, "theme": "dark", "back": "//evil.example"}).headers["location"]
            == "/builds"
        )
    assert httpx.post(f"{idle.url}/theme", data={"csrf": "0" * 32}, trust_env=False).status_code == 400
    assert len(idle.http.get("/v1/builds").json()["builds"]) == before


def hostile(rng: random.Random) -> str:
    return "".join(rng.choice(PIECES) for _ in range(rng.randint(1, 4)))


def test_hostile_names_are_text(browser: Browser, idle: Service) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    problems = [
        {"code": "source_refused", "message": hostile(rng), "path": f"/data/{hostile(rng)}", "scope": "source",
         "file": hostile(rng), "line": 1, "byte": 7, "next_step": hostile(rng), "blend_file": "F", "blend_line": 2,
         "pointer": [0]}
        for _ in range(12)
    ]  # fmt: skip
    submission = {"text": "\n".join(hostile(rng).replace("\x00", "") for _ in range(20)), "nested": {}, "world": {}}
    options = {"compat": "", "allow": [], "on_bad": "fail", "packs": "auto", "sidecars": "unpacked"}
    file = f"/data/{hostile(rng)}".replace("\x00", "")
    with idle.site.work.write() as session:
        build, _ = builds.create(
            session, owner=hostile(rng).replace("\x00", "")[:128], identity=str(seed), submission=submission, file=file,
            options=options,
        )  # fmt: skip
        build.state, build.sources, build.names = "failed", 12, [hostile(rng)]
        build.error = problems[0]
        build.problems = blobs.put_json(session, problems)
        build.excluded = [{"problem": problems[1], "by": hostile(rng), "why": hostile(rng), "pointer": [0]}]
        name = rng.choice(PIECES[:6])
        described = {"position": 0, "name": name, "type": hostile(rng).replace("\x00", "")[:100], "weight": 1.0,
                     "list_hash": blobs.put(session, b""), "sources": 0}  # fmt: skip
        builds.set_datasets(session, build.id, [described])
        events.note(session, build.id, "accepted", who=hostile(rng), why=hostile(rng), file=hostile(rng))
        number = build.id
    query = {"text": hostile(rng), "name": hostile(rng), "owner": hostile(rng)}
    addresses = [
        f"/builds/{number}", f"/builds/{number}/posted", f"/builds/{number}/units", "/builds",
        str(httpx.URL("/builds", params=query)), str(httpx.URL("/mirrors", params={"text": hostile(rng)})),
        str(httpx.URL("/sources", params={"path": f"/{hostile(rng)}"})),
        str(httpx.URL("/builds", params={"state": hostile(rng)})),
    ]  # fmt: skip
    with opened(browser, idle.url) as context:
        page = context.new_page()
        for address in addresses:
            page.goto(address)
            assert page.evaluate("window.broken") is None, (seed, address)
            # What people wrote made no element, and no attribute that acts.
            assert page.locator("#page script, #page img, #page style, #page [onerror], #page [onload]").count() == 0
            assert page.locator("#page h1").is_visible()
        page.goto(f"/builds/{number}")
        shown = page.locator(".problems > li").count()
        assert shown >= 12
        text = page.locator("#page").inner_text()
        assert "\u202e" not in text
        assert "49" not in page.locator(".problems").first.inner_text().replace("7*7", "")
    with idle.site.work.write() as session:
        row = builds.get(session, number)
        assert row is not None
        row.state = "cancelled"


def test_no_secret_is_on_a_page(service: Service, ready: dict[str, Any], failed: dict[str, Any]) -> None:
    """Neither the address of the catalog nor the text of any record."""
    secret = "canary-of-a-record"
    folder = service.data / "secretive"
    blend = corpus.corpus(folder)
    corpus.put(folder / "a/manifest_0.json", f'{{"text": "{secret}"\n{{broken {secret}\n'.encode())
    build = service.built(blend)
    for address in (*sites(service, ready, failed), f"/builds/{build['id']}", f"/builds/{build['id']}/findings"):
        text = service.http.get(address).text
        assert secret not in text, address
        assert "sqlite:///" not in text
        assert "X-Amz-Signature" not in text


def test_the_largest_build_is_a_light_page(browser: Browser, idle: Service, big: str) -> None:
    """400,000 sources in 20,000 units: with all that the page loads, under 300 kB, and never a row for each."""
    weights: dict[str, int] = {}
    with opened(browser, idle.url) as context:
        page = context.new_page()
        page.on("response", lambda got: weights.__setitem__(got.url, 0) if "/live" in got.url else None)

        def weigh(done: Any) -> None:
            sizes = done.sizes()
            weights[done.url] = sizes["responseBodySize"] + sizes["responseHeadersSize"]

        page.on("requestfinished", weigh)
        page.goto(f"/builds/{big}")
        page.wait_for_selector("[data-drawn]")
        assert page.locator("tr").count() < 400
        assert page.locator(".strip path").count() <= 4
    html = idle.http.get(f"/builds/{big}")
    assert len(html.content) < 120_000
    assert sum(weights.values()) < 300_000, weights
    assert len(weights) >= 6


def test_the_pages_of_a_large_build_are_bounded(idle: Service, big: str) -> None:
    first = idle.http.get(f"/builds/{big}/units").text
    assert first.count("<tr>") == 101
    following = re.findall(r"/units\?after=(\d+)", first)[-1]
    second = idle.http.get(f"/builds/{big}/units?after={following}").text
    assert re.findall(r'<th scope="row">(\d+)</th>', second)[0] == str(int(following) + 1)
    died = idle.http.get(f"/builds/{big}/units?state=failed").text
    assert died.count("<tr>") == 1 + 12
    plot = idle.http.get(f"/builds/{big}/plot.json").json()
    assert 100 < len(plot["time"]) <= 240
    assert synthetic.SOURCES == 400_000


def test_vendored_files_are_what_npm_has() -> None:
    """As VENDOR.md tells: their digests, and a licence beside each."""
    for folder in (Path("service/static/htmx"), Path("service/static/uplot"), Path("tests/dashboard/axe")):
        import hashlib

        told = dict(re.findall(r"\| `([^`]+)` \| `([0-9a-f]{64})` \|", (folder / "VENDOR.md").read_text()))
        there = {item.name for item in folder.iterdir()} - {"VENDOR.md"}
        assert there == set(told)
        assert "LICENSE" in told
        for name, digest in told.items():
            assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, name


@pytest.mark.parametrize("address", PAGES)
def test_parameters_that_mean_nothing_are_refused(idle: Service, address: str) -> None:
    answer = idle.http.get(f"{address}?wiat=1")
    assert answer.status_code == 400
    assert answer.headers["content-type"].startswith("text/html")
