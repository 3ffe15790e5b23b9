"""Quotas of teams, and what they are charged for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from blendex.builds import quotas, teams
from blendex.builds.run import work_until_ended
from blendex.builds.site import Site
from blendex.builds.submit import submit
from blendex.catalog import builds, mirrors
from blendex.catalog.audit import Actor
from blendex.catalog.usage import FILES_OF_A_MIRROR
from blendex.errors import BlendexError, Code
from tests.support import corpus
from tests.support.inline import InlineRunner


def used_by(site: Site, team: str, owner: str = "ada") -> Site:
    if team:
        teams.set_team(site, team, roots=["/"], stores={}, views=[])
    return replace(site, actor=Actor(owner, team))


def built(site: Site, data: Path, blend: str, *, team: str, owner: str = "ada") -> dict[str, Any]:
    build, _ = submit(used_by(site, team, owner), corpus.submission(blend, data))
    return work_until_ended(site, build.id, runner=InlineRunner())


def report(site: Site, team: str) -> dict[str, int]:
    with site.work.read() as session:
        usage: dict[str, int] = quotas.report(site, session, team)["usage"]
        return usage


def refused(site: Site, data: Path, blend: str, team: str) -> BlendexError:
    with pytest.raises(BlendexError) as error:
        submit(used_by(site, team), corpus.submission(blend, data))
    with site.work.read() as session:
        assert builds.running(session) == [] or error.value.code == Code.QUOTA_FULL
    return error.value


def test_mirrors_are_charged_to_those_that_hold_them_in_equal_parts(open_site: Callable[..., Site], data: Path) -> None:
    site = open_site()
    blend = corpus.corpus(data, 2)
    one = built(site, data, blend, team="one")
    alone = report(site, "one")
    with site.work.read() as session:
        row = mirrors.get(session, one["mirror"])
        assert row is not None
        assert alone["mirror_bytes"] == row.own_bytes > 0
        assert alone["mirror_files"] == (row.own_files or 0) + FILES_OF_A_MIRROR == 4 + FILES_OF_A_MIRROR
    sizes = sum(path.stat().st_size for path in (data / "a").glob("*.json"))
    assert (alone["running_builds"], alone["mirrors"]) == (0, 1)
    assert alone["bytes_per_day"] >= sizes
    assert built(site, data, blend, team="two")["mirror"] == one["mirror"]
    assert built(site, data, blend, team="two", owner="eve")["mirror"] == one["mirror"]
    half, other = report(site, "one"), report(site, "two")
    assert half["mirror_bytes"] == other["mirror_bytes"] == round(alone["mirror_bytes"] / 2)
    assert half["mirror_files"] == other["mirror_files"] == alone["mirror_files"] // 2
    assert report(site, "ada")["mirrors"] == 0  # an owner with a team is none by itself
    built(site, data, blend, team="", owner="ada")
    assert report(site, "ada")["mirror_bytes"] == round(alone["mirror_bytes"] / 3)


def test_what_is_used_up_is_refused_with_its_figures(tmp_path: Path, data: Path) -> None:
    quota = {
        "few": {"running_builds": 1, "build_sources": 4},
        "full": {"mirror_files": 1},
        "read": {"bytes_per_day": 10},
        "*": {"running_sources": 0},
    }
    site = corpus.site(tmp_path / "root", quotas=quota)
    small, large = corpus.corpus(data, 2), corpus.corpus(data, 3, name="b")
    build, _ = submit(used_by(site, "few"), corpus.submission(small, data))
    error = refused(site, data, large, "few")
    assert (error.code, error.message) == (
        Code.QUOTA_FULL, "the quota running_builds of team few is used up: 1 builds run, of 1.",
    )  # fmt: skip
    again, made = submit(used_by(site, "few"), corpus.submission(small, data))  # what runs can be joined
    assert (again.id, made) == (build.id, False)
    assert work_until_ended(site, build.id, runner=InlineRunner())["state"] == "ready"
    failed = built(site, data, large, team="few")
    assert (failed["state"], failed["error"]["code"]) == ("failed", "quota_exceeded")
    assert "is 4, and this blend names 6 sources" in failed["error"]["message"]
    built(site, data, small, team="full")
    assert refused(site, data, large, "full").code == Code.QUOTA_EXCEEDED
    built(site, data, corpus.corpus(data, 1, name="c"), team="read")
    assert refused(site, data, small, "read").code == Code.QUOTA_FULL
    assert refused(site, data, small, "unnamed").code == Code.QUOTA_FULL
    assert report(site, "nobody")["running_builds"] == 0
