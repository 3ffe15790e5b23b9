"""One service with accounts: two teams, each with a folder of its own and one that both may read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from blendex.builds import teams, tokens
from blendex.builds.site import open_site
from blendex.settings import Settings
from tests.service.conftest import Service, working
from tests.support import corpus

# Nobody listens there: what is told of it is what is looked at.
STORE_SECRET = "canary-of-a-store"
STORES = {
    "lab": {
        "kind": "s3", "endpoint": "http://127.0.0.1:9", "region": "x", "buckets": ["speech-*"], "access_key": "key",
        "secret_key": STORE_SECRET, "patience_seconds": 0.2, "connect_seconds": 0.2,
    }
}  # fmt: skip


@dataclass
class Accounts:
    """The service, with a client for each of those who ask."""

    service: Service
    a: httpx.Client
    b: httpx.Client
    admin: httpx.Client
    nobody: httpx.Client
    secrets: dict[str, str]
    numbers: dict[str, int]

    def token(self, team: str, scope: str, days: float = 1.0) -> str:
        """A new token."""
        return tokens.issue(self.service.site, owner=f"o-{team}", team=team, scope=scope, days=days)[0]

    def client(self, token: str | None) -> httpx.Client:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return httpx.Client(base_url=self.service.url, headers=headers, timeout=90, trust_env=False)

    def built(self, who: httpx.Client, blend: str, **query: Any) -> dict[str, Any]:
        answer = who.post("/v1/builds", content=blend, params={"wait": 60, **query})
        assert answer.status_code == 200, answer.text
        value: dict[str, Any] = answer.json()
        return value


@pytest.fixture(scope="session")
def accounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Accounts]:
    """The service with accounts."""
    folder = tmp_path_factory.mktemp("teams")
    data = folder / "data"
    for name in ("a", "b", "shared"):
        (data / name).mkdir(parents=True)
    settings = Settings.model_validate(
        {
            "root": folder / "root", "poll_seconds": 0.05, "slots": 2, "auth": "tokens", "anonymous_lookup": [],
            "stores": STORES,
        }
    )  # fmt: skip
    site = open_site(settings, (str(data),))
    secrets: dict[str, str] = {}
    numbers: dict[str, int] = {}
    for team in ("a", "b"):
        buckets = {"lab": [f"speech-{team}"]}
        teams.set_team(site, team, roots=[str(data / team), str(data / "shared")], stores=buckets, views=[])
    for team, scope in (("a", "build"), ("b", "build"), ("a", "admin"), ("b", "lookup"), ("b", "read")):
        secrets[f"{team}/{scope}"], row = tokens.issue(site, owner=f"o-{team}", team=team, scope=scope, days=1)
        numbers[f"{team}/{scope}"] = row.id
    with working(site, data) as service:
        made = Accounts(service, service.http, service.http, service.http, service.http, secrets, numbers)
        clients = [made.client(secrets.get(key)) for key in ("a/build", "b/build", "a/admin", "")]
        made.a, made.b, made.admin, made.nobody = clients
        yield made
        for client in clients:
            client.close()


@pytest.fixture(scope="session")
def private(accounts: Accounts) -> dict[str, Any]:
    """A build of team a, over a folder that only it may read, with a name."""
    blend = corpus.corpus(accounts.service.data / "a" / "set", shards=2)
    build = accounts.built(accounts.a, blend, name="only-a")
    assert build["state"] == "ready", build
    return build


@pytest.fixture(scope="session")
def common(accounts: Accounts) -> dict[str, Any]:
    """A build of team a, over a folder that both may read."""
    blend = corpus.corpus(accounts.service.data / "shared" / "set", shards=2)
    build = accounts.built(accounts.a, blend)
    assert build["state"] == "ready", build
    return build
