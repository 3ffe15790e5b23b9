"""Every page on both databases, without a browser: what it says, and that it asks no more than it should."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from blendex.builds.run import run_build
from blendex.builds.site import Site
from blendex.catalog import deaths, states, verifications, workers
from blendex.catalog.models import Unit
from service.dashboard import drawing, operate, words
from tests.dashboard import synthetic
from tests.service.conftest import listening
from tests.support import corpus
from tests.support.inline import InlineRunner


@pytest.fixture
def site(open_site: Callable[..., Site]) -> Site:
    made: Site = open_site(pack_sources=4)
    return made


@pytest.fixture
def client(site: Site, tmp_path: Path) -> Iterator[httpx.Client]:
    with listening(site, tmp_path, lambda: None) as service:
        yield service.http


def built(site: Site, blend: str, folder: Path, **values: object) -> dict[str, Any]:
    return run_build(site, corpus.submission(blend, folder, **values), runner=InlineRunner())


def test_every_page_says_what_is_there(site: Site, client: httpx.Client, tmp_path: Path) -> None:
    ready = built(site, corpus.corpus(tmp_path), tmp_path, name="one", labels={"project": "granary", "git": "3f2a9c1"})
    other = built(site, corpus.corpus(tmp_path, name="b"), tmp_path, name="two")
    corpus.put(tmp_path / "a/audio_1.tar", b"no tar" * 300)
    failed = built(site, corpus.corpus(tmp_path, name="c") + _entry(tmp_path, "a"), tmp_path)
    assert (ready["state"], other["state"], failed["state"]) == ("ready", "ready", "failed")
    big = synthetic.big(site, sources=20_000)
    with site.work.write() as session:
        told = {"host": "cpu-01", "pid": 7, "version": "0.1.0", "state": "working", "classes": ["index"], "slots": 8,
                "busy": 3, "budget": 16 * 10**9, "taken": 4 * 10**9}  # fmt: skip
        workers.beat(
            session, "cpu-08.11.aa", 30, told | {"used": 10**9, "waiting": "index is paused: the disk is full"}
        )
        verifications.begin(session, ready["mirror"], with_sources=False, patience=60)
        fault = {"path": "idx/x.idx", "reason": "has 7 bytes instead of 8"}
        verifications.end(session, ready["mirror"], "damaged", result={"sources": 6, "faults": [fault]}, error=None)
        unit = session.scalars(select(Unit).where(Unit.state == "leased").limit(1)).one()
        deaths.record(session, unit, "cpu-08.11.aa", "memory", in_hand="/data/set7/audio_3.tar", memory=2**30)
    bad = failed["problems"][0]
    pages = {
        "/builds": ["granary-everything.yaml", ready["id"], "indexing", "failed", "one"],
        "/builds?state=failed": [failed["id"]],
        "/builds?label=project%3Dgranary": [ready["id"], "git=3f2a9c1", 'value="project=granary"'],
        f"/builds/{ready['id']}": [
            "Use it", ready["path"], "0.5", "idxpack", "blend.yaml", "project=granary", "published", "100 %", "local",
            "planned: 6 sources, 0 known already", "Hours",
        ],
        f"/builds/{failed['id']}": [bad["code"], bad["path"], "Exclude and publish", "Retry this one"],
        f"/builds/{big}": [
            "In hand",
            "times longer than its like",
            "Cancel the build",
            "Waited for",
            "came to nothing",
            "/data/set7/audio_3.tar",
            "20 sources in 4.0 s",
        ],
        f"/builds/{big}/units": ["cpu-00.11.aa", "Being read"],
        f"/builds/{big}/posted": ["manifest_filepath: /data/set0"],
        f"/builds/{ready['id']}/units": ["From unit"],
        f"/builds/{failed['id']}/findings": ["By kind"],
        "/mirrors": [ready["mirror"][:16], other["mirror"][:16], "one", "two", "damaged", "1 fault"],
        f"/mirrors/{ready['mirror']}": [ready["mirror"],
            "Receipt", "idxpack", f"{tmp_path}/a/audio_0.tar", "has 7 bytes instead of 8", "git=3f2a9c1",
        ],
        f"/mirrors/{ready['mirror']}?against=two": ["6 added", "6 removed", "0 changed"],
        f"/sources?path={tmp_path}/a/": [f"{tmp_path}/a/audio_0.tar"],
        f"/sources?path={tmp_path}/a/audio_0.tar": [
            "Who uses it", ready["id"], failed["id"], "structure", "What it held", ready["mirror"][:12],
            "project=granary",
        ],
        f"/sources?path={bad['path']}": [bad["code"]],
        "/workers": [
            "cpu-01", "3 / 8", "index unit", big, "the disk is full", "/data/set7/audio_3.tar", "1.0 GB", "reads",
        ],
        "/lint": ["Lint"],
        "/health": ["Disk of the root", "waiting", site.work.engine.dialect.name],
    }  # fmt: skip
    for address, wanted in pages.items():
        answer = client.get(address)
        assert answer.status_code == 200, (address, answer.text[:2_000])
        for text in wanted:
            assert str(text) in answer.text, (address, text)
    assert failed["id"] not in client.get("/builds?state=ready").text


def _entry(folder: Path, name: str) -> str:
    return (
        f"- type: nemo_tarred\n  manifest_filepath: {folder}/{name}/manifest__OP_0..2_CL_.json\n"
        f"  tarred_audio_filepaths: {folder}/{name}/audio__OP_0..2_CL_.tar\n"
    )


def test_lists_are_pages(site: Site, client: httpx.Client) -> None:
    from blendex.catalog import builds

    options = {"compat": "", "allow": [], "on_bad": "fail", "packs": "auto", "sidecars": "unpacked"}
    for number in range(53):
        with site.work.write() as session:
            build, _ = builds.create(
                session, owner="ada", identity=f"{number}", submission={}, file=f"/b/{number}.yaml", options=options
            )
            build.state = "cancelled"
    first = client.get("/builds").text
    assert first.count('<tr id="b-') == 50
    following = first.split('href="/builds?before=')[1].split('"')[0]
    assert client.get(f"/builds?before={following}").text.count('<tr id="b-') == 3


def test_one_more_page_of_a_mirror(site: Site, client: httpx.Client, tmp_path: Path) -> None:
    ready = built(site, corpus.corpus(tmp_path, shards=40, rows=1), tmp_path)
    first = client.get(f"/mirrors/{ready['mirror']}").text
    place = first.split("?at=")[1].split("#")[0]
    second = client.get(f"/mirrors/{ready['mirror']}?at={place}").text
    names = [set(_paths(text, tmp_path)) for text in (first, second)]
    assert [len(found) for found in names] == [50, 30]
    assert not names[0] & names[1]
    # A place in the middle of a line is no place: the next line is.
    assert set(_paths(client.get(f"/mirrors/{ready['mirror']}?at={int(place) + 3}").text, tmp_path)) < names[1]
    assert client.get(f"/mirrors/{ready['mirror']}?at=999999999").status_code == 200


def _paths(text: str, folder: Path) -> list[str]:
    return [item.split("<")[0] for item in text.split('<bdi class="path">')[1:] if item.startswith(f"{folder}/a/")]


def test_a_mirror_that_was_collected(site: Site, client: httpx.Client, tmp_path: Path) -> None:
    ready = built(site, corpus.corpus(tmp_path), tmp_path)
    site.root.discard(site.root.mirror(ready["mirror"]))
    answer = client.get(f"/mirrors/{ready['mirror']}")
    assert answer.status_code == 200
    assert "It was collected" in answer.text
    assert client.get(f"/builds/{ready['id']}").status_code == 200


def test_what_was_taken_over_from_the_root(site: Site, tmp_path: Path) -> None:
    """A catalog that was lost knows no submission and no units any more: the pages show the rest."""
    ready = built(site, corpus.corpus(tmp_path), tmp_path, name="one")
    adopted = corpus.site(Path(site.root.path), database_url=f"sqlite:///{tmp_path}/other.sqlite")
    with listening(adopted, tmp_path, lambda: None) as service:
        for address in (
            "/builds", f"/builds/{ready['id']}", f"/builds/{ready['id']}/posted", f"/builds/{ready['id']}/units",
            f"/builds/{ready['id']}/findings", "/mirrors", f"/mirrors/{ready['mirror']}", "/sources",
        ):  # fmt: skip
            answer = service.http.get(address)
            assert answer.status_code == 200, (address, answer.text[-2_000:])
        assert ready["path"] in service.http.get(f"/builds/{ready['id']}").text


@pytest.mark.parametrize(
    ("method", "address", "status"),
    [
        ("GET", "/builds/short", 404),
        ("GET", f"/builds/{'0' * 26}", 404),
        ("GET", f"/builds/{'0' * 26}/plot.json", 404),
        ("GET", f"/mirrors/{'0' * 64}", 404),
        ("GET", "/mirrors?before=zz", 404),
        ("GET", f"/builds/{'0' * 26}/live", 404),
        ("GET", f"/builds/{'0' * 26}/units?after=-1", 400),
        ("POST", "/builds/new", 400),
    ],
)
def test_errors_are_pages(client: httpx.Client, method: str, address: str, status: int) -> None:
    answer = client.request(method, address)
    assert answer.status_code == status
    assert answer.headers["content-type"].startswith("text/html")
    assert "<h1>" in answer.text


def test_what_a_worker_tells_besides_is_shown() -> None:
    assert operate._told("swapped_bytes", 5 * 10**8) == [("swapped", "500 MB")]
    assert operate._told("causes", {"memory": 2}) == [("causes: memory", "2")]
    assert operate._told("notes", ["a", "b"]) == [("notes", "a; b")]
    assert operate._told("why", None) == []


def test_words() -> None:
    assert [words.size(value) for value in (0, 999, 1_000, 12_345_678, 4.2e12, None)] == [
        "0 B", "999 B", "1.0 kB", "12.3 MB", "4.2 TB", "–",
    ]  # fmt: skip
    assert [words.span(value) for value in (0.04, 9.94, 59.6, 61, 3_600, 7_300, 90_000)] == [
        "0.0 s", "9.9 s", "1 min", "1 min 1 s", "1 h", "2 h 1 min", "1 d 1 h",
    ]  # fmt: skip
    assert [words.share(*pair) for pair in ((0, 0), (0, 9), (1, 1_000), (999, 1_000), (1, 2), (9, 9))] == [
        "–", "0 %", "< 1 %", "> 99 %", "50 %", "100 %",
    ]  # fmt: skip
    assert words.plain("a\u202eb\x00c\n") == "a⟨U+202E⟩b␀c\n"
    assert "&lt;b&gt;" in str(words.state("<b>"))


def test_a_strip_is_as_long_as_its_cells_are_different() -> None:
    quiet = [{"first": number, "units": {"done": 1}, "sources": 1, "cost": 1} for number in range(2_000)]
    loud = [cell | {"units": {"done" if number % 2 else "failed": 1}} for number, cell in enumerate(quiet)]
    label = 'a "label"'
    assert len(drawing.strip(quiet, label)) < 1_000
    assert len(drawing.strip(loud, label)) < 40_000
    assert "&#34;label&#34;" in drawing.strip(quiet, label)
    assert str(drawing.strip(loud, label)).count("<path") == 2


def test_the_clock_is_the_catalog_s(site: Site) -> None:
    with site.work.read() as session:
        assert "just now" in words.ago(states.now(session), states.now(session))
