"""No credential and no signed URL comes into a log, an error, the root, or the catalog: planted ones are looked for."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.support import faultproxy
from tests.support.aisstate import Cluster
from tests.support.corpus import corpus
from tests.support.s3 import KEYS, S3

CANARIES = (b"canary", KEYS["aws_secret_access_key"].encode(), b"X-Amz-Signature", b"AWS4-HMAC", b"Bearer")


def unpacked(data: bytes) -> bytes:
    """Some bytes, and what is compressed in them."""
    found = data
    for start in (data.find(b"\x28\xb5\x2f\xfd"), 0):
        with contextlib.suppress(zstandard.ZstdError):
            found += zstandard.ZstdDecompressor().decompressobj().decompress(data[start:])
    with contextlib.suppress(zlib.error):
        found += zlib.decompress(data)
    return found


def all_that_is_kept(root: Path) -> dict[str, bytes]:
    kept = {str(path): unpacked(path.read_bytes()) for path in root.rglob("*") if path.is_file()}
    with sqlite3.connect(root / "catalog.sqlite") as database:
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for row in database.execute(f"SELECT * FROM {table}"):
                for value in row:
                    raw = value if isinstance(value, bytes) else str(value).encode()
                    kept[table] = kept.get(table, b"") + unpacked(raw)
    database.close()
    return kept


def build(root: Path, blend: Path, view: str, profiles: dict[str, Any]) -> subprocess.CompletedProcess[bytes]:
    environment = os.environ | {
        "BLENDEX_STORES": json.dumps(profiles), "BLENDEX_LOG_LEVEL": "DEBUG", "BLENDEX_SLOTS": "1",
        "CANARY_OF_TESTS": KEYS["aws_secret_access_key"], "BLENDEX_STORE_PATIENCE": "2",
    }  # fmt: skip
    return subprocess.run(
        [str(Path(sys.executable).parent / "blendex"), "build", str(blend), "--root", str(root), "--view", view],
        capture_output=True,
        env=environment,
        timeout=120,
        check=False,
    )


def judged(root: Path, done: subprocess.CompletedProcess[bytes], canaries: tuple[bytes, ...] = CANARIES) -> None:
    kept = all_that_is_kept(root)
    for name, data in {"stdout": done.stdout, "stderr": done.stderr, **kept}.items():
        for canary in canaries:
            assert canary not in data, (name, canary, data[max(0, data.find(canary) - 200) :][:400])
    # What is no secret is found by the same search, also where it lies compressed.
    assert sum(b"://" in data and b"lab:" in data for data in kept.values()) >= 2


def haste(fault: str) -> dict[str, Any]:
    """A store that does not get well is not waited for; one that is well may take its time."""
    return {} if fault == "none" else {"patience_seconds": 0.5, "read_seconds": 1}


SLOW = [pytest.param(fault, marks=pytest.mark.long) for fault in ("401", "dead", "drop", "loop", "short")]


@pytest.mark.parametrize("fault", ["none", "html", *SLOW])
def test_nothing_of_aistore(tmp_path: Path, cluster: Cluster, fault: str) -> None:
    data = tmp_path / "data"
    blend = tmp_path / "blend.yaml"
    blend.write_text(corpus(data, shards=10))
    cluster.bucket("speech")
    cluster.put_tree("speech", data)
    cluster.token = "canary-token"
    if fault != "none":
        for operation in ("get", "moss", "range"):
            cluster.faults.add(operation, fault, 10_000)
    profile = cluster.profile(mode="batch", **haste(fault))
    done = build(tmp_path / "root", blend, f"{data}=ais://speech", {"lab": profile})
    assert (done.returncode == 0) == (fault == "none"), done.stderr.decode()
    judged(tmp_path / "root", done)


@pytest.mark.parametrize("fault", ["drop", pytest.param("none", marks=pytest.mark.long), SLOW[0]])
def test_nothing_of_s3(tmp_path: Path, s3: S3, bucket: str, fault: str) -> None:
    data = tmp_path / "data"
    blend = tmp_path / "blend.yaml"
    blend.write_text(corpus(data, shards=3))
    s3.put_tree(bucket, data)
    with faultproxy.serve(s3.url) as proxy:
        if fault != "none":
            proxy.faults.add("get", fault.replace("401", "403"), 10_000)
        profile = s3.profile(endpoint=proxy.url, **haste(fault))
        profile["secret_key"] = "env:CANARY_OF_TESTS"
        done = build(tmp_path / "root", blend, f"{data}=s3://{bucket}", {"lab": profile})
    assert (done.returncode == 0) == (fault == "none"), done.stderr.decode()
    judged(tmp_path / "root", done, (*CANARIES, KEYS["aws_access_key_id"].encode()))
