"""Tokens, sessions, proxies, addresses: how somebody is known, and stops being known; and the record of changes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from blendex.builds import teams, tokens
from blendex.builds.site import Site
from blendex.builds.site import open_site as open_at
from blendex.catalog import audit, builds
from blendex.catalog import tokens as rows
from blendex.cli.remote import token_of
from blendex.errors import BlendexError, Code
from blendex.observability import logs
from blendex.settings import Settings
from service import callers
from tests.service.conftest import listening
from tests.support import corpus
from tests.teams.conftest import Accounts


@pytest.fixture
def now_or_never(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a token proves is asked for every time: nobody waits for seconds in a test."""
    monkeypatch.setattr(callers, "KEPT_SECONDS", 0.0)


def test_a_token_can_be_told_from_any_other_text() -> None:
    made = {tokens.mint() for _ in range(200)}
    assert len(made) == 200
    assert all(tokens.well_formed(item) and re.fullmatch(r"bx_[0-9A-Za-z]{49}", item) for item in made)
    one = min(made)
    flipped = [one[:at] + ("a" if one[at] != "a" else "b") + one[at + 1 :] for at in range(3, len(one))]
    others = (one[:-1], one + "a", one.replace("bx_", "by_"), "", "bx_" + "0" * 49)
    assert not any(map(tokens.well_formed, (*flipped, *others)))


def test_what_is_kept_of_a_token_lets_nobody_in(open_site: Callable[..., Site]) -> None:
    site = open_site()
    teams.set_team(site, "t", roots=["/data"], stores={}, views=[])
    secret, row = tokens.issue(site, owner="ada", team="t", scope="build", days=1, label="x")
    assert row.hash == tokens.digest(secret)
    with site.work.write() as session:
        shown = rows.find(session, row.hash)
        assert shown is not None
        assert (shown.owner, shown.team, shown.scope, shown.valid, shown.noted) == ("ada", "t", "build", True, False)
        assert shown.rules is not None
        assert shown.rules.roots == ["/data"]
        rows.note_use(session, row.id)
        assert rows.find(session, row.hash).noted  # type: ignore[union-attr]
        opened = tokens.open_session(session, site.who, shown, 60)
        session_row = rows.find(session, tokens.digest(opened))
        assert session_row is not None
        assert (session_row.token, session_row.valid) == (row.id, True)
        assert rows.find(session, secret) is None
        assert [item.id for item in rows.page(session)] == [row.id]
    again = tokens.revoke(site, row.id)
    assert again.revoked_at is not None
    assert tokens.revoke(site, row.id).revoked_at == again.revoked_at
    with site.work.read() as session:
        assert not rows.find(session, row.hash).valid  # type: ignore[union-attr]
        assert rows.find(session, tokens.digest(opened)) is None
        done = [(item.action, item.object, item.owner) for item in audit.page(session)]
        assert audit.page(session, owner="nobody") == audit.page(session, before=1) == []
    # One row for each change, and none for what changed nothing.
    assert done == [
        ("token.revoke", str(row.id), "local"), ("session.open", str(row.id), "local"),
        ("token.create", str(row.id), "local"), ("team.set", "t", "local"),
    ]  # fmt: skip
    late, _ = tokens.issue(site, owner="ada", team="t", scope="read", days=1e-9)
    with site.work.read() as session:
        assert not rows.find(session, tokens.digest(late)).valid  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"team": "none"}, Code.NOT_FOUND), ({"scope": "all"}, Code.BAD_REQUEST), ({"days": 0}, Code.BAD_REQUEST),
        ({"owner": "a b"}, Code.BAD_REQUEST), ({"label": "\n"}, Code.BAD_REQUEST),
        ({"days": float("nan")}, Code.BAD_REQUEST),
    ],
)  # fmt: skip
def test_a_token_that_means_nothing_is_not_made(accounts: Accounts, values: dict[str, Any], code: Code) -> None:
    wish: dict[str, Any] = {"owner": "ada", "team": "a", "scope": "read", "days": 1} | values
    with pytest.raises(BlendexError) as caught:
        tokens.issue(accounts.service.site, **wish)
    assert caught.value.code is code


@pytest.mark.usefixtures("now_or_never")
def test_admins_make_and_revoke_tokens_over_the_api(accounts: Accounts) -> None:
    wish = {"owner": "eve", "team": "b", "scope": "read", "days": 1}
    made = accounts.admin.post("/v1/tokens", json=wish)
    assert made.status_code == 201
    with accounts.client(made.json()["token"]) as who:
        assert who.get("/v1/builds").status_code == 200
        listed = accounts.admin.get("/v1/tokens?limit=200")
        assert made.json()["token"] not in listed.text
        assert next(row for row in listed.json()["tokens"] if row["id"] == made.json()["id"])["used_at"] is not None
        assert accounts.admin.delete(f"/v1/tokens/{made.json()['id']}").status_code == 200
        assert who.get("/v1/builds").status_code == 401
    for wrong in (wish | {"days": "1"}, wish | {"more": 1}, {"owner": "eve"}, []):
        assert accounts.admin.post("/v1/tokens", json=wrong).status_code == 400
    assert accounts.admin.put("/v1/teams/Not-A-Team", json={"roots": ["/x"]}).status_code == 400
    assert accounts.admin.put("/v1/teams/c", json={"roots": ["x"]}).status_code == 400
    assert accounts.admin.put("/v1/teams/c", json={"roots": ["/x"]}).json()["version"] == 1
    assert {team["name"] for team in accounts.admin.get("/v1/teams").json()["teams"]} >= {"a", "b", "c"}


def test_every_change_leaves_one_row_with_who_and_whence(accounts: Accounts, private: dict[str, Any]) -> None:
    build = accounts.built(accounts.a, corpus.corpus(accounts.service.data / "a" / "audited", shards=1))
    number = {"X-Request-Id": "audit-test-1"}
    assert accounts.a.put("/v1/names/audited", json={"build": build["id"]}, headers=number).status_code == 200
    assert accounts.a.post(f"/v1/builds/{build['id']}/packs", params={"packs": "none"}).status_code in (200, 202)
    assert accounts.a.post(f"/v1/builds/{build['id']}/cancel").status_code == 409
    assert accounts.b.post(f"/v1/builds/{build['id']}/cancel").status_code == 404
    of_build = accounts.admin.get("/v1/audit", params={"object": build["id"]}).json()["audit"]
    assert [row["action"] for row in of_build] == ["build.pack", "build.submit"]
    row = accounts.admin.get("/v1/audit", params={"object": "audited"}).json()["audit"][0]
    assert (row["owner"], row["team"], row["token"]) == ("o-a", "a", accounts.numbers["a/build"])
    assert (row["action"], row["request"], row["address"]) == ("name.set", "audit-test-1", "127.0.0.1")
    page = accounts.admin.get("/v1/audit", params={"limit": 1}).json()
    assert accounts.admin.get("/v1/audit", params={"before": page["next"]}).json()["audit"][0]["id"] < page["next"]


def csrf(page: httpx.Response) -> str:
    found = re.search(r'name="csrf" value="([0-9a-f]+)"', page.text)
    assert found is not None
    return found[1]


@pytest.mark.usefixtures("now_or_never")
def test_people_log_in_with_a_token_and_out(accounts: Accounts, private: dict[str, Any]) -> None:
    with accounts.client(None) as person:
        away = person.get(f"/builds/{private['id']}?problems=1")
        assert away.status_code == 303
        page = person.get(away.headers["location"])
        assert page.status_code == 200
        fields = {"csrf": csrf(page), "next": f"/builds/{private['id']}", "token": accounts.secrets["b/lookup"]}
        for token in (accounts.secrets["b/lookup"], tokens.mint(), "nonsense", ""):
            answer = person.post("/login", data=fields | {"token": token})
            assert answer.status_code == 401
            assert not token or token not in answer.text
        good = fields | {"token": accounts.secrets["a/build"]}
        assert person.post("/login", data=good | {"csrf": "0" * 32}).status_code == 400
        answer = person.post("/login", data=good | {"next": "//evil.example/"})
        assert answer.headers["location"] == "/builds"
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert "bx_" not in cookie
        page = person.get(f"/builds/{private['id']}")
        assert "o-a" in page.text
        assert "Log out" in page.text
        assert 'href="/health"' not in page.text
        assert "bx_" not in page.text
        # A form of a page does what its person may do.
        retried = person.post(f"/builds/{private['id']}/retry", data={"csrf": csrf(page)})
        assert retried.status_code == 409
        new = person.get("/builds/new")
        assert str(accounts.service.data / "a") in new.text
        assert str(accounts.service.data / "b") not in new.text
        kept = person.cookies["blendex_session"]
        assert person.post("/logout", data={"csrf": csrf(page)}).status_code == 303
        assert person.get("/builds").status_code == 303
        person.cookies.set("blendex_session", kept, domain="127.0.0.1")
        assert person.get("/builds").status_code == 303


def test_a_revoked_token_ends_its_streams(accounts: Accounts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "KEPT_SECONDS", 0.05)
    secret, row = tokens.issue(accounts.service.site, owner="ada", team="a", scope="read", days=1)
    with accounts.client(secret) as who, who.stream("GET", "/builds/live") as stream:
        lines = stream.iter_lines()
        assert next(lines)
        tokens.revoke(accounts.service.site, row.id)
        for _ in lines:
            pass  # it ends


def broken_build(site: Site) -> str:
    """A build that failed, of a team."""
    with site.work.write() as session:
        build, _ = builds.create(session, owner="o", team="a", identity="2" * 64, submission={}, file="x", options={})
        build.state = "failed"
        build.error = BlendexError(Code.TAR_EMPTY, "it is empty.", file="/data/secret.tar").as_dict()
        return build.id


def test_a_proxy_that_is_listed_says_who_asks(tmp_path: Path, accounts: Accounts) -> None:
    def site(folder: str, **values: Any) -> Site:
        settings = Settings.model_validate({"root": tmp_path / folder, "auth": "tokens", **values})
        made = open_at(settings, (str(tmp_path),))
        teams.set_team(made, "a", roots=[str(tmp_path)], stores={}, views=[])
        return made

    said = {"X-Forwarded-User": "ada", "X-Forwarded-Team": "a"}
    here = {"networks": ["127.0.0.0/8"], "scope": "read"}
    with listening(site("listed", proxy=here), tmp_path, lambda: None) as service:
        assert service.http.get("/v1/builds", headers=said).status_code == 200
        assert "ada" in service.http.get("/builds", headers=said).text
        assert service.http.post("/v1/builds", headers=said, content="- x").status_code == 403
        assert service.http.get("/v1/builds", headers=said | {"X-Forwarded-Team": "nobody"}).status_code == 401
        assert service.http.get("/v1/builds", headers={"X-Forwarded-User": "ada"}).status_code == 401
        twice = [*said.items(), ("X-Forwarded-User", "root")]
        assert service.http.get("/v1/builds", headers=twice).status_code == 401
    elsewhere = {"networks": ["10.0.0.0/8"], "scope": "read"}
    with listening(site("other", proxy=elsewhere), tmp_path, lambda: None) as service:
        assert service.http.get("/v1/builds", headers=said).status_code == 401
        # Anybody on this machine may look up; what was passed on comes from elsewhere.
        path = f"/v1/builds/{'0' * 26}/path"
        assert service.http.get(path).status_code == 404
        failed = broken_build(service.site)
        told = service.http.get(f"/v1/builds/{failed}/path")
        assert told.status_code == 409
        assert "secret" not in told.text
        assert service.http.get("/v1/builds").status_code == 401
        for name in ("X-Forwarded-For", "Forwarded", "X-Real-Ip"):
            assert service.http.get(path, headers={name: "127.0.0.1"}).status_code == 401
        assert service.http.get(path, headers={"Authorization": f"Bearer {tokens.mint()}"}).status_code == 401


def test_links_come_from_the_setting_and_never_from_a_request(accounts: Accounts, private: dict[str, Any]) -> None:
    page = accounts.a.get(f"/builds/{private['id']}", headers={"Host": "evil.example"})
    assert "evil.example" not in page.text
    assert accounts.service.url in page.text
    assert "-H @" in page.text
    assert "bx_" not in page.text


def test_a_token_for_the_command_line_comes_from_a_file(tmp_path: Path) -> None:
    secret = tokens.mint()
    for text in (secret + "\n", f"Authorization: Bearer {secret}\n"):
        (tmp_path / "token").write_text(text)
        assert token_of({"BLENDEX_TOKEN_FILE": str(tmp_path / "token")}) == secret
    assert token_of({"BLENDEX_TOKEN": secret, "BLENDEX_TOKEN_FILE": "/nowhere"}) == secret
    assert token_of({}) is None
    for wrong in ({"BLENDEX_TOKEN_FILE": "/nowhere"}, {"BLENDEX_TOKEN": "two words"}, {"BLENDEX_TOKEN": ""}):
        with pytest.raises(BlendexError):
            token_of(wrong)


def test_logs_know_how_a_token_begins() -> None:
    secret, session = tokens.mint(), tokens.mint(tokens.SESSION)
    told = logs._redact(None, "info", {"event": f"asked with {secret}", "url": f"/x?{session}", "cookie": "c", "n": 1})
    assert told == {"event": "asked with bx_…", "url": "/x?bx_…", "cookie": "…", "n": 1}


def test_what_a_token_proved_is_forgotten_in_time() -> None:
    assert callers.KEPT_SECONDS <= 10
