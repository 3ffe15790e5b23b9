"""Every route that the service has, against everybody who may ask. The routes come from the app and its description."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute, iter_route_contexts

from blendex.builds import tokens
from service.rules import OPEN, RULES
from tests.teams.conftest import Accounts

MISSING = {
    "build": "0" * 26, "key": "f" * 64, "name": "nobody-has-this", "team": "nobody", "token": "999999", "kind": "pin",
    "holder": "nobody",
}  # fmt: skip


def routes(accounts: Accounts) -> set[tuple[str, str]]:
    found = set()
    for context in iter_route_contexts(accounts.service.app.routes):
        route = context.original_route
        # What is no route of FastAPI is the description of the API and the files of pages: no dependency guards them.
        if isinstance(route, APIRoute):
            found |= {(method, route.path) for method in route.methods}
    return found


def filled(path: str, values: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)(?::path)?\}", lambda match: values[match[1]], path)


def is_page(path: str) -> bool:
    return not path.startswith("/v1")


def ask(who: httpx.Client, method: str, path: str, **headers: str) -> httpx.Response:
    """One request. A stream that is answered is not waited for."""
    origin = {"Accept": "application/json"} | headers
    with who.stream(method, path, headers=origin, content=b"" if method != "GET" else None) as answer:
        if not answer.headers.get("content-type", "").startswith("text/event-stream"):
            answer.read()
        return answer


def test_every_route_has_a_rule_and_every_rule_a_route(accounts: Accounts) -> None:
    found = routes(accounts)
    documented = {
        (method.upper(), path)
        for path, operations in accounts.service.app.openapi()["paths"].items()
        for method in operations
    }
    assert documented <= {(method, path.replace(":path}", "}")) for method, path in found}
    assert found == set(RULES), found ^ set(RULES)


def refused(answer: httpx.Response, method: str, path: str) -> bool:
    """Whether somebody who is not known was sent away: with 401, and people on pages to the log-in."""
    if is_page(path) and method == "GET":
        return answer.status_code == 303 and answer.headers["location"].startswith("/login")
    return answer.status_code == 401


def test_whoever_is_not_known_gets_nothing(accounts: Accounts) -> None:
    late = accounts.token("a", "admin", days=1e-9)
    gone, row = tokens.issue(accounts.service.site, owner="o", team="a", scope="admin", days=1)
    tokens.revoke(accounts.service.site, row.id)
    said = set()
    for method, path in sorted(routes(accounts)):
        if RULES[method, path] == OPEN:
            continue
        address = filled(path, MISSING)
        assert refused(ask(accounts.nobody, method, address), method, path), (method, path)
        for token in (late, gone):
            answer = ask(accounts.nobody, method, address, Authorization=f"Bearer {token}")
            assert refused(answer, method, path), (method, path, token, answer.status_code)
            if not is_page(path):
                said.add(answer.json()["detail"])
    never = tokens.mint()
    for header in (f"Bearer {never}", f"bearer {never[:-1]}", "Bearer x", "Basic YTpi", "Bearer " + "x" * 5000, never):
        answer = ask(accounts.nobody, "GET", "/v1/builds", Authorization=header)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        said.add(answer.json()["detail"])
    # Which of the reasons it is tells nobody anything.
    assert len(said) == 1


@pytest.mark.parametrize("scope", ["lookup", "read", "build", "admin"])
def test_a_scope_does_what_it_includes_and_nothing_else(accounts: Accounts, scope: str) -> None:
    with accounts.client(accounts.token("b", scope)) as who:
        for method, path in sorted(routes(accounts)):
            rule = RULES[method, path]
            # What a scope includes besides is a list; each route is asked for once by the least that may.
            if rule == OPEN or rule in tokens.SCOPES[: tokens.SCOPES.index(scope)]:
                continue
            status = ask(who, method, filled(path, MISSING)).status_code
            assert (status == 403) == (rule != scope), (method, path, status)
            assert status != 401
            assert status < 500, (method, path, status)


def test_each_scope_includes_those_before_it() -> None:
    assert tokens.included("lookup") == {"lookup"}
    assert tokens.included("build") == {"lookup", "read", "build"}
    assert tokens.included("admin") == set(tokens.SCOPES) == {*RULES.values()} - {OPEN}


def without_names(answer: httpx.Response, *names: str) -> Any:
    text = answer.text
    for name in names:
        text = text.replace(name, "NAME")
    own = ("date", "x-request-id", "content-length", "set-cookie")
    kept = {key: value for key, value in answer.headers.items() if key not in own}
    return answer.status_code, re.sub(r'name="csrf" value="[0-9a-f]*"', "", text), kept


def test_what_is_anothers_is_as_if_it_were_not_there(accounts: Accounts, private: dict[str, Any]) -> None:
    theirs = {"build": private["id"], "key": private["mirror"], "name": "only-a"}
    compared = 0
    for method, path in sorted(routes(accounts)):
        if not set(re.findall(r"\{(\w+)\}", path)) & set(theirs) or (method, path) == ("PUT", "/v1/names/{name}"):
            continue
        for accept in ("text/html",) if is_page(path) else ("application/json", "text/plain"):
            there = ask(accounts.b, method, filled(path, MISSING | theirs), Accept=accept)
            not_there = ask(accounts.b, method, filled(path, MISSING), Accept=accept)
            names = sorted((*theirs.values(), *MISSING.values()), key=len, reverse=True)
            assert without_names(there, *names) == without_names(not_there, *names), (method, path)
            if method == "GET":
                assert there.status_code == 404, (method, path)
            compared += 1
    assert compared > 25
    # To its own team it is there.
    assert accounts.a.get(f"/v1/builds/{private['id']}/path").text.strip() == private["path"]
