"""A service reads what its profiles name, and nothing that a client or its own environment says."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from blendex.builds.loop import ClaimLoop
from blendex.builds.profiles import profiles_for
from blendex.builds.site import open_site
from blendex.errors import BlendexError, Code
from blendex.runtime.slots import Slots
from blendex.settings import Settings
from tests.service.conftest import Service, listening
from tests.support.aisstate import Cluster
from tests.support.corpus import corpus


@pytest.fixture
def service(tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """A service with one profile that may read one bucket, and an environment that says otherwise."""
    monkeypatch.setenv("AIS_ENDPOINT", "http://127.0.0.1:9")
    for name in ("speech", "private"):
        cluster.bucket(name)
    stores = {"lab": cluster.profile(buckets=["speech"], patience_seconds=5)}
    settings = Settings.model_validate({"root": tmp_path / "root", "poll_seconds": 0.05, "stores": stores})
    site = open_site(settings, (str(tmp_path / "nothing"),))
    loop = ClaimLoop(site, Slots(1, "blendex.units"))
    worker = threading.Thread(target=loop.run)
    worker.start()
    try:
        with listening(site, tmp_path / "data", loop.wake, alive=worker.is_alive) as running:
            yield running
    finally:
        loop.stop()
        worker.join()


def test_a_build_through_a_view(service: Service, cluster: Cluster) -> None:
    blend = corpus(service.data, shards=3)
    cluster.put_tree("speech", service.data, "set/")
    built: dict[str, Any] = service.built(blend, view=f"{service.data}=ais://speech/set")
    assert built["state"] == "ready", built["problems"]
    assert {item["verdict"] for item in built["access"]["datasets"]} == {"batch"}
    mirror = service.http.get(f"/v1/mirrors/{built['mirror']}").json()
    assert mirror["access"] == built["access"]
    lines = service.http.get(f"/v1/builds/{built['id']}/path", params={"format": "export"}).text.splitlines()
    assert "export USE_AIS_GET_BATCH='true'" in lines
    assert f"export AIS_ENDPOINT='{cluster.url}'" in lines
    explicit = service.built(blend, view=f"{service.data}=lab:ais://speech/set")
    assert explicit["mirror"] == built["mirror"]


@pytest.mark.parametrize("real", ["ais://private", "lab:ais://private", "other:ais://speech", "s3://speech-2"])
def test_a_view_opens_nothing(service: Service, cluster: Cluster, real: str) -> None:
    blend = corpus(service.data, shards=1)
    cluster.put_tree("private", service.data)
    built = service.built(blend, view=f"{service.data}={real}")
    assert built["state"] == "failed"
    assert {problem["code"] for problem in built["problems"]} == {"store_unknown"}
    assert not cluster.requests


def test_a_view_that_means_nothing(service: Service) -> None:
    answer = service.http.post("/v1/builds", content="[]", params={"view": "/a=b"})
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


def test_only_a_users_own_program_looks_into_its_environment(tmp_path: Path) -> None:
    environment = {"AIS_ENDPOINT": "http://ais:51080", "AIS_AUTHN_TOKEN": "t", "USE_AIS_GET_BATCH": "True"}
    (profile,) = profiles_for(Settings(root=tmp_path), True, environment)
    assert (profile.kind, profile.endpoint, profile.token) == ("aistore", "http://ais:51080", "t")
    assert profile.mode == "batch"
    assert profiles_for(Settings(root=tmp_path), False, environment) == ()
    assert open_site(Settings(root=tmp_path), ("/",)).stores == ()


@pytest.mark.parametrize(
    ("environment", "mode"),
    [
        ({}, "auto"),
        ({"USE_AIS_GET_BATCH": "true"}, "batch"),
        ({"USE_AIS_GET_BATCH": "TRUE", "USE_AIS_INDIVIDUAL_GETS": "true"}, "individual"),
        ({"USE_AIS_INDIVIDUAL_GETS": "true"}, "auto"),
        ({"USE_AIS_GET_BATCH": "1"}, "auto"),
        ({"USE_AIS_GET_BATCH": "true", "AIS_MODE": "auto"}, "auto"),
    ],
)
def test_the_switches_mean_what_they_mean_to_training(tmp_path: Path, environment: dict[str, str], mode: str) -> None:
    stores = {"lab": {"kind": "aistore", "endpoint": "http://a", "buckets": ["b"]}}
    settings = Settings.model_validate({"root": tmp_path, "stores": stores})
    (profile,) = profiles_for(settings, False, environment)
    assert profile.mode == mode


def test_a_mode_that_is_none_is_told(tmp_path: Path) -> None:
    environment = {"AIS_ENDPOINT": "http://ais:51080", "AIS_MODE": "batches"}
    with pytest.raises(BlendexError) as caught:
        profiles_for(Settings(root=tmp_path), True, environment)
    assert caught.value.code is Code.STORE_SETTINGS
    assert "AIS_MODE is batches" in caught.value.message


def test_a_stores_file_and_secrets_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from a file\n")
    file = tmp_path / "stores.yaml"
    file.write_text(
        f"lab:\n  kind: aistore\n  endpoint: http://ais\n  buckets: [a, 'b-*']\n  token: file:{tmp_path}/token\n"
        "cold:\n  kind: s3\n  buckets: [c]\n  access_key: env:KEY\n  secret_key: env:SECRET\n"
    )
    settings = Settings(root=tmp_path, stores_file=file)
    lab, cold = profiles_for(settings, False, {"KEY": "k", "SECRET": "s", "AWS_PROFILE": "p"})
    assert (lab.token, cold.access_key, cold.secret_key, dict(cold.environment)) == ("from a file", "k", "s", {})
    assert "from a file" not in repr(lab)
    assert lab.routes() == [
        (scheme, name, "lab") for scheme in ("ais", "s3", "gs", "az", "oci") for name in ("a", "b-*")
    ]
