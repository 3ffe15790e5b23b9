"""Two teams, one service: what either sees of the other is nothing, and what both may read they share."""

from __future__ import annotations

import io
import os
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from blendex.builds import describe, teams
from blendex.builds.indexing import prepare
from blendex.builds.planning import Row, _payload
from blendex.builds.site import open_site
from blendex.catalog import builds, mirrors, units
from blendex.catalog import teams as rows
from blendex.catalog.audit import Actor
from blendex.catalog.models import Unit
from tests.support import corpus
from tests.teams.conftest import Accounts

YAML = {"Content-Type": "application/yaml"}
LISTS = ("/v1/builds", "/v1/mirrors", "/v1/names", "/builds", "/mirrors", "/sources")


@pytest.mark.usefixtures("common")
def test_lists_and_pages_show_only_ones_own(accounts: Accounts, private: dict[str, Any]) -> None:
    secrets = (private["id"], private["mirror"], "/data/a/")
    asked = ("/builds?owner=o-a", "/mirrors?text=only-a", "/v1/builds?owner=o-a", "/v1/builds?text=blend")
    for address in (*LISTS, *asked):
        seen = accounts.b.get(address)
        assert seen.status_code == 200, address
        assert not [secret for secret in secrets if secret in seen.text], address
        assert "only-a" not in seen.text or "only-a" in address
    assert private["id"] in accounts.a.get("/v1/builds").text
    assert private["mirror"] in accounts.a.get("/mirrors?text=only-a").text
    assert "/data/a/" in accounts.a.get("/sources").text
    # The operators see both.
    assert private["id"] in accounts.admin.get("/v1/builds").text


def test_a_mirror_is_seen_by_those_who_may_read_all_its_sources(
    accounts: Accounts, private: dict[str, Any], common: dict[str, Any]
) -> None:
    keys = {row["key"] for row in accounts.b.get("/v1/mirrors").json()["mirrors"]}
    assert common["mirror"] in keys
    assert private["mirror"] not in keys
    path = accounts.b.get(f"/v1/mirrors/{common['mirror']}/path")
    assert path.text.strip() == common["path"]
    # The mirror, but neither the build that made it nor what that one left out.
    assert accounts.b.get(f"/v1/builds/{common['id']}").status_code == 404
    page = accounts.b.get(f"/mirrors/{common['mirror']}")
    assert page.status_code == 200
    assert common["id"] not in page.text
    assert "excluded" not in accounts.b.get(f"/v1/mirrors/{common['mirror']}/receipt").json()
    assert accounts.b.get(f"/mirrors/{common['mirror']}?against={private['id']}").text.count(private["id"]) <= 3
    sources = accounts.b.get("/sources").text
    assert "/data/shared/" in sources


def test_teams_share_the_mirror_of_what_both_may_read(accounts: Accounts, common: dict[str, Any]) -> None:
    build = accounts.built(accounts.b, corpus.corpus(accounts.service.data / "shared" / "set", shards=2))
    assert build["id"] != common["id"]
    assert build["mirror"] == common["mirror"]


def tar(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def test_no_way_in_reads_what_is_anothers(accounts: Accounts, private: dict[str, Any]) -> None:
    data = accounts.service.data
    corpus.put(data / "a" / "nested.yaml", b"- type: nemo\n  manifest_filepath: /canary-of-a/x.json\n")
    foreign = corpus.corpus(data / "a" / "set", shards=2)
    absent = foreign.replace(str(data / "a" / "set"), str(data / "a" / "absent"))
    (data / "b" / "link").symlink_to(data / "a" / "set")
    link = foreign.replace(str(data / "a" / "set"), str(data / "b" / "link"))
    view = {"view": f"/mine={data}/a/set"}
    seen_by_view = foreign.replace(str(data / "a" / "set"), "/mine")
    nested = f"- type: group\n  input_cfg: {data}/a/nested.yaml\n"

    def told(blend: str, **query: str) -> list[tuple[int, str]]:
        found = []
        for address, more in (("/v1/builds", {"dry_run": "1"}), ("/v1/mirrors/resolve", {}), ("/v1/lint", {})):
            answer = accounts.b.post(address, content=blend, params=query | more, headers=YAML)
            assert "canary-of-a" not in answer.text
            found.append((answer.status_code, answer.text))
        return found

    for blend, query in ((foreign, {}), (link, {}), (seen_by_view, view)):
        plan = accounts.b.post("/v1/builds", params={"dry_run": "1", **query}, content=blend, headers=YAML).json()
        assert {item["code"] for item in plan["problems"]} == {"path_outside_roots"}
        assert plan["sources"] == plan["reused"] == plan["bytes"] == 0
        assert plan["mirror"] is None
        told(blend, **query)
        build = accounts.built(accounts.b, blend, lint="off", **query)
        assert (build["state"], build["mirror"]) == ("failed", None)
    # Whether there is such a file is not told.
    for one, other in zip(told(foreign), told(absent), strict=True):
        assert one[0] == other[0]
        assert one[1].replace("/a/set", "/a/absent") == other[1]
    for body, kind in (
        (b'{"path": "%s/a/nested.yaml"}' % str(data).encode(), "application/json"),
        (nested.encode(), "application/yaml"),
        (tar({"main.yaml": nested.encode()}), "application/x-tar"),
    ):
        for address in ("/v1/builds?wait=60", "/v1/builds?dry_run=1", "/v1/mirrors/resolve", "/v1/lint"):
            answer = accounts.b.post(address, content=body, headers={"Content-Type": kind})
            assert "canary-of-a" not in answer.text, (address, kind)
            assert "path_outside_roots" in answer.text or address in ("/v1/lint", "/v1/mirrors/resolve"), answer.text
    # Its own team is told what is in it.
    own = accounts.a.post("/v1/builds?dry_run=1", content=nested, headers=YAML)
    assert "canary-of-a" in own.text


def test_a_link_turned_after_the_plan_leads_out_of_no_root(accounts: Accounts, private: dict[str, Any]) -> None:
    site = accounts.service.site
    with site.work.read() as session:
        own = teams.narrowed(site, rows.get(session, "b"))
        none = teams.narrowed(site, rows.get(session, "nobody"))
    data = accounts.service.data
    assert own.roots == (str(data / "b"), str(data / "shared"))
    assert none.roots == none.stores == ()
    # Units carry the team of whoever planned them, and are read within its roots.
    row = Row("jsonl", "x", str(data / "b" / "x"), "1:1:1:1", 1)
    with site.work.write() as session:
        number = units.create(session, "index", private["id"], _payload([row], "", "b"), memory=1, priority=-9)
        unit = session.get_one(Unit, number)
        call = prepare(site, unit)
        units.drop(session, number)
    assert call.arguments["roots"] == list(own.roots)


def test_a_name_belongs_to_the_team_that_made_it(accounts: Accounts, private: dict[str, Any]) -> None:
    build = accounts.built(accounts.b, corpus.corpus(accounts.service.data / "b" / "set", shards=1), name="only-b")
    assert accounts.b.get("/v1/names/only-b").json()["build"] == build["id"]
    other = corpus.corpus(accounts.service.data / "b" / "other", shards=1)
    for answer in (
        accounts.b.put("/v1/names/only-a", json={"build": build["id"]}),
        accounts.b.post("/v1/builds", content=other, params={"name": "only-a"}),
    ):
        assert answer.status_code == 409
        assert answer.json()["detail"] == "the name only-a is taken."
        assert private["id"] not in answer.text
    assert accounts.a.get("/v1/names/only-a").json()["build"] == private["id"]
    assert accounts.b.put("/v1/names/mine", json={"build": private["id"]}).status_code == 404
    assert accounts.b.put("/v1/names/mine", json={"build": build["id"]}).status_code == 200


def test_whose_a_build_and_a_name_are_outlives_the_database(
    accounts: Accounts, private: dict[str, Any], tmp_path: Path
) -> None:
    there = accounts.service.site
    settings = there.settings.model_copy(update={"database_url": f"sqlite:///{tmp_path}/again.sqlite"})
    again = open_site(settings, there.roots)
    with again.work.read() as session:
        build, name = builds.get(session, private["id"]), mirrors.name(session, "only-a")
        assert build is not None
        assert name is not None
        assert (build.team, name.team) == ("a", "a")
    again.work.engine.dispose()


def test_views_of_a_team_apply_to_all_it_posts(accounts: Accounts) -> None:
    data = accounts.service.data
    (data / "v").mkdir()
    blend = corpus.corpus(data / "v" / "set", shards=1)
    teams.set_team(accounts.service.site, "v", roots=[str(data / "v")], stores={}, views=[("/job", str(data / "v"))])
    with accounts.client(accounts.token("v", "build")) as who:
        build = accounts.built(who, blend.replace(str(data / "v"), "/job"))
        assert build["state"] == "ready", build
        # Less is a matter of one row, and of the next request that reads it.
    teams.set_team(accounts.service.site, "v", roots=[], stores={}, views=[("/job", str(data / "v"))])
    with accounts.client(accounts.token("v", "build")) as who:
        plan = who.post("/v1/builds?dry_run=1", content=blend, headers=YAML).json()
        assert {item["code"] for item in plan["problems"]} == {"path_outside_roots"}
        assert who.get(f"/v1/mirrors/{build['mirror']}").status_code == 404
        # What was built for it stays its own.
        assert who.get(f"/v1/builds/{build['id']}/path").text.strip() == build["path"]


def test_a_unit_that_is_shared_tells_nobody_what_else_is_in_it(accounts: Accounts) -> None:
    site, data = accounts.service.site, accounts.service.data
    sources = [["jsonl", f"{data}/a/secret.json", f"{data}/a/secret.json", False, ""],
               ["jsonl", f"{data}/shared/s.json", f"{data}/shared/s.json", False, ""]]  # fmt: skip
    with site.work.write() as session:
        build, _ = builds.create(
            session, owner="o-b", team="b", identity="1" * 64, submission={}, file="x", options={}, priority=-9
        )
        unit = units.create(session, "index", build.id, {"compat": "", "sources": sources}, memory=2**60, priority=-9)
        units.subscribe(session, unit, build.id, 1)
        build.state = "indexing"
        session.flush()
        narrow = replace(teams.site_of(site, "b"), actor=Actor("o-b", "b"))
        told = describe.stragglers(narrow, session, build)
        every = describe.stragglers(site, session, build)
        session.rollback()
    assert [(item["first"], item["sources"]) for item in told] == [(f"{data}/shared/s.json", 1)]
    assert every[0]["first"] == f"{data}/a/secret.json"


@pytest.mark.parametrize("root", ["/", "/data"])
def test_roots_and_buckets_of_a_team_are_never_more_than_the_services(tmp_path: Path, root: str) -> None:
    inner, outer = tmp_path / "in", tmp_path / "out"
    for folder in (inner, outer):
        folder.mkdir()
    (inner / "link").symlink_to(outer)
    ours = [str(inner)]
    assert teams.common_roots(ours, [str(tmp_path)]) == (str(inner),)
    assert teams.common_roots(ours, [str(inner / "deeper")]) == (str(inner / "deeper"),)
    assert teams.common_roots(ours, [str(outer), str(inner / "link"), f"{inner}x"]) == ()
    assert teams.common_roots([root], []) == ()
    assert teams.common_roots(["/"], ["/etc"]) == (os.path.realpath("/etc"),)
    assert teams.common_buckets(["speech-*"], ["*"]) == ("speech-*",)
    assert teams.common_buckets(["speech-*"], ["speech-a*", "other"]) == ("speech-a*",)
    assert teams.common_buckets(["a?"], ["a*"]) == ("a?",)
    assert teams.common_buckets(["a[12]"], ["a?"]) == ()
    web = ["https://a/data/", "https://b/"]
    assert teams.common_prefixes(web, ["https://a/", "https://b/x/", "https://c/"]) == ("https://a/data/", "https://b/x/")
