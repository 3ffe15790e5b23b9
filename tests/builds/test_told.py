"""What is told of builds, sources and workers besides their states: labels, logs, hours, shares, contents, hands."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from blendex.builds import control, describe, history, log, verifying
from blendex.builds.labels import MOST, parse
from blendex.builds.loop import ClaimLoop
from blendex.builds.run import run_build, work_until_ended
from blendex.builds.site import Site
from blendex.builds.submit import submit
from blendex.builds.usage import usage
from blendex.catalog import builds, events, sources, workers
from blendex.errors import BlendexError, Code
from blendex.runtime.slots import Call
from blendex.units.receipt import find_source, read_sources
from blendex.units.verify import run as verify
from tests.support.corpus import corpus, put, submission, wait_until_calm
from tests.support.inline import InlineRunner

OpenSite = Callable[..., Site]


def ready(site: Site, blend: str, data: Path, **values: object) -> dict[str, Any]:
    result = run_build(site, submission(blend, data, **values), runner=InlineRunner())
    assert result["state"] == "ready", result["problems"]
    return result


def logged(site: Site, build: str) -> list[str]:
    with site.work.read() as session:
        row = builds.get(session, build)
        assert row is not None
        return [line["event"] for line in reversed(log.tail(session, row))]


def test_labels_are_no_part_of_a_request_and_who_joins_adds_to_them(open_site: OpenSite, data: Path) -> None:
    site, blend = open_site(), corpus(data, shards=1)
    first, made = submit(site, submission(blend, data, labels={"project": "granary", "a.b/c": "x-1"}))
    again, joined = submit(site, submission(blend, data, labels={"project": "other", "run": "7"}))
    other, _ = submit(site, submission(blend + "# another\n", data, labels={"project": "other"}))
    assert (made, joined, again.id) == (True, False, first.id)
    # What was there stays: nobody's filter loses a build.
    assert again.labels == {"project": "granary", "a.b/c": "x-1", "run": "7"}
    with site.work.read() as session:

        def found(**labels: str) -> list[str]:
            return [row.id for row in builds.page(session, labels=labels)]

        assert found(project="granary") == [first.id]
        assert found(project="other") == [other.id]
        assert found(**{"a.b/c": "x-1", "run": "7"}) == [first.id]
        assert found(project="granary", run="8") == found(nobody="x") == found(project="gran") == []
    many = {f"k{number}": "v" for number in range(MOST - 1)}
    with pytest.raises(BlendexError) as refused:
        submit(site, submission(blend, data, labels=many))
    assert refused.value.code is Code.BAD_REQUEST
    assert logged(site, first.id) == ["submitted", "joined"]


@pytest.mark.parametrize(
    "items", [["a"], ["=x"], ["a="], ["a=b", "a=c"], ["ä=b"], ['a="'], ["a=b c"], ["a=" + "v" * 129], ["-a=b"]]
)
def test_labels_that_cannot_be(items: list[str]) -> None:
    with pytest.raises(BlendexError):
        parse(items)
    assert parse(["a=b=c"[:3], "git=3f2a/9:c@1+x"]) == {"a": "b", "git": "3f2a/9:c@1+x"}


def test_a_log_tells_a_build_from_its_start_to_its_end(
    open_site: OpenSite, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = open_site()
    blend = corpus(data, shards=2)
    put(data / "a/audio_1.tar", b"no tar" * 300)
    failed = run_build(site, submission(blend, data), runner=InlineRunner())
    assert failed["state"] == "failed"
    control.accept(site, failed["id"], who="ada", why="it is lost")
    assert work_until_ended(site, failed["id"], runner=InlineRunner())["state"] == "failed"  # nothing is left of it
    told = logged(site, failed["id"])
    assert told == [
        "submitted", "planning", "indexing", "publishing", "failed", "accepted", "planning", "indexing", "publishing",
        "failed",
    ]  # fmt: skip
    with site.work.read() as session:
        row = builds.get(session, failed["id"])
        assert row is not None
        lines = log.tail(session, row)
    assert lines[0]["says"].startswith("failed: ")
    accepted = next(line for line in lines if line["event"] == "accepted")
    assert (accepted["who"], accepted["why"]) == ("ada", "it is lost")
    assert "planned: 4 sources" in [line["says"].partition(",")[0] for line in lines]
    monkeypatch.setattr(events, "KEPT", 12)
    with site.work.write() as session:
        for _ in range(5):
            events.note(session, failed["id"], "retried")
        kept = [line["event"] for line in events.of_build(session, failed["id"], 100)]
    assert (len(kept), kept[4:7]) == (12, ["retried", "failed", "publishing"])


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
def test_a_dataset_tells_hours_where_its_rows_were_decoded_and_where_its_audio_lies(
    open_site: OpenSite, data: Path
) -> None:
    blend = corpus(data, shards=2, rows=3)
    rows = "".join(json.dumps({"audio_filepath": f"{n}.wav", "duration": 1800}) + "\n" for n in range(4))
    put(data / "plain.json", rows.encode())
    blend += f"- type: nemo\n  manifest_filepath: {data}/plain.json\n  weight: 1.5\n"
    build = ready(open_site(), blend, data)
    tarred, plain = build["datasets"]
    seconds = sum(
        json.loads(line)["duration"]
        for path in sorted((data / "a").glob("manifest_*.json"))
        for line in path.read_text().splitlines()
    )
    assert tarred["hours"] == pytest.approx(seconds / 3600, abs=1e-4)
    # Without tars nothing decodes its rows: what nobody knows is not told.
    assert plain["hours"] is None
    assert (tarred["access"], plain["access"]) == ("local", "local")
    assert (tarred["share"], plain["share"]) == (0.25, 0.75)


def test_a_source_tells_every_content_it_had_and_who_holds_it(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    blend = corpus(data, shards=2)
    path = data / "a/audio_1.tar"
    old = path.read_bytes()
    wait_until_calm()
    first = ready(site, blend, data)
    put(path, (data / "a/audio_0.tar").read_bytes())
    second = ready(site, blend, data, labels={"project": "x"})
    put(path, b"no tar" * 300)
    assert run_build(site, submission(blend, data), runner=InlineRunner())["state"] == "failed"

    def contents() -> list[dict[str, Any]]:
        with site.work.read() as session:
            (seen,) = sources.look(session, str(path))
            return history.contents(site, session, seen, usage(session, str(path)), str(path))

    found = contents()
    assert [item["current"] for item in found] == [False, False]  # it holds nothing that can be read now
    assert {tuple(item["mirrors"]) for item in found} == {(first["mirror"],), (second["mirror"],)}
    put(path, old)
    ready(site, blend, data)
    now, before = contents()
    assert (now["current"], set(now["mirrors"])) == (True, {first["mirror"]})
    assert (before["current"], before["mirrors"]) == (False, [second["mirror"]])
    assert now["content_hash"] != before["content_hash"]
    assert now["seen_at"] < before["seen_at"] <= before["read_at"] < now["read_at"]
    with site.work.read() as session:
        uses = usage(session, str(path)).uses
    assert {"project": "x"} in [item["labels"] for item in uses]
    assert uses[0]["file"] == f"{data}/blend.yaml"


def test_former_contents_are_a_ring(open_site: OpenSite) -> None:
    site = open_site()

    def entry(number: int) -> dict[str, Any]:
        return {
            "address": "/s", "recipe": "jsonl/1", "strength": "full", "content_hash": f"{number:064x}", "size": number,
            "records": 1, "offset": 0, "length": 8, "digest": "00" * 32, "findings": [], "facts": {}, "token": "t",
            "racy": False,
        }  # fmt: skip

    for number in range(sources.FORMER + 5):
        with site.work.write() as session:
            sources.record(session, sources.add_object(session, "00.bundle", 8), [entry(number)])
            sources.record(session, sources.add_object(session, "00.bundle", 8), [entry(number)])  # nothing new
    with site.work.read() as session:
        sizes = [row.size for row in sources.former(session, "/s", "jsonl/1")]
    assert sizes == list(range(sources.FORMER + 3, 3, -1))


def test_one_line_of_a_long_list_is_found(tmp_path: Path) -> None:
    rows = sorted(("jsonl" if number % 3 else "nemo_tar", f"/d/{number}é.x") for number in range(500))
    lines = [json.dumps({"kind": kind, "path": path, "n": number}) for number, (kind, path) in enumerate(rows)]
    put(tmp_path / "sources.jsonl", ("\n".join(lines) + "\n").encode())
    for number, (kind, path) in enumerate(rows):
        found = find_source(str(tmp_path), kind, path)
        assert found is not None
        assert found["n"] == number
    assert find_source(str(tmp_path), "jsonl", "/d") is None
    assert find_source(str(tmp_path), "zzz", "/d") is None
    put(tmp_path / "sources.jsonl", b"")
    assert find_source(str(tmp_path), "jsonl", "/d/1é.x") is None


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
def test_a_mirror_tells_what_came_of_verifying_it(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    build = ready(site, corpus(data, shards=1), data)
    key = build["mirror"]

    def done(**values: bool) -> dict[str, Any]:
        assert verifying.begin(site, key, **values)
        return verifying.run(site, key, lambda arguments: verify(arguments, lambda _: None), **values)

    assert verifying.of(site, key) is None
    assert (found := done(with_sources=True))["state"] == "whole"
    assert (found["sources"], found["faults"], found["changed"]) == (2, [], [])
    put(data / "a/audio_0.tar", b"other")
    assert done(with_sources=False)["changed_count"] == 0
    assert (found := done(with_sources=True))["changed"] == [str(data / "a/audio_0.tar")]
    line = next(read_sources(build["path"]))
    sidecar = next(Path(build["path"]).rglob(Path(line["path"]).name + ".idx"))
    sidecar.chmod(0o644)
    sidecar.write_bytes(bytes(line["length"]))
    assert (found := done(with_sources=False))["state"] == "damaged"
    assert [item["reason"] for item in found["faults"]] == ["holds other bytes than were published"]
    ready_file = Path(build["path"], "READY")
    ready_file.chmod(0o644)
    ready_file.write_text("{}")
    assert (found := done(with_sources=False))["state"] == "failed"
    assert found["error"]["code"] == "mirror_damaged"
    # While one is under way nobody begins another one.
    assert verifying.begin(site, key, with_sources=False)
    assert not verifying.begin(site, key, with_sources=False)
    assert (verifying.of(site, key) or {})["state"] == "running"
    with pytest.raises(BlendexError):
        verifying.begin(site, "0" * 64, with_sources=False)


class Holding(InlineRunner):
    """A runner whose calls never end; each has a source in hand."""

    def start(self, call: Call) -> int:
        self.calls.append(call)
        return len(self.calls)

    def free(self) -> int:
        return 0 if self.calls else 1

    def holding(self, ticket: int) -> dict[str, Any]:
        return {"in_hand": "/data/x.tar"} if ticket <= len(self.calls) else {}


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
def test_a_worker_tells_the_source_in_hand_while_it_lives(open_site: OpenSite, data: Path) -> None:
    site = open_site(lease_seconds=0.6, poll_seconds=0.02)
    build, _ = submit(site, submission(corpus(data, shards=1), data))
    loop = ClaimLoop(site, Holding())
    thread = threading.Thread(target=loop.run)
    thread.start()
    try:
        until = time.monotonic() + 60
        hands: list[dict[str, Any]] = []
        while not hands and time.monotonic() < until:
            with site.work.read() as session:
                hands = [hand for worker, _ in workers.page(session) for hand in worker.in_hand or ()]
                units = workers.in_hand(session, [loop.worker])
        assert [(hand["work"], hand["source"]) for hand in hands] == [("plan", "/data/x.tar")]
        assert units == {hands[0]["unit"]: "/data/x.tar"}
    finally:
        loop.stop()
        thread.join()
    with site.work.read() as session:
        row = builds.get(session, build.id)
        assert row is not None
        assert describe.is_running(row)
