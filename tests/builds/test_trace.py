"""What is kept of a build's units, how its pace is told, what differs between mirrors, and who uses a source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from blendex.blend.world import World
from blendex.builds import control, describe
from blendex.builds.difference import difference
from blendex.builds.loop import ClaimLoop
from blendex.builds.pace import pace
from blendex.builds.run import run_build, work_until_ended
from blendex.builds.site import Site
from blendex.builds.submission import Submission
from blendex.builds.submit import submit
from blendex.builds.usage import usage
from blendex.catalog import builds, mirrors, sources, states, trace
from blendex.errors import BlendexError, Code
from tests.support import corpus
from tests.support.inline import InlineRunner


@pytest.fixture
def site(open_site: Callable[..., Site]) -> Site:
    made: Site = open_site()
    return made


def built(site: Site, blend: str, folder: Path, **values: object) -> dict[str, object]:
    return run_build(site, corpus.submission(blend, folder, **values), runner=InlineRunner())


def test_units_are_kept_when_they_go(site: Site, tmp_path: Path) -> None:
    result = built(site, corpus.corpus(tmp_path, shards=4), tmp_path)
    with site.work.read() as session:
        build = builds.get(session, str(result["id"]))
        assert build is not None
        assert trace.page(session, build.id) == []  # the units went with the build
        kept = trace.kept(session, build)
        assert kept is not None
    assert kept["sums"]["done"]["sources"] == 8
    assert sum(kept["bins"]["sources"]) == 8
    assert sum(kept["bins"]["cost"]) == kept["sums"]["done"]["cost"] > 0
    assert sum(cell["sources"] for cell in kept["cells"]) == 8
    slowest = trace.kept_slowest(kept)
    assert slowest[0].seconds is not None
    assert slowest[0].state == "done"
    assert result["datasets"] == [
        {"name": "nemo_tarred-0", "type": "nemo_tarred", "sources": 8, "weight": 0.5, "share": 1.0, "records": 40,
         "bytes": sum(path.stat().st_size for path in (tmp_path / "a").iterdir()),
         "hours": 0.0056, "access": "local", "entries": []}
    ]  # fmt: skip


def test_a_build_that_reads_nothing_has_no_trace(site: Site, tmp_path: Path) -> None:
    blend = corpus.corpus(tmp_path)
    corpus.wait_until_calm()
    built(site, blend, tmp_path)
    again = built(site, blend, tmp_path)
    with site.work.read() as session:
        build = builds.get(session, str(again["id"]))
        assert build is not None
        assert build.trace is None
        assert trace.kept(session, build) is None


def test_the_cells_of_many_units_are_bounded(site: Site) -> None:
    from tests.dashboard import synthetic

    number = synthetic.big(site, sources=60_000)
    with site.work.read() as session:
        cells = trace.see(session, number).cells
        assert 1_000 <= len(cells) <= trace.CELLS
        total: dict[str, int] = {}
        for cell in cells:
            for state, count in cell["units"].items():
                total[state] = total.get(state, 0) + count
        assert sum(total.values()) == 60_000 // synthetic.EACH
        assert total["leased"] == synthetic.WORKERS
        assert total["failed"] == 1
        # The worst state of a cell is what it shows.
        assert sum(trace.worst(cell["units"]) == "failed" for cell in cells) == 1
        build = builds.get(session, number)
        assert build is not None
        speed = pace(session, build)
    # One unit is in hand for ten minutes; its like took seconds. The rest says when the build ends.
    assert [item.unit.unit for item in speed.stragglers] == [1_831]
    assert speed.stragglers[0].times > 50
    assert speed.eta_seconds is not None
    assert speed.eta_seconds > 60


def test_where_only_stragglers_are_left_no_time_is_told(site: Site) -> None:
    from sqlalchemy import update

    from blendex.catalog.models import Unit
    from tests.dashboard import synthetic

    number = synthetic.big(site, sources=60_000)
    with site.work.write() as session:
        session.execute(update(Unit).where(Unit.state == "waiting").values(state="done"))
        build = builds.get(session, number)
        assert build is not None
        speed = pace(session, build)
    assert speed.stragglers
    assert speed.eta_seconds is None


def test_one_source_is_retried_and_the_others_stay_as_they_are(site: Site, tmp_path: Path) -> None:
    blend = corpus.corpus(tmp_path)
    whole = {}
    for shard in (0, 2):
        path = tmp_path / f"a/audio_{shard}.tar"
        whole[path] = path.read_bytes()
        corpus.put(path, whole[path][:1_500])
    corpus.wait_until_calm()
    result = built(site, blend, tmp_path)
    assert (result["state"], result["problem_count"]) == ("failed", 2)
    number, opened = str(result["id"]), int(str(result["opened"]))
    for path, data in whole.items():
        corpus.put(path, data)
    corpus.wait_until_calm()
    with pytest.raises(BlendexError) as refused:
        control.retry(site, number, source="/data/elsewhere.tar")
    assert refused.value.code is Code.BAD_REQUEST
    first, second = map(str, whole)
    control.retry(site, number, source=first)
    found = work_until_ended(site, number, runner=InlineRunner())
    # Both are mended; only the one that was asked for was read.
    assert [item["path"] for item in found["problems"]] == [second]
    assert found["opened"] == opened + 1
    control.retry(site, number)
    found = work_until_ended(site, number, runner=InlineRunner())
    assert (found["state"], found["opened"]) == ("ready", opened + 2)


def test_difference_of_two_mirrors(site: Site, tmp_path: Path) -> None:
    blend = corpus.corpus(tmp_path, shards=3)
    before = built(site, blend, tmp_path)
    corpus.put(tmp_path / "a/manifest_1.json", corpus.manifest(7, "other"))
    corpus.put(tmp_path / "a/audio_1.tar", corpus.tar([f"other{number}.wav" for number in range(7)]))
    more = corpus.corpus(tmp_path, shards=1, name="b")
    after = built(site, blend.replace("__OP_0..2_CL_", "__OP_1..2_CL_") + more, tmp_path)
    assert after["state"] == "ready", after["problems"]
    found = difference(str(before["path"]), str(after["path"]))
    assert (found.added, found.removed, found.changed, found.same) == (2, 2, 2, 2)
    assert [path for _, path in found.first["removed"]] == [
        f"{tmp_path}/a/manifest_0.json", f"{tmp_path}/a/audio_0.tar",
    ]  # fmt: skip
    assert {path for _, path in found.first["changed"]} == {
        f"{tmp_path}/a/manifest_1.json",
        f"{tmp_path}/a/audio_1.tar",
    }
    back = difference(str(after["path"]), str(before["path"]))
    assert (back.added, back.removed) == (2, 2)
    assert difference(str(after["path"]), str(after["path"])).same == after["sources"]


def test_who_uses_a_source(site: Site, tmp_path: Path) -> None:
    first = built(site, corpus.corpus(tmp_path), tmp_path, name="one")
    second = built(site, corpus.corpus(tmp_path, name="b") + corpus.corpus(tmp_path), tmp_path)
    with site.work.read() as session:
        both = usage(session, f"{tmp_path}/a/audio_1.tar")
        assert [(item["build"], item["names"]) for item in both.uses] == [(second["id"], []), (first["id"], ["one"])]
        assert both.uses[0]["kind"] == "nemo_tar"
        assert both.whole
        assert [item["build"] for item in usage(session, f"{tmp_path}/b/audio_1.tar").uses] == [second["id"]]
        # A part of a path is no path.
        assert usage(session, f"{tmp_path}/a/audio_1").uses == []
        assert usage(session, "audio_1.tar").uses == []


def test_builds_are_found_by_what_people_know(site: Site, tmp_path: Path) -> None:
    submit(site, Submission(text=b"- type: nemo", file="/data/Granary%.yaml", world=World(), name="a-name"))
    result = built(site, corpus.corpus(tmp_path, name="c"), tmp_path, name="other")
    with site.work.read() as session:

        def found(**wish: str) -> list[str]:
            return [row.file for row in builds.page(session, **wish)]  # type: ignore[arg-type]

        assert found(text="granary") == ["/data/Granary%.yaml"]
        assert found(text="%") == ["/data/Granary%.yaml"]  # a sign, no pattern
        assert found(text="nemo_tarred-0") == [f"{tmp_path}/blend.yaml"]
        assert found(text=str(result["id"])[:24]) == [f"{tmp_path}/blend.yaml"]
        assert found(name="a-name") == ["/data/Granary%.yaml"]
        assert found(name="a-nam") == []
        assert found(name="other") == [f"{tmp_path}/blend.yaml"]
        assert found(owner="somebody") == []
        for text in (str(result["mirror"])[:10], str(result["path"]), "othe", f"{tmp_path}/blend.yaml"):
            assert [row.key for row in mirrors.search(session, text)] == [result["mirror"]], text
        assert mirrors.search(session, "nothing") == []
        seen = sources.look(session, f"{tmp_path}/c/", limit=4)
        assert [item.address for item in seen] == sorted(item.address for item in seen)
        rest = sources.look(session, f"{tmp_path}/c/", after=(seen[-1].address, seen[-1].recipe))
        assert len(seen) + len(rest) == 6
        assert sources.look(session, f"{tmp_path}/C/") == []  # case and all


def test_a_unit_that_runs_says_since_when(site: Site, tmp_path: Path) -> None:
    build, _ = submit(site, corpus.submission(corpus.corpus(tmp_path), tmp_path))
    loop = ClaimLoop(site, InlineRunner())
    with site.work.write() as session:
        unit = states.claim_unit(session, loop.worker, 30, 2**40)
        assert unit is not None
        held = trace.in_hand(session, build.id, 5)
        assert held[0].leased_at is not None
        assert abs(held[0].leased_at - states.now(session)) < 5
        assert trace.of_worker(session, [loop.worker])[loop.worker][0][:3] == (unit.id, "plan", build.id)
        row = builds.get(session, build.id)
        assert row is not None
        assert describe.build_summary(site, session, row)["eta_seconds"] is None
