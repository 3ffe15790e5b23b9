"""What attempts die of, what is tried again, and what is the answer for good."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, text

from blendex.builds import causes, control, describe, reap
from blendex.builds.loop import ClaimLoop
from blendex.builds.run import run_build, work_until_ended
from blendex.builds.site import Site
from blendex.builds.submit import submit
from blendex.catalog import builds, deaths, states, units
from blendex.catalog.models import Unit
from blendex.errors import BlendexError, Code, passing
from blendex.runtime.slots import Call, Outcome
from blendex.storage.local import LocalStorage, OpenedFile
from tests.support.corpus import OLD_NS, corpus, put, submission, wait_until_calm
from tests.support.inline import InlineRunner

OpenSite = Callable[..., Site]


class Befallen(InlineRunner):
    """Calls that read ``poison`` end as told, as often as told; the rest is done."""

    def __init__(self, poison: str, *outcomes: dict[str, Any]) -> None:
        super().__init__()
        self.poison = poison
        self.left = list(outcomes)
        self.tries: list[int] = []

    def start(self, call: Call) -> int:
        names = [item[1] for item in call.arguments.get("sources", [])]
        if self.poison not in names or not self.left:
            return super().start(call)
        self.tries.append(len(names))
        self.calls.append(call)
        st = os.stat(self.poison)
        token = f"{st.st_size}:{st.st_mtime_ns}:{st.st_ctime_ns}:{st.st_ino}"
        holding = {"in_hand": self.poison, "token": token, "racy": False}
        self.outcomes.put(Outcome(len(self.calls), holding=holding, **self.left.pop(0)))
        return len(self.calls)


def no_pauses(site: Site) -> None:
    with site.work.write() as session:
        session.execute(text("UPDATE units SET not_before = NULL"))


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, Code.NO_SPACE), (errno.EDQUOT, Code.NO_SPACE), (errno.EIO, Code.STORAGE_AWAY),
        (errno.ESTALE, Code.STORAGE_AWAY), (errno.EMFILE, Code.NO_RESOURCES), (errno.ENFILE, Code.NO_RESOURCES),
    ],
)  # fmt: skip
def test_what_passes_by_itself_has_a_name(number: int, code: Code) -> None:
    found = passing(OSError(number, os.strerror(number), "/data/x"))
    assert found is not None
    assert (found.code, found.file) == (code, "/data/x")
    assert errno.errorcode[number] in found.message
    assert found.next_step


def test_a_missing_file_does_not_pass() -> None:
    assert passing(FileNotFoundError(errno.ENOENT, "no")) is None


def test_an_outage_counts_against_nobody(open_site: OpenSite, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blendex.builds.causes.AWAY_FIRST", 0.01)
    site = open_site()
    blend = corpus(data, shards=3)
    poison = str(data / "a/manifest_1.json")
    away = BlendexError(Code.STORAGE_AWAY, "away.", file=poison).as_dict()
    runner = Befallen(poison, *({"cause": "error", "error": away} for _ in range(4)))
    result = run_build(site, submission(blend, data), runner=runner)
    assert result["state"] == "ready"
    assert len(set(runner.tries)) == 1, "the unit stayed as it was"
    told = [(item["cause"], item["how"]) for item in result["attempts_failed"]]
    assert told == [("error", "storage_away")] * 4


def test_a_store_that_stays_away_is_named_and_nothing_is_held_against_the_sources(
    open_site: OpenSite, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blendex.builds.causes.AWAY_FIRST", 0.001)
    monkeypatch.setattr("blendex.builds.causes.AWAY_MOST", 0.01)
    site = open_site()
    blend = corpus(data, shards=3)
    wait_until_calm()
    broken = [str(data / f"a/manifest_{number}.json") for number in (0, 2)]
    really = LocalStorage.open

    def opened(storage: LocalStorage, address: str, *, whole: bool = False) -> OpenedFile:
        if address in broken:
            raise BlendexError(Code.STORAGE_AWAY, "away.", file=address)
        return really(storage, address, whole=whole)

    runner = InlineRunner()
    with monkeypatch.context() as patched:
        patched.setattr(LocalStorage, "open", opened)
        result = run_build(site, submission(blend, data), runner=runner)
    assert (result["state"], result["opened"]) == ("failed", 4)
    assert sorted((item["code"], item["file"]) for item in result["problems"]) == [
        ("storage_away", path) for path in broken
    ]
    tries = [call for call in runner.calls if call.function == "blendex.units.index:run"]
    assert len(tries) == 10, "all sources of a unit wait together"
    again = run_build(site, submission(blend, data), runner=InlineRunner())
    assert (again["state"], again["opened"]) == ("ready", 2)


def test_a_source_that_failed_for_good_is_answered_at_once_until_it_changes(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    blend = corpus(data, shards=2)
    bad = put(data / "a/audio_1.tar", b"no tar at all" * 100)
    wait_until_calm()
    first = run_build(site, submission(blend, data), runner=InlineRunner())
    assert (first["state"], first["problems"][0]["code"]) == ("failed", "tar_bad_header")
    again = InlineRunner()
    second = run_build(site, submission(blend, data), runner=again)
    assert second["problems"] == first["problems"]
    assert not [call for call in again.calls if "sources" in call.arguments], "it was read again"
    (data / "a/audio_1.tar").write_bytes((data / "a/audio_0.tar").read_bytes())
    os.utime(bad, ns=(OLD_NS + 10**9, OLD_NS + 10**9))
    assert run_build(site, submission(blend, data), runner=InlineRunner())["state"] == "ready"


@pytest.mark.parametrize(
    ("cause", "how"), [("memory", "kernel"), ("memory", "limit"), ("stall", ""), ("signal", "SIGSEGV")]
)
def test_a_death_for_good_is_told_by_cause_and_read_again_by_retry_only(
    open_site: OpenSite, data: Path, cause: str, how: str
) -> None:
    site = open_site()
    blend = corpus(data, shards=2)
    poison = str(data / "a/manifest_1.json")
    wait_until_calm()
    death = {"cause": cause, "how": how}
    first = run_build(site, submission(blend, data), runner=Befallen(poison, death, death))
    problem = first["problems"][0]
    assert (first["state"], problem["cause"], problem["how"]) == ("failed", cause, how)
    assert [(item["cause"], item["how"] or "", item["in_hand"]) for item in first["attempts_failed"]] == [
        (cause, how, poison)
    ] * 2
    second = Befallen(poison, death)
    assert run_build(site, submission(blend, data), runner=second)["problems"] == first["problems"]
    assert second.tries == []
    control.retry(site, first["id"])
    retried = work_until_ended(site, first["id"], runner=InlineRunner())
    assert retried["state"] == "ready"


def test_more_memory_than_it_was_given_is_another_chance(open_site: OpenSite, data: Path) -> None:
    site = open_site(unit_memory_mb=128)
    blend = corpus(data, shards=2)
    poison = str(data / "a/manifest_1.json")
    wait_until_calm()
    death = {"cause": "memory", "how": "limit"}
    assert run_build(site, submission(blend, data), runner=Befallen(poison, death, death))["state"] == "failed"
    richer = open_site(unit_memory_mb=512)
    assert run_build(richer, submission(blend, data), runner=InlineRunner())["state"] == "ready"


def test_lost_leases_are_no_deaths(open_site: OpenSite, data: Path) -> None:
    """Workers that are killed in a row take no chance from a unit: only what its own children die of does."""
    site = open_site()
    build, _ = submit(site, submission(corpus(data, shards=1), data))
    for number in range(3):
        with site.work.write() as session:
            unit = states.claim_unit(session, f"w{number}", -1, 2**40)
            assert unit is not None
        reap.reap(site)
    with site.work.read() as session:
        assert session.execute(select(Unit.attempts, Unit.losses)).one() == (0, 3)
        assert [item["cause"] for item in deaths.of_build(session, build.id)] == ["lost_lease"] * 3
    assert work_until_ended(site, build.id, runner=InlineRunner())["state"] == "ready"


@pytest.mark.parametrize("alone", [True, False])
def test_workers_that_somebody_kills_are_held_against_no_unit(open_site: OpenSite, data: Path, alone: bool) -> None:
    """Two units are lost with each of five workers: killed. One is, alone: it may be what kills them."""
    site = open_site(unit_sources=1)
    build, _ = submit(site, submission(corpus(data, shards=1), data))
    ClaimLoop(site, InlineRunner(), idle=lambda: states_of(site) == {"waiting"}, classes=("plan",)).run()
    for number in range(causes.MOST_LOSSES):
        with site.work.write() as session:
            for _ in range(1 if alone else 2):
                assert states.claim_unit(session, f"w{number}", -1, 2**40, classes=("index",)) is not None
        reap.reap(site)
        with site.work.write() as session:  # much later
            session.execute(text("UPDATE deaths SET at = at - 10000"))
    ended = work_until_ended(site, build.id, runner=InlineRunner())
    assert ended["state"] == ("failed" if alone else "ready")
    if alone:
        assert [item["code"] for item in ended["problems"]] == ["child_died"]


def states_of(site: Site) -> set[str]:
    with site.work.read() as session:
        return set(session.execute(select(Unit.state).where(Unit.work == "index")).scalars())


def test_a_full_disk_pauses_and_goes_on(open_site: OpenSite, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blendex.builds.loop.PAUSE_SECONDS", 0.2)
    monkeypatch.setattr("blendex.builds.causes.AWAY_FIRST", 0.1)
    site = open_site()
    blend = corpus(data, shards=2)
    poison = str(data / "a/manifest_1.json")
    full = passing(OSError(errno.ENOSPC, "No space left on device"))
    assert full is not None
    runner = Befallen(poison, *({"cause": "error", "error": full.as_dict()} for _ in range(3)))
    seen: list[Any] = []

    def watch(_: dict[str, Any]) -> None:
        with site.work.read() as session:
            row = builds.get(session, builds.running(session)[0]) if builds.running(session) else None
            if row is not None:
                seen.extend(item["waits_for"] for item in describe.stragglers(site, session, row))

    result = run_build(site, submission(blend, data), runner=runner, watch=watch)
    assert result["state"] == "ready"
    assert any("could be freed: trash" in reason or "a store or a disk" in reason for reason in seen), set(seen)


def test_the_root_has_a_limit_of_its_own(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    assert run_build(site, submission(corpus(data, shards=2), data), runner=InlineRunner())["state"] == "ready"
    narrow = open_site(max_root_files=10)
    with pytest.raises(BlendexError) as caught:
        submit(narrow, submission(corpus(data, shards=1, name="b"), data))
    assert caught.value.code is Code.NO_SPACE
    assert "could be freed: trash" in caught.value.message
    with narrow.work.read() as session:
        assert builds.running(session) == []
    tight = open_site(max_root_bytes=60_000)
    result = run_build(tight, submission(corpus(data, shards=40, name="c"), data), runner=InlineRunner())
    assert (result["state"], result["error"]["code"]) == ("failed", "no_space")


def test_a_full_service_takes_no_new_build_but_lets_join(open_site: OpenSite, data: Path) -> None:
    site = open_site(max_running_builds=1)
    blend = submission(corpus(data, shards=1), data)
    first, _ = submit(site, blend, bounded=True)
    assert submit(site, blend, bounded=True)[0].id == first.id
    with pytest.raises(BlendexError) as caught:
        submit(site, submission(corpus(data, shards=1, name="b"), data), bounded=True)
    assert caught.value.code is Code.BUSY
    with site.work.read() as session:
        assert builds.running(session) == [first.id]
    few = open_site(max_waiting_units=1)
    with pytest.raises(BlendexError):
        submit(few, submission(corpus(data, shards=1, name="b"), data), bounded=True)


def test_who_asks_again_more_urgently_hurries_the_build(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    blend = corpus(data, shards=1)
    first, _ = submit(site, submission(blend, data))
    again, made = submit(site, submission(blend, data, priority="interactive"))
    assert (again.id, made) == (first.id, False)
    with site.work.read() as session:
        assert session.execute(select(Unit.priority)).scalar_one() == 10 + units.PRIORITY["plan"]
    assert work_until_ended(site, first.id, runner=InlineRunner())["state"] == "ready"


def test_a_worker_tells_why_it_waits(open_site: OpenSite, data: Path) -> None:
    site = open_site()
    with site.work.write() as session:
        units.create(session, "index", "b", {"sources": []}, memory=2**60)
    loop = ClaimLoop(site, InlineRunner(), budget=64 * 2**20)
    loop._beat("working")
    with site.work.write() as session:
        session.execute(text("UPDATE workers SET taken = 1"))
    other = ClaimLoop(site, InlineRunner(), budget=64 * 2**20)
    other._beat("working")
    assert other._claim() is None
    with site.work.read() as session:
        reasons = session.execute(text("SELECT waiting FROM workers WHERE waiting IS NOT NULL")).scalars().all()
    assert len(reasons) == 1
    assert reasons[0].startswith("memory: the lightest unit needs")
