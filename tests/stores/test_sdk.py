"""The emulator is an AIStore to the unmodified SDK. The same tests pass against a real cluster, when one is named.

They use the SDK as its documents say, and nothing of ours.
"""

from __future__ import annotations

import io
import tarfile
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from aistore.sdk import Client
from aistore.sdk.archive_config import ArchiveConfig
from aistore.sdk.enums import Colocation
from aistore.sdk.errors import AISError

from tests.stores.conftest import ais_endpoint


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with ais_endpoint() as url:
        yield Client(url)


@pytest.fixture(scope="module")
def bucket(client: Client) -> Iterator[Any]:
    made = client.bucket(f"blendex-test-{uuid.uuid4().hex[:8]}").create(exist_ok=True)
    for number in range(25):
        made.object(f"m/{number:03}.jsonl").get_writer().put_content(b'{"a": %d}\n' % number * number)
    made.object("odd/a b#1?x=%20.jsonl").get_writer().put_content(b"odd")
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name in ("x/1.wav", "x/2.wav"):
            info = tarfile.TarInfo(name)
            info.size = 3
            tar.addfile(info, io.BytesIO(name[2:5].encode()))
    made.object("t.tar").get_writer().put_content(stream.getvalue())
    yield made
    made.delete(missing_ok=True)


def test_list(bucket: Any) -> None:
    entries = bucket.list_all_objects(prefix="m/", props="name,size,checksum,version,cached", page_size=10)
    assert [entry.name for entry in entries] == [f"m/{number:03}.jsonl" for number in range(25)]
    assert all(entry.is_cached() and entry.is_ok() and entry.checksum and entry.version for entry in entries)
    assert entries[3].size == len(b'{"a": 3}\n') * 3


def test_list_from(bucket: Any) -> None:
    entries = bucket.list_all_objects(prefix="m/", start_after="m/021.jsonl")
    assert [entry.name for entry in entries] == ["m/022.jsonl", "m/023.jsonl", "m/024.jsonl"]


def test_head_and_get(bucket: Any) -> None:
    item = bucket.object("m/007.jsonl")
    head = getattr(item, "head_v2", item.head)(props="size,checksum,version")
    assert (head.size, head.checksum_type) == (len(b'{"a": 7}\n') * 7, "xxhash2")
    assert item.get_reader().read_all() == b'{"a": 7}\n' * 7
    assert bucket.object("odd/a b#1?x=%20.jsonl").get_reader().read_all() == b"odd"


def test_range(bucket: Any) -> None:
    reader = bucket.object("m/007.jsonl").get_reader(byte_range="bytes=2-4")
    raw = reader.raw()
    assert (raw.status, raw.read(), raw.headers["Content-Range"]) == (206, b'a":', "bytes 2-4/63")
    assert reader.attributes.checksum_value


def test_missing(bucket: Any) -> None:
    with pytest.raises(AISError) as caught:
        bucket.object("nothing").get_reader().read_all()
    assert caught.value.status_code == 404


def test_batch(client: Client, bucket: Any) -> None:
    batch = client.batch(bucket=bucket, colocation=Colocation.TARGET_AWARE)
    for number in (5, 3, 0, 24):
        batch.add(f"m/{number:03}.jsonl")
    found = [(out.obj_name, data) for out, data in batch.get()]
    assert found == [(f"m/{n:03}.jsonl", b'{"a": %d}\n' % n * n) for n in (5, 3, 0, 24)]


def test_batch_of_members_and_ranges(client: Client, bucket: Any) -> None:
    batch = client.batch(bucket=bucket)
    batch.add("t.tar", archpath="x/2.wav").add("m/007.jsonl", start=1, length=3)
    assert [data for _, data in batch.get()] == [b"2.w", b'"a"']


def test_batch_in_parts(client: Client, bucket: Any) -> None:
    batch = client.batch(["m/001.jsonl", "m/nothing"], bucket, streaming_get=False)
    (one, data), (two, _) = batch.get()
    assert (one.size, data, one.err_msg) == (9, b'{"a": 1}\n', None)
    assert two.err_msg


def test_batch_with_a_missing_object(client: Client, bucket: Any) -> None:
    raw = client.batch(["m/001.jsonl", "m/nothing"], bucket).get(raw=True)
    with tarfile.open(fileobj=io.BytesIO(raw.read())) as tar:
        assert tar.getnames() == [f"{bucket.name}/m/001.jsonl", f"__404__/{bucket.name}/m/nothing"]


def test_a_member_of_an_archive(bucket: Any) -> None:
    reader = bucket.object("t.tar").get_reader(archive_config=ArchiveConfig(archpath="x/1.wav"))
    assert reader.read_all() == b"1.w"
