"""Files on web servers: only what a profile allows is asked for, and what is read is as exact as from a store."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from blendex.blend.urls import routed
from blendex.blend.world import World
from blendex.builds.run import run_build
from blendex.builds.site import Site
from blendex.builds.submission import Submission
from blendex.errors import BlendexError, Code
from blendex.storage.endpoints import open_profile
from blendex.storage.hosts import allowed
from blendex.storage.interface import Figures
from blendex.storage.profiles import Profile
from tests.stores.reading import MANIFESTS, MENDED, OBJECTS, PATIENCE, TARS, hop, index, judge
from tests.stores.test_doctor import examined
from tests.support import faultproxy, files
from tests.support.corpus import manifest, sidecars, tar
from tests.support.files import FileServer
from tests.support.inline import InlineRunner

OpenSite = Callable[..., Site]


@pytest.fixture
def dialect() -> str:
    return "sqlite"


@pytest.fixture
def web() -> Iterator[FileServer]:
    with files.serve() as server:
        yield server


def profile(server: FileServer, **values: Any) -> Profile:
    return Profile.from_dict({"name": "web"} | server.profile(**values))


def stat(server: FileServer, path: str, **values: Any) -> Any:
    store = open_profile(profile(server, **values), Figures())
    try:
        return store.stat(f"web:{server.url}/speech/{path}")
    finally:
        store.close()


@pytest.mark.parametrize(
    ("address", "networks", "may"),
    [
        ("93.184.215.14", [], True),
        ("2606:2800:21f:cb07:6820:80da:af6b:8b2c", [], True),
        ("127.0.0.1", [], False),
        ("10.1.2.3", [], False),
        ("10.1.2.3", ["10.1.0.0/16"], True),
        ("10.2.2.3", ["10.1.0.0/16"], False),
        ("172.20.0.1", [], False),
        ("192.168.1.1", [], False),
        ("100.64.0.1", [], False),
        ("0.0.0.0", [], False),
        ("224.0.0.1", [], False),
        ("::1", [], False),
        ("fe80::1%eth0", [], False),
        ("fc00::1", [], False),
        ("::ffff:10.1.2.3", [], False),
        ("::ffff:10.1.2.3", ["10.1.0.0/16"], True),
        ("64:ff9b::a01:203", [], False),
        ("2002:0a01:0203::1", [], False),
        ("169.254.169.254", [], False),
        ("169.254.169.254", ["0.0.0.0/0"], False),
        ("::ffff:169.254.169.254", ["0.0.0.0/0", "::/0"], False),
        ("fd00:ec2::254", ["::/0"], False),
        ("168.63.129.16", [], False),
    ],
)
def test_where_a_host_may_lie(address: str, networks: list[str], may: bool) -> None:
    assert allowed(address, networks) is may


ROUTES = [("https", "data.org/corpus/", "web"), ("https", "data.org:8443/", "other"), ("s3", "data.*", "s3")]


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("https://data.org/corpus/a%20b.jsonl", "web:https://data.org/corpus/a%20b.jsonl"),
        ("HTTPS://Data.ORG/corpus/A.jsonl", "web:https://data.org/corpus/A.jsonl"),
        ("https://data.org:8443/a.tar", "other:https://data.org:8443/a.tar"),
        ("http://data.org/corpus/a.jsonl", None),
        ("https://data.org/corpus2/a.jsonl", None),
        ("https://data.org/corpus", None),
        ("https://data.org.evil.net/corpus/a.jsonl", None),
        ("https://evil.net/data.org/corpus/a.jsonl", None),
        ("https://data.org/corpus/../secret.jsonl", None),
        ("https://data.org/corpus/%2e%2E/secret.jsonl", None),
        ("https://data.org/corpus/%252e%252e/secret.jsonl", None),
        ("https://data.org/corpus/..%2fsecret.jsonl", None),
        ("https://data.org/corpus/..\\secret.jsonl", None),
    ],
)
def test_which_profile_serves_a_url(url: str, address: str | None) -> None:
    assert routed(url, ROUTES) == address


@pytest.mark.parametrize(
    "url",
    ["https://user:canary@data.org/corpus/a.jsonl", "https://data.org/corpus/a.jsonl?sig=canary",
     "https://data.org/corpus/a.jsonl#canary"],
)  # fmt: skip
def test_a_url_with_what_may_be_a_secret_is_refused_and_shown_nowhere(open_site: OpenSite, url: str) -> None:
    site = open_site(stores={"web": {"kind": "http", "prefixes": ["https://data.org/corpus/"]}})
    text = f"- {{type: nemo, manifest_filepath: '{url}'}}\n- {{type: lhotse_shar, shar_path: '{url}'}}\n"
    built = run_build(site, Submission(text.encode(), "/b.yaml", World()), runner=InlineRunner())
    assert built["state"] == "failed"
    assert {problem["code"] for problem in built["problems"]} == {"path_unsupported"}
    assert b"canary" not in orjson.dumps(built["problems"])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"prefixes": []}, "may read nothing"),
        ({"prefixes": ["https://data.org"]}, "ending in a slash"),
        ({"prefixes": ["https://me:pw@data.org/"]}, "without user name"),
        ({"prefixes": ["s3://bucket/"]}, "https://"),
        ({"networks": ["10.0.0.1/8"]}, "no network"),
        ({"buckets": ["*"]}, "prefixes instead"),
    ],
)
def test_profiles_that_cannot_be(values: dict[str, Any], words: str) -> None:
    with pytest.raises(BlendexError) as caught:
        Profile.from_dict({"name": "web", "kind": "http", "prefixes": ["https://data.org/"]} | values)
    assert caught.value.code is Code.STORE_SETTINGS
    assert words in caught.value.message


def test_without_a_profile_a_url_is_refused_by_name(open_site: OpenSite) -> None:
    text = b"- {type: nemo, manifest_filepath: 'https://data.org/a.jsonl'}\n"
    built = run_build(open_site(), Submission(text, "/b.yaml", World()), runner=InlineRunner())
    (problem,) = built["problems"]  # type: ignore[misc]
    assert problem["code"] == "store_unknown"
    assert "https://data.org/a.jsonl" in problem["message"]
    assert "kind http" in problem["next_step"]


def test_the_same_corpus_from_disk_and_from_a_web_server(
    open_site: OpenSite, data: Path, tmp_path: Path, web: FileServer
) -> None:
    put = {"m/0.jsonl": manifest(9), "m/a b.jsonl": manifest(3), "t/0.tar": tar([f"{n}.wav" for n in range(30)], 9_000)}
    for name, content in put.items():
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_bytes(content)
        web.files[f"/speech/{name}"] = content
    text = (
        f"- {{type: nemo, manifest_filepath: '{data}/m/a b.jsonl'}}\n"
        f"- {{type: nemo_tarred, manifest_filepath: {data}/m/0.jsonl, tarred_audio_filepaths: {data}/t/0.tar}}\n"
    ).encode()
    local = run_build(open_site(), Submission(text, "/b.yaml", World()), runner=InlineRunner())
    world = World(view=((str(data), f"{web.url}/speech"),))
    site = open_site(tmp_path / "remote", stores={"web": web.profile(token="canary-token")})
    remote = run_build(site, Submission(text, "/b.yaml", world), runner=InlineRunner())
    assert remote["state"] == "ready", remote["problems"]
    assert remote["mirror"] == local["mirror"]
    assert sidecars(str(remote["path"])) == sidecars(str(local["path"]))
    assert {headers.get("Authorization") for _, _, headers in web.requests} == {"Bearer canary-token"}
    assert run_build(site, Submission(text, "/b.yaml", world), runner=InlineRunner())["opened"] == 0
    web.etags = "weak"
    again = run_build(site, Submission(text, "/b.yaml", world), runner=InlineRunner())
    assert again["mirror"] == local["mirror"]
    assert again["opened"] == 3
    assert run_build(site, Submission(text, "/b.yaml", world), runner=InlineRunner())["opened"] == 3


def test_the_index_of_a_url_is_under_its_host(open_site: OpenSite, web: FileServer) -> None:
    web.files["/speech/m.jsonl"] = manifest(4)
    web.etags = "none"
    text = f"- {{type: nemo, manifest_filepath: '{web.url}/speech/m.jsonl'}}\n".encode()
    site = open_site(stores={"web": web.profile()})
    built = run_build(site, Submission(text, "/b.yaml", World()), runner=InlineRunner())
    assert built["state"] == "ready", built["problems"]
    host = web.url.removeprefix("http://")
    assert len(Path(str(built["path"]), "idx", host, "speech/m.jsonl.idx").read_bytes()) == 8 * 5
    receipt = orjson.loads(Path(str(built["path"]), "receipt.json").read_bytes())
    assert receipt["counts"]["weak_tokens"] == 1


def test_folders_have_no_listing(open_site: OpenSite, web: FileServer) -> None:
    text = f"- {{type: lhotse_shar, shar_path: '{web.url}/speech/shar'}}\n".encode()
    built = run_build(
        open_site(stores={"web": web.profile()}), Submission(text, "/b.yaml", World()), runner=InlineRunner()
    )
    (problem,) = built["problems"]  # type: ignore[misc]
    assert problem["code"] == "path_unsupported"
    assert "by its fields" in problem["next_step"]


def test_stats(web: FileServer) -> None:
    web.files |= {"/speech/a": b"12345", "/speech/empty": b""}
    found = stat(web, "a")
    assert (found.size, found.weak) == (5, False)
    web.knows_head = False
    assert stat(web, "a") == found
    assert stat(web, "empty").size == 0
    web.etags = "weak"
    assert stat(web, "a").weak
    assert not stat(web, "a", trust_size=True).weak
    with pytest.raises(BlendexError) as caught:
        stat(web, "nothing")
    assert caught.value.code is Code.SOURCE_MISSING


def test_redirects_inside_the_profile_are_followed_and_others_are_not(web: FileServer) -> None:
    with files.serve() as other:
        web.files["/speech/there"] = other.files["/else/where"] = b"12345"
        web.redirects |= {
            "/speech/near": "/speech/there", "/speech/loop": "/speech/loop", "/speech/out": "/secret",
            "/speech/far": f"{other.url}/else/where?X-Amz-Signature=canary",
            "/speech/up": "/speech/../secret",
        }  # fmt: skip
        assert stat(web, "near").size == 5
        for name in ("loop", "out", "far", "up"):
            with pytest.raises(BlendexError) as caught:
                stat(web, name)
            assert caught.value.code is Code.STORE_SETTINGS
            assert "canary" not in str(caught.value.as_dict())
        assert not other.requests
        prefixes = [f"{web.url}/speech/", f"{other.url}/else/"]
        other.files["/else/where?X-Amz-Signature=canary"] = b"12345"
        assert stat(web, "far", prefixes=prefixes, token="canary-token").size == 5
        assert "Authorization" not in other.requests[-1][2]


def test_a_host_at_an_address_that_is_not_public_is_not_asked(web: FileServer) -> None:
    web.files["/speech/a"] = b"12345"
    with pytest.raises(BlendexError) as caught:
        stat(web, "a", networks=["10.0.0.0/8"])
    assert caught.value.code is Code.STORE_SETTINGS
    assert "networks" in caught.value.message
    assert not web.requests


WEB_FAULTS = [
    *[("get", kind, MENDED) for kind in ("drop", "short", "reset", "slow", "500", "503", "412")],
    *[("range", kind, MENDED) for kind in ("drop", "short", "reset", "429", "ignore-range", "other-version")],
    ("range", "wrong-range", {Code.STORE_BROKEN}),
    ("get", "html", {Code.STORE_BROKEN}),
    ("get", "403", {Code.STORE_DENIED}),
    ("get", "404", {Code.SOURCE_MISSING}),
    ("head", "drop", MENDED),
    ("head", "403", {Code.STORE_DENIED}),
]  # fmt: skip


@pytest.mark.parametrize(("operation", "kind", "codes"), WEB_FAULTS)
def test_faults(
    web: FileServer, tmp_path: Path, right: dict[str, Any], operation: str, kind: str, codes: set[Code],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    hop(monkeypatch, operation)
    web.files |= {f"/speech/{key}": data for key, data in OBJECTS.items()}
    with faultproxy.serve(web.url) as proxy:
        key = f"m/{random.randrange(MANIFESTS):02}.jsonl" if operation == "get" else f"t/{random.randrange(TARS)}.tar"
        proxy.faults.add(operation, kind, argument=1.5, key=key)
        read_by = web.profile(prefixes=[f"{proxy.url}/speech/"], **PATIENCE)
        found = index(tmp_path, read_by, "http", f"{proxy.url.removeprefix('http://')}/speech")
        assert proxy.faults.met == [(operation, kind)]
    judge(found, right, codes)


def test_the_doctor_looks_at_web_servers(monkeypatch: pytest.MonkeyPatch, web: FileServer) -> None:
    web.files["/speech/a.jsonl"] = b"{}\n"
    found = examined(monkeypatch, web.profile(), f"{web.url}/speech/a.jsonl")
    assert {name: check["verdict"] for name, check in found.items()} == {"reach": "ok", "read": "ok", "range": "ok"}
    web.etags, web.ranges = "weak", False
    found = examined(monkeypatch, web.profile(), f"{web.url}/speech/a.jsonl")
    assert (found["token"]["verdict"], found["range"]["verdict"]) == ("wrong", "wrong")
    found = examined(monkeypatch, web.profile(networks=[]), f"{web.url}/speech/a.jsonl")
    assert found["reach"]["verdict"] == "wrong"
