"""Whole objects are compared with the checksum that their store tells; what cannot be compared is said."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from blendex.errors import BlendexError, Code
from blendex.storage.checksums import matches, summer
from blendex.storage.root import Root
from blendex.units.index import run
from tests.stores.reading import PATIENCE
from tests.support import faultproxy
from tests.support.aisstate import Cluster
from tests.support.corpus import manifest
from tests.support.s3 import S3

pytestmark = pytest.mark.usefixtures("fresh_memory")

SMALL, LARGE = manifest(40), manifest(20_000)  # in one piece, and in pieces: above what is read ahead
assert len(LARGE) > 2**20


# Of the nine digits, as catalogs of checksums have them.
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("crc32", "cbf43926"),
        ("crc32c", "e3069283"),
        ("crc64nvme", "ae8b14860a799888"),
        ("xxhash2", "8cb841db40e6ae83"),
        ("xxhash", "8cb841db40e6ae83"),
        ("md5", "25f9e794323b453885f5181f1b624d0b"),
        ("sha1", "f7c3bc1d808e04732adf679965ccc34ca7ae3441"),
        ("sha256", "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"),
    ],
)
def test_values(kind: str, value: str) -> None:
    made = summer(kind)
    assert made is not None
    for piece in (b"123", memoryview(b"456"), b"", b"789"):
        made.update(piece)
    assert made.hexdigest() == value
    assert matches(b"123456789", kind, value)
    assert not matches(b"123456780", kind, value)


def test_a_kind_that_is_not_known_says_nothing() -> None:
    assert summer("composite") is None
    assert matches(b"", "composite", "abc-2")


def test_without_its_library_a_kind_is_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "awscrt", None)
    monkeypatch.setitem(sys.modules, "xxhash", None)
    assert [summer(kind) for kind in ("crc32c", "crc64nvme", "xxhash2")] == [None, None, None]


def index(root: Path, profile: dict[str, Any], *urls: str) -> dict[str, Any]:
    Root(root).prepare()
    return run(
        {
            "root": str(root), "roots": [], "stores": [profile | PATIENCE | {"name": "lab"}], "attempt": "b.1-1",
            "compat": "", "sources": [["jsonl", url, f"lab:{url}", False, ""] for url in urls],
        },
        lambda _: None,
    )  # fmt: skip


def judge(found: dict[str, Any], times: int, urls: list[str], kind: str) -> None:
    """One wrong answer is read again; two are an error that names the object, the cause, and what now."""
    if times == 1:
        assert found["failures"] == []
        assert [entry["records"] for entry in found["entries"]] == [40, 20_000]
        return
    # Sources are read side by side: which one is given up first is nobody's promise.
    for item, url in zip(sorted(found["failures"], key=lambda item: urls.index(item["path"])), urls, strict=True):
        error = BlendexError.from_dict(item["error"])
        assert error.code is Code.STORE_BROKEN
        assert error.file == url
        assert "checksum mismatch" in error.message
        assert kind in error.message
        assert error.next_step


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("kind", ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"])
def test_of_s3(s3: S3, bucket: str, tmp_path: Path, kind: str, times: int) -> None:
    urls = [f"s3://{bucket}/small.jsonl", f"s3://{bucket}/large.jsonl"]
    for url, data in zip(urls, (SMALL, LARGE), strict=True):
        s3.client.put_object(Bucket=bucket, Key=url.rpartition("/")[2], Body=data, ChecksumAlgorithm=kind)
    with faultproxy.serve(s3.url) as proxy:
        # The first answer of a large object ends with its head; it is read by a second one, and by ranges.
        proxy.faults.add("get", "wrong-bytes", times, key="small.jsonl")
        proxy.faults.add("get", "wrong-bytes", 9 if times > 1 else 1, key="large.jsonl", skip=1)
        proxy.faults.add("range", "wrong-bytes", 9 if times > 1 else 1, key="large.jsonl")
        found = index(tmp_path, s3.profile(endpoint=proxy.url), *urls)
        assert proxy.faults.met
    judge(found, times, urls, kind.lower())
    assert found["figures"]["bytes_read"] <= 2.2 * (len(SMALL) + len(LARGE))


def test_of_an_upload_in_parts(s3: S3, bucket: str, tmp_path: Path) -> None:
    client, where = s3.client, {"Bucket": bucket, "Key": "parts.jsonl"}
    upload = client.create_multipart_upload(**where, ChecksumAlgorithm="SHA256")["UploadId"]
    part = LARGE * 5
    parts = [
        client.upload_part(**where, UploadId=upload, PartNumber=number, Body=part, ChecksumAlgorithm="SHA256")
        for number in (1, 2)
    ]
    listed = [
        {"PartNumber": number, "ETag": item["ETag"], "ChecksumSHA256": item["ChecksumSHA256"]}
        for number, item in enumerate(parts, 1)
    ]
    client.complete_multipart_upload(**where, UploadId=upload, MultipartUpload={"Parts": listed})
    found = index(tmp_path, s3.profile(), f"s3://{bucket}/parts.jsonl")
    assert [entry["records"] for entry in found["entries"]] == [200_000]
    if "-" in str(client.head_object(**where, ChecksumMode="ENABLED").get("ChecksumSHA256", "")):
        (note,) = found["notes"]
        assert "uploaded in parts" in note


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("kind", ["xxhash2", "xxhash", "md5", "crc32c", "sha256", "sha512"])
def test_of_aistore(cluster: Cluster, tmp_path: Path, kind: str, times: int) -> None:
    cluster.bucket("speech")
    cluster.checksum = kind
    urls = ["ais://speech/small.jsonl", "ais://speech/large.jsonl"]
    for url, data in zip(urls, (SMALL, LARGE), strict=True):
        cluster.put("speech", url.rpartition("/")[2], data)
    cluster.faults.add("get", "wrong-bytes", times, key="small.jsonl")
    cluster.faults.add("get", "wrong-bytes", 9 if times > 1 else 1, key="large.jsonl", skip=1)
    found = index(tmp_path, cluster.profile(mode="individual"), *urls)
    judge(found, times, urls, kind)
