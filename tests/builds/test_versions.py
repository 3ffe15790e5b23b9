"""Programs of two versions at one catalog: each does what it has the recipes for, and says what waits for the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from blendex.builds import abilities, describe, figures, reap
from blendex.builds import site as site_module
from blendex.builds.loop import ClaimLoop
from blendex.builds.run import run_build
from blendex.builds.site import Site
from blendex.builds.submit import submit
from blendex.catalog import builds, migrate, units, workers
from blendex.errors import BlendexError, Code
from blendex.formats import kinds
from blendex.storage.root import HEX
from tests.support import corpus
from tests.support.inline import InlineRunner

OpenSite = Callable[..., Site]


@contextmanager
def other_version(**versions: int) -> Iterator[None]:
    """This process is a program whose builders of some kinds have other versions."""
    before = kinds.KINDS
    kinds.KINDS = {name: replace(kind, version=versions.get(name, kind.version)) for name, kind in before.items()}
    try:
        yield
    finally:
        kinds.KINDS = before


def work(site: Site, classes: tuple[str, ...] = ("plan", "index", "pack", "publish")) -> dict[str, Any]:
    """Work until nothing is left that this program can do; what it saw just before it left."""
    seen: dict[str, Any] = {}

    def idle() -> bool:
        with site.work.read() as session:
            left = [build for build in builds.running(session) if units.unfinished(session, build)]
            seen["told"] = [worker for worker, alive in workers.page(session) if alive]
            seen["lacking"] = abilities.lacking(session)
            seen["builds"] = [describe.build_detail(site, session, builds.get(session, build)) for build in left]
            doable = units.counts(session).get("leased", 0)
            waiting = [named for named in units.needed(session) if abilities.can(named)]
        seen["metrics"] = {name: values for name, _, _, values in figures.gauges(site)}
        mine = [named for named in waiting if classes != ("plan",) or named == abilities.needs()]
        seen["turns"] = 0 if doable or mine else seen.get("turns", 0) + 1
        return bool(seen["turns"] > 1)  # once more, so that it has asked for work in vain

    ClaimLoop(site, InlineRunner(), idle=idle, classes=classes).run()
    return seen


def recipes_of(site: Site, key: str) -> set[str]:
    import orjson

    assert HEX.issuperset(key)
    receipt = orjson.loads((Path(site.root.mirror(key)) / "receipt.json").read_bytes())
    return set(receipt["recipes"])


def state(site: Site, build: str) -> Any:
    with site.work.read() as session:
        return builds.get(session, build)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Old enough that nothing is read twice for its age."""
    folder = tmp_path_factory.mktemp("data")
    corpus.corpus(folder, 2)
    corpus.wait_until_calm()
    return folder


@pytest.fixture
def blend(data: Path) -> str:
    return (
        f"- type: nemo_tarred\n  manifest_filepath: {data}/a/manifest__OP_0..1_CL_.json\n"
        f"  tarred_audio_filepaths: {data}/a/audio__OP_0..1_CL_.tar\n"
    )


def test_a_worker_leaves_what_it_has_no_recipe_for_and_says_so(open_site: OpenSite, data: Path, blend: str) -> None:
    site = open_site(unit_sources=1)
    build, _ = submit(site, corpus.submission(blend, data))
    with other_version(jsonl=2):
        work(site, ("plan",))
    assert state(site, build.id).recipes == "jsonl/2,nemo_tar/1,pack/1,protocol/1"
    seen = work(site)  # the old one: it reads the tars
    assert seen["lacking"] == {"jsonl/2": 2}
    assert seen["metrics"]["blendex_units_without_recipe"] == {("jsonl/2",): 2.0}
    assert seen["told"][0].waiting == "what waits needs recipes that this version has not"
    waits = [item["waits_for"] for item in seen["builds"][0]["stragglers"]]
    assert waits == ["no worker for recipe jsonl/2: start workers of the version that planned it"] * 2
    assert state(site, build.id).state == "indexing"
    reap.plan_anew(site)  # a newer recipe is waited for
    assert state(site, build.id).state == "indexing"
    with other_version(jsonl=2):
        work(site)
        row = state(site, build.id)
        assert row.state == "ready", row.error
        assert recipes_of(site, row.mirror) == {"jsonl/2", "nemo_tar/1"}


def test_what_only_a_program_of_before_could_do_is_planned_again(
    tmp_path: Path, data: Path, blend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reap, "REAPS_BETWEEN", 0)  # one reap in twelve would plan it again before it is looked at
    site = corpus.site(tmp_path / "root", unit_sources=1)
    build, _ = submit(site, corpus.submission(blend, data))
    work(site, ("plan",))
    with other_version(jsonl=2):
        seen = work(site)
        assert seen["lacking"] == {"jsonl/1": 2}
        reap.plan_anew(site)
        work(site)
        row = state(site, build.id)
        assert (row.state, row.replans) == ("ready", 0), row.error
        assert recipes_of(site, row.mirror) == {"jsonl/2", "nemo_tar/1"}
        assert row.reused == 2  # the tars, whose recipe is as it was


def test_the_same_blend_is_a_hit_before_during_and_after_an_upgrade(
    tmp_path: Path, data: Path, blend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = corpus.site(tmp_path / "root")
    submission = corpus.submission(blend, data)
    old = run_build(site, submission, runner=InlineRunner())
    with other_version(jsonl=2):  # a recipe changed: another mirror, and the tars are not read again
        new = run_build(site, submission, runner=InlineRunner())
        assert (new["state"], new["reused"], new["opened"]) == ("ready", 2, 2)
        assert new["mirror"] != old["mirror"]
    for version in (1, 2, 1):  # rolled back, and forward again
        with other_version(jsonl=version):
            again = run_build(site, submission, runner=InlineRunner())
            assert (again["state"], again["opened"]) == ("ready", 0)
            assert again["mirror"] == (old, old, new)[version]["mirror"]
    monkeypatch.setattr(site_module, "MIGRATION_SECONDS", 0.1)
    migrate.downgrade(site.work.engine, "-1")
    with pytest.raises(BlendexError) as refused:
        corpus.site(tmp_path / "root", migrate=False)
    assert refused.value.code == Code.CATALOG_VERSION
    assert "Run blendex db upgrade, once, before its processes start." in refused.value.next_step
    migrate.upgrade(site.work.engine)
    migrated = corpus.site(tmp_path / "root", migrate=False)
    assert run_build(migrated, submission, runner=InlineRunner())["mirror"] == old["mirror"]


def test_what_is_named_is_what_can_be_done() -> None:
    assert abilities.can(None)
    assert abilities.needs_of(["jsonl"], "upstream") in abilities.able()
    assert abilities.needs_of_build(["jsonl", "nemo_tar"], "") in abilities.able()
    assert all(abilities.can(named) for named in abilities.able())
    assert abilities.missing("jsonl/2,protocol/1", abilities.own()) == ["jsonl/2"]
    assert not abilities.superseded(["jsonl/2"])
    assert abilities.superseded(["jsonl/0"])
    assert not abilities.superseded(["jsonl/0+other"])
