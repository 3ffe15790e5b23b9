"""Blends that name objects: URLs as paths, keys with any letters, folders, catalogs and nested blends in a store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from blendex.blend.index_path import index_path
from blendex.blend.world import World
from blendex.builds.run import run_build
from blendex.builds.site import Site
from blendex.builds.submission import Submission
from blendex.errors import BlendexError, Code
from blendex.units.receipt import read_sources
from blendex.units.verify import run as verify
from tests.support.aisstate import Cluster
from tests.support.corpus import manifest, put, sidecars, tar
from tests.support.inline import InlineRunner
from tests.support.s3 import S3

pytestmark = pytest.mark.usefixtures("fresh_memory")

OpenSite = Callable[..., Site]
ODD = [
    "a b.jsonl", "a#1.jsonl", "a?x=1.jsonl", "a%20b.jsonl", "a+b&c.jsonl", "Übung/日本.jsonl", "d//e.jsonl",
    "'q'.jsonl",
]  # fmt: skip


@pytest.fixture
def dialect() -> str:
    return "sqlite"


@pytest.fixture(params=["s3", "aistore"])
def store(request: pytest.FixtureRequest) -> tuple[Callable[[str, bytes], None], str, dict[str, object]]:
    """Puts an object; the URL of its bucket; the profile that reads it."""
    if request.param == "s3":
        s3: S3 = request.getfixturevalue("s3")
        bucket: str = request.getfixturevalue("bucket")
        return lambda key, data: s3.put(bucket, key, data), f"s3://{bucket}", s3.profile()
    cluster: Cluster = request.getfixturevalue("cluster")
    cluster.bucket("speech")
    return lambda key, data: cluster.put("speech", key, data), "ais://speech", cluster.profile()


Store = tuple[Callable[[str, bytes], None], str, dict[str, object]]


def built(site: Site, text: str, world: World | None = None) -> dict[str, object]:
    return run_build(site, Submission(text.encode(), "/b.yaml", world or World()), runner=InlineRunner())


def test_keys_with_any_letters(open_site: OpenSite, store: Store) -> None:
    upload, url, profile = store
    keys = [f"odd/{name}" for name in ODD] + [f"t/{number:02}.tar" for number in range(10)]
    for number, key in enumerate(keys):
        upload(key, manifest(number + 1) if key.endswith("l") else tar(["a.wav", "a.json"]))
    text = orjson.dumps(
        [
            {"type": "nemo", "manifest_filepath": [f"{url}/{key}" for key in keys if key.endswith("l")]},
            {
                "type": "lhotse_shar",
                "shar_path": {"cuts": [f"{url}/odd/{ODD[0]}"] * 1, "recording": [f"{url}/t/00.tar"]},
            },
        ]
    ).decode()
    site = open_site(stores={"lab": profile})
    result = built(site, text)
    assert result["state"] == "ready", result["problems"]
    mirror = Path(str(result["path"]))
    for number, key in enumerate(keys[: len(ODD)]):
        sidecar = Path(index_path(f"{url}/{key}", str(mirror / "idx")))
        assert len(sidecar.read_bytes()) == 8 * (number + 2), key
    found = verify({"mirror": str(mirror), "sources": True, **site.reading()}, lambda _: None)
    assert (found["faults"], found["changed"]) == ([], [])
    upload(keys[0], manifest(50))
    found = verify({"mirror": str(mirror), "sources": True, **site.reading()}, lambda _: None)
    assert found["changed"] == [f"{url}/{keys[0]}"]


def test_folders_catalogs_and_nested_blends(open_site: OpenSite, store: Store) -> None:
    upload, url, profile = store
    upload("shar/cuts.000000.jsonl", manifest(3))
    upload("shar/recording.000000.tar", tar(["a.wav", "a.json"]))
    for number in range(3):
        upload(f"wds/{number}.tar", tar([f"{number}.wav", f"{number}.json"]))
    catalog = {"format": "nemo-wds-shard-catalog", "version": 1, "shards": [{"url": "2.tar"}, {"url": "0.tar"}]}
    upload("wds/wds-catalog.json", orjson.dumps(catalog))
    upload("nested/inner.yaml", f"- {{type: lhotse_shar, shar_path: {url}/shar}}\n".encode())
    upload("nested/outer.yaml", b"- {type: group, input_cfg: inner.yaml}\n")
    text = (
        f"- {{type: group, input_cfg: {url}/nested/outer.yaml}}\n"
        f"- {{type: share_gpt_webdataset, data_dir: {url}/wds}}\n"
    )
    result = built(open_site(stores={"lab": profile}), text)
    assert result["state"] == "ready", result["problems"]
    assert sorted(line["path"].removeprefix(url) for line in read_sources(str(result["path"]))) == [
        "/shar/cuts.000000.jsonl",
        "/shar/recording.000000.tar",
        "/wds/0.tar",
        "/wds/2.tar",
    ]


def test_what_is_not_there_and_what_may_not_be_read(open_site: OpenSite, store: Store) -> None:
    upload, url, profile = store
    upload("m/0.jsonl", manifest(1))
    text = (
        f"- {{type: nemo, manifest_filepath: {url}/m/0.jsonl}}\n"
        f"- {{type: nemo, manifest_filepath: {url}/m/nothing.jsonl}}\n"
        "- {type: nemo, manifest_filepath: s3://elsewhere/m.jsonl}\n"
        f"- {{type: lhotse_shar, shar_path: {url}/nowhere}}\n"
    )
    site = open_site(stores={"lab": profile | {"buckets": [url.partition("://")[2]]}})
    result = built(site, text)
    assert result["state"] == "failed"
    codes = {problem["code"] for problem in result["problems"]}  # type: ignore[attr-defined]
    assert codes <= {"source_missing", "store_unknown", "folder_missing"}
    assert {"store_unknown", "folder_missing"} <= codes


def test_a_touched_object_is_read_again_and_an_untouched_one_is_not(open_site: OpenSite, store: Store) -> None:
    upload, url, profile = store
    upload("m/0.jsonl", manifest(1))
    upload("m/1.jsonl", manifest(2))
    text = f"- {{type: nemo, manifest_filepath: ['{url}/m/0.jsonl', '{url}/m/1.jsonl']}}\n"
    site = open_site(stores={"lab": profile})
    first, again = built(site, text), built(site, text)
    upload("m/1.jsonl", manifest(5))
    third = built(site, text)
    assert [result["opened"] for result in (first, again, third)] == [2, 0, 1]
    assert first["mirror"] == again["mirror"] != third["mirror"]


def test_local_mirrors_stand_for_addresses_not_for_paths(
    open_site: OpenSite, tmp_path: Path, s3: S3, bucket: str
) -> None:
    s3.put(bucket, "m/0.jsonl", manifest(4))
    s3.put(bucket, "m/1.jsonl", manifest(5))
    put(tmp_path / f"copies/{bucket}/m/0.jsonl", manifest(4))
    text = f"- {{type: nemo, manifest_filepath: ['s3://{bucket}/m/0.jsonl', 's3://{bucket}/m/1.jsonl']}}\n"
    plain = built(open_site(stores={"lab": s3.profile()}), text)
    copies = s3.profile(local_mirrors=[str(tmp_path / "copies")])
    mirrored = built(open_site(tmp_path / "other", stores={"lab": copies}), text)
    assert mirrored["state"] == "ready", mirrored["problems"]
    assert mirrored["mirror"] == plain["mirror"]
    assert sidecars(str(mirrored["path"])) == sidecars(str(plain["path"]))
    tokens = {line["path"][-7:]: line["token"] for line in read_sources(str(mirrored["path"]))}
    assert ":s3:" not in tokens["0.jsonl"]
    assert ":s3:" in tokens["1.jsonl"]


def test_a_weak_token_is_told_and_never_trusted(open_site: OpenSite, tmp_path: Path, cluster: Cluster) -> None:
    cluster.bucket("speech")
    cluster.put("speech", "m.jsonl", manifest(2))
    cluster.weak = True
    text = "- {type: nemo, manifest_filepath: 'ais://speech/m.jsonl'}\n"
    site = open_site(stores={"lab": cluster.profile()})
    first, again = built(site, text), built(site, text)
    assert (first["opened"], again["opened"]) == (1, 1)
    assert first["mirror"] == again["mirror"]
    receipt = orjson.loads(Path(str(first["path"]), "receipt.json").read_bytes())
    assert receipt["counts"]["weak_tokens"] == 1
    trusting = open_site(tmp_path / "other", stores={"lab": cluster.profile(trust_size=True)})
    first, again = built(trusting, text), built(trusting, text)
    assert (first["opened"], again["opened"]) == (1, 0)


def test_cold_objects_are_streamed_and_never_asked_for_in_batches(open_site: OpenSite, cluster: Cluster) -> None:
    cluster.bucket("cold", "s3")
    data = tar([f"{number}.wav" for number in range(40)], size=20_000)
    for number in range(20):
        cluster.put("cold", f"m/{number:02}.jsonl", manifest(3), "s3", present=False)
    cluster.put("cold", "t/0.tar", data, "s3", present=False)
    text = (
        "- {type: nemo, manifest_filepath: 's3://cold/m/_OP_00..19_CL_.jsonl'}\n"
        "- {type: nemo_tarred, manifest_filepath: 's3://cold/m/00.jsonl', tarred_audio_filepaths: 's3://cold/t/0.tar'}\n"
    )
    site = open_site(stores={"lab": cluster.profile(mode="batch")})
    result = built(site, text)
    assert result["state"] == "ready", result["problems"]
    first = next(item for item in cluster.requests if item[0] in ("get", "range") and item[1] == "t/0.tar")
    assert first[2] in ("", "bytes=0-")
    assert cluster.count("moss") == 1  # the access check's, when the tar was there


def test_a_profile_that_is_gone(open_site: OpenSite, s3: S3, bucket: str) -> None:
    s3.put(bucket, "m.jsonl", manifest(2))
    text = f"- {{type: nemo, manifest_filepath: 's3://{bucket}/m.jsonl'}}\n"
    site = open_site(stores={"lab": s3.profile()})
    mirror = built(site, text)["path"]
    with pytest.raises(BlendexError) as caught:
        verify({"mirror": mirror, "sources": True, "stores": []}, lambda _: None)
    assert caught.value.code is Code.STORE_UNKNOWN
