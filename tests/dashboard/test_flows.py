"""What people do with the pages: by mouse, by keyboard, and without any script."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from blendex.catalog import states, units
from blendex.catalog.models import Unit
from blendex.formats.kinds import recipe
from tests.dashboard.conftest import opened
from tests.dashboard.test_look import CONFIG
from tests.service.conftest import Service
from tests.support import corpus

# Each page in a browser: a minute and more of both processors.
pytestmark = pytest.mark.slow

SECONDS = 30_000


def folder_of(service: Service, request: pytest.FixtureRequest) -> Path:
    """A folder of the test's own, where sources may be read."""
    return service.data / re.sub(r"\W", "-", request.node.name)


def start(page: Page, blend: str, **fields: str) -> str:
    """Start a build by the form; its id."""
    page.goto("/builds")
    page.get_by_role("link", name="Start a build").first.click()
    page.get_by_label("The blend").fill(blend)
    for label, text in fields.items():
        page.get_by_label(label, exact=True).fill(text)
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page).to_have_url(re.compile(r"/builds/[0-9a-z]{26}$"))
    return page.url.rpartition("/")[2]


def test_start_and_watch_to_the_end(tab: Page, service: Service, request: pytest.FixtureRequest) -> None:
    blend = corpus.corpus(folder_of(service, request), shards=40)
    build = start(tab, blend, Name="watched", Labels="project=granary run=7")
    # Nothing is reloaded by hand: what moves comes by itself.
    expect(tab.locator("#live .lead .state")).to_contain_text("ready", timeout=SECONDS)
    expect(tab.get_by_role("heading", name="Use it")).to_be_visible()
    expect(tab.locator(".timeline")).to_contain_text("publishing")
    expect(tab.locator("#page h1")).to_contain_text("blend.yaml")
    path = service.http.get(f"/v1/builds/{build}/path").text.strip()
    expect(tab.locator("#page")).to_contain_text(path)
    expect(tab.get_by_role("button", name="Copy").first).to_be_visible()
    row = tab.get_by_role("group", name="Datasets").get_by_role("row").nth(1)
    expect(row).to_contain_text("80")
    expect(row).to_contain_text("400")
    # What happened came with it, and its labels lead to the builds that have them.
    told = tab.get_by_role("group", name="Log").locator("tbody tr")
    expect(told.first).to_contain_text("published")
    expect(told.last).to_contain_text("asked for by")
    tab.get_by_role("link", name="run=7").click()
    assert "label=run%3D7" in tab.url
    expect(tab.locator("tbody tr")).to_have_count(1)
    expect(tab.locator(f"#b-{build}")).to_contain_text("project=granary")


def broken(folder: Path) -> tuple[str, dict[Path, bytes]]:
    """A blend with two bad shards, and what mends each."""
    blend = corpus.corpus(folder)
    whole = {shard: shard.read_bytes() for shard in (folder / "a/audio_0.tar", folder / "a/audio_2.tar")}
    for shard, data in whole.items():
        corpus.put(shard, data[:1_500])
    corpus.wait_until_calm()
    return blend, whole


def test_retry_one_source_after_mending_it_then_leave_the_rest_out(
    tab: Page, service: Service, request: pytest.FixtureRequest
) -> None:
    blend, whole = broken(folder_of(service, request))
    shard = list(whole)[1]
    build = start(tab, blend)
    problems = tab.locator(".problems > li")
    expect(problems).to_have_count(2, timeout=SECONDS)
    expect(problems.first).to_contain_text("tar_truncated")
    corpus.put(shard, whole[shard])
    tab.get_by_role("button", name=f"Retry this one: {shard}").click()
    expect(problems).to_have_count(1, timeout=SECONDS)
    expect(tab.get_by_text("was read again")).to_be_visible()
    # Of the two that had failed one was read.
    assert service.http.get(f"/v1/builds/{build}").json()["state"] == "failed"
    tab.get_by_role("button", name="Exclude and publish").click()
    assert tab.evaluate("document.activeElement.id") == "why"  # the browser itself asks for a reason
    tab.get_by_label("Reason").fill("shard 0 is lost <b>for good</b>")
    tab.get_by_label("Your name").fill("ada")
    tab.get_by_role("button", name="Exclude and publish").click()
    # It was the only entry: a mirror without any is refused, and says so.
    expect(tab.locator("#page")).to_contain_text("empty_build", timeout=SECONDS)


def test_retry_after_mending(tab: Page, service: Service, request: pytest.FixtureRequest) -> None:
    blend, whole = broken(folder_of(service, request))
    build = start(tab, blend)
    expect(tab.locator(".problems > li")).to_have_count(2, timeout=SECONDS)
    for shard, data in whole.items():
        corpus.put(shard, data)
    tab.get_by_role("button", name="Retry what failed").click()
    expect(tab.locator("#live .lead .state")).to_contain_text("ready", timeout=SECONDS)
    found = service.http.get(f"/v1/builds/{build}").json()
    assert (found["state"], found["reused"]) == ("ready", 4)


def test_exclude_and_publish(tab: Page, service: Service, request: pytest.FixtureRequest) -> None:
    folder = folder_of(service, request)
    blend, _ = broken(folder)
    build = start(tab, blend + corpus.corpus(folder, name="good"))
    expect(tab.locator(".problems > li")).to_have_count(2, timeout=SECONDS)
    tab.get_by_label("Reason").fill("two shards are lost <i>for good</i>")
    tab.get_by_label("Your name").fill("ada")
    tab.get_by_role("button", name="Exclude and publish").click()
    expect(tab.get_by_role("heading", name="Left out")).to_be_visible(timeout=SECONDS)
    expect(tab.locator("#page")).to_contain_text("by ada: two shards are lost <i>for good</i>")
    excluded = service.http.get(f"/v1/builds/{build}").json()["excluded"]
    assert [(item["by"], item["why"]) for item in excluded] == [("ada", "two shards are lost <i>for good</i>")]


def endless(service: Service, folder: Path) -> str:
    """A blend that cannot be built before it is cancelled: a worker elsewhere has one of its sources in hand."""
    blend = corpus.corpus(folder, name="endless")
    address = f"{folder}/endless/audio_1.tar"
    payload = {"compat": "", "sources": [["nemo_tar", address, address, False, ""]]}
    with service.site.work.write() as session:
        unit = session.get_one(Unit, units.create(session, "index", "0" * 26, payload, memory=1))
        unit.state, unit.worker, unit.leased_at = "leased", "cpu-elsewhere.1.aa", states.now(session)
        unit.lease_until = states.now(session) + 3_600
        assert units.announce(session, [(address, recipe("nemo_tar", ""), unit.id)]) == set()
    return blend


def test_cancel(tab: Page, service: Service, request: pytest.FixtureRequest) -> None:
    build = start(tab, endless(service, folder_of(service, request)))
    expect(tab.locator("#live")).to_contain_text("cpu-elsewhere.1.aa")  # what it waits for is told
    tab.get_by_role("button", name="Cancel the build").click()
    expect(tab.locator("#live .lead .state")).to_contain_text("cancelled", timeout=SECONDS)
    assert service.http.get(f"/v1/builds/{build}").json()["state"] == "cancelled"
    tab.goto("/builds?state=cancelled")
    expect(tab.locator(f"#b-{build}")).to_contain_text("cancelled")


def test_what_is_refused_comes_back_filled_in(tab: Page) -> None:
    tab.goto("/builds/new")
    tab.get_by_label("The blend").fill("- type: nemo\n  manifest_filepath: [\n")
    tab.get_by_label("Base folder").fill("/data")
    with tab.expect_response("**/builds/new") as answer:
        tab.get_by_role("button", name="Start", exact=True).click()
    assert answer.value.status == 422
    expect(tab.get_by_role("alert")).to_contain_text("blend_syntax")
    expect(tab.get_by_label("The blend")).to_have_value("- type: nemo\n  manifest_filepath: [\n")
    expect(tab.get_by_label("Base folder")).to_have_value("/data")


def test_search_a_mirror(tab: Page, service: Service, ready: dict[str, Any]) -> None:
    key, source = ready["mirror"], f"{service.data}/sample/manifest.jsonl"
    for text in ("sample", key[:9], ready["path"], source):
        tab.goto("/mirrors")
        tab.get_by_role("searchbox").or_(tab.locator("#text")).fill(text)
        tab.get_by_role("button", name="Search").click()
        expect(tab.get_by_role("link", name=key[:16])).to_be_visible()
    tab.get_by_role("link", name=key[:16]).click()
    expect(tab.get_by_role("heading", name="Receipt")).to_be_visible()
    expect(tab.locator("#page")).to_contain_text(key)
    # It is read whole when somebody asks, and what came of it is told where it is found.
    tab.get_by_label("and whether its sources are unchanged").check()
    tab.get_by_role("button", name="Verify it").click()
    expect(tab.locator("#h-verified")).to_be_visible()
    tab.goto(f"/mirrors?text={key}")
    expect(tab.locator(f"#m-{key[:16]}")).to_contain_text("whole")
    tab.goto("/mirrors?text=nothing-like-that")
    expect(tab.locator("#page")).to_contain_text("No mirror is like that.")


def test_look_up_a_source(tab: Page, service: Service, ready: dict[str, Any], failed: dict[str, Any]) -> None:
    tab.goto("/sources")
    tab.locator("#path").fill(f"{service.data}/sample/nemo_tarred/")
    tab.get_by_role("button", name="Look it up").click()
    tab.get_by_role("link", name="audio_2.tar").click()
    expect(tab.get_by_role("heading", name="Who uses it")).to_be_visible()
    used = tab.get_by_role("group", name="Who uses it")
    expect(used).to_contain_text("sample")
    expect(used).to_contain_text(ready["id"])
    held = tab.get_by_role("group", name="What it held")
    expect(held.get_by_role("link", name=ready["mirror"][:12])).to_be_visible()
    tab.goto(f"/sources?path={failed['problems'][0]['path']}")
    expect(tab.locator("#page")).to_contain_text(failed["problems"][0]["code"])


def test_lint_and_download(tab: Page, service: Service, tmp_path: Path) -> None:
    tab.goto("/lint")
    tab.get_by_label("The config").fill(CONFIG)
    tab.get_by_role("button", name="Lint", exact=True).click()
    expect(tab.get_by_text("not launch-ready")).to_be_visible()
    found = service.http.post("/v1/lint", files={"config": ("config.yaml", CONFIG.encode())}).json()["reports"][0]
    for item in found["findings"]:
        expect(tab.locator("li.noted", has_text=item["rule"]).first).to_be_visible()
    expect(tab.locator(".diff-add", has_text="indexed: true").first).to_be_visible()
    with tab.expect_download() as download:
        tab.get_by_role("button", name="Download the report").click()
    download.value.save_as(tmp_path / "report.zip")
    with zipfile.ZipFile(tmp_path / "report.zip") as archive:
        assert {"migration-report.md", "config-resumable.yaml", "pre-flight-checklist.md"} <= set(archive.namelist())
        assert "indexed: true" in archive.read("config-resumable.yaml").decode()


def test_lint_of_several_files(tab: Page, tmp_path: Path) -> None:
    (tmp_path / "train.yaml").write_text(CONFIG.replace("input_cfg:", "input_cfg: nested.yaml\n    unused:"))
    (tmp_path / "nested.yaml").write_text("- type: nemo_tarred\n  manifest_filepath: /data/x.json\n")
    tab.goto("/lint")
    tab.locator("#f-files").set_input_files([tmp_path / "train.yaml", tmp_path / "nested.yaml"])
    tab.get_by_role("button", name="Lint", exact=True).click()
    expect(tab.locator("#h-verdict")).to_contain_text("train.yaml")
    expect(tab.locator("#page")).to_contain_text("nested.yaml")


def test_keyboard_only(browser: Browser, service: Service, request: pytest.FixtureRequest) -> None:
    """From the list to a build that is ready, and to its mirror, without a mouse; focus is always to be seen."""
    blend = corpus.corpus(folder_of(service, request))

    def until(page: Page, script: str, most: int = 60) -> None:
        for _ in range(most):
            page.keyboard.press("Tab")
            if page.evaluate(f"(({script}))(document.activeElement)"):
                ring = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
                assert ring != "none"
                return
        raise AssertionError(script)

    with opened(browser, service.url, viewport={"width": 1280, "height": 900}) as context:
        page = context.new_page()
        page.goto("/builds")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.keyboard.press("Enter")
        until(page, "item => item.textContent === 'Start a build'")
        page.keyboard.press("Enter")
        page.wait_for_url("**/builds/new")
        until(page, "item => item.id === 'f-text'")
        page.keyboard.insert_text(blend)
        until(page, "item => item.id === 'start'")
        page.keyboard.press("Enter")
        expect(page.locator("#live .lead .state")).to_contain_text("ready", timeout=SECONDS)
        until(page, "item => item.textContent === 'The mirror'")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Receipt")).to_be_visible()
        # The table behind the strip and what scrolls are reached, too.
        page.go_back()
        until(page, "item => item.textContent === 'All units as a table'")
        page.keyboard.press("Enter")
        expect(page.get_by_role("table")).to_be_visible()


def test_without_scripts_every_page_reads_and_acts(
    browser: Browser, service: Service, ready: dict[str, Any], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    blend, _ = broken(folder_of(service, request))

    def press(name: str) -> None:
        # A click does not wait for where it leads, and leaving on the way there is an error.
        with page.expect_navigation():
            page.get_by_role("button", name=name, exact=name in ("Lint", "Set")).first.click()

    def settled(page: Page, state: str) -> None:
        build = page.url.rpartition("/")[2]
        service.http.get(f"/v1/builds/{build}/path?wait=30")
        page.reload()
        expect(page.locator("#live .lead .state")).to_contain_text(state)

    with opened(browser, service.url, java_script_enabled=False, accept_downloads=True) as context:
        page = context.new_page()
        start(page, blend)
        settled(page, "failed")
        press("Retry this one")
        settled(page, "failed")
        press("Retry what failed")
        settled(page, "failed")
        page.get_by_label("Reason").fill("gone")
        press("Exclude and publish")
        settled(page, "failed")  # nothing is left
        start(page, endless(service, folder_of(service, request)))
        press("Cancel the build")
        expect(page.locator("#live .lead .state")).to_contain_text("cancelled")
        page.get_by_label("Theme").select_option("dark")
        press("Set")
        assert page.locator("html").get_attribute("data-theme") == "dark"
        page.goto("/lint")
        page.get_by_label("The config").fill(CONFIG)
        press("Lint")
        expect(page.get_by_text("not launch-ready")).to_be_visible()
        with page.expect_download() as download:
            page.get_by_role("button", name="Download the report").click()
        assert zipfile.is_zipfile(download.value.path())
        for address in (
            "/builds", f"/builds/{ready['id']}", "/mirrors", f"/mirrors/{ready['mirror']}", "/sources", "/health",
            "/workers",
        ):  # fmt: skip
            page.goto(address)
            expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.locator("noscript").first).to_be_attached()


def test_filters_stand_in_the_address(
    tab: Page, service: Service, ready: dict[str, Any], failed: dict[str, Any]
) -> None:
    tab.goto("/builds")
    tab.get_by_role("link", name=re.compile("^Failed")).click()
    expect(tab.locator(f"#b-{failed['id']}")).to_be_visible()
    expect(tab.locator(f"#b-{ready['id']}")).to_have_count(0)
    tab.goto("/builds")
    tab.locator("#name").fill("sample")
    tab.get_by_role("button", name="Filter").click()
    assert "name=sample" in tab.url
    expect(tab.locator(f"#b-{ready['id']}")).to_be_visible()
    expect(tab.locator("tbody tr")).to_have_count(1)
    tab.goto(f"/builds?text={ready['id'][:20]}")
    expect(tab.locator(f"#b-{ready['id']}")).to_be_visible()
    tab.goto("/builds?owner=nobody")
    expect(tab.locator("#page")).to_contain_text("No build is like that.")
    found = service.http.get("/v1/builds", params={"name": "sample", "owner": "local"}).json()["builds"]
    assert [item["id"] for item in found] == [ready["id"]]
    assert json.dumps(found)


def test_a_theme_is_chosen_and_kept(tab: Page) -> None:
    tab.goto("/workers")
    for theme, scheme in (("dark", "dark"), ("light", "light")):
        tab.get_by_label("Theme").select_option(theme)
        expect(tab.locator(f"html[data-theme={theme}]")).to_be_attached()
        assert tab.evaluate("getComputedStyle(document.documentElement).colorScheme") == scheme
        assert tab.url.endswith("/workers")
        tab.goto("/mirrors")
        expect(tab.locator(f"html[data-theme={theme}]")).to_be_attached()
        tab.goto("/workers")


def test_files_are_dropped(tab: Page) -> None:
    tab.goto("/lint")
    tab.locator("#f-text").evaluate(
        """(place, text) => {
          const data = new DataTransfer();
          data.items.add(new File([text], "dropped.yaml", {type: "application/yaml"}));
          place.dispatchEvent(new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true}));
        }""",
        CONFIG,
    )
    tab.get_by_role("button", name="Lint", exact=True).click()
    expect(tab.locator("#h-verdict")).to_contain_text("dropped.yaml")
