"""Servers that the tests of object stores share."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from blendex.storage import batch
from tests.stores.reading import OBJECTS, index
from tests.support import aistore as emulator
from tests.support import s3 as servers
from tests.support.aisstate import Cluster
from tests.support.s3 import S3

_number = itertools.count()


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    """One S3 server per session."""
    with servers.serve() as server:
        yield server


@pytest.fixture
def fresh_memory() -> Iterator[None]:
    """Nothing is remembered of which endpoints served batches."""
    batch.forget()
    yield
    batch.forget()


@pytest.fixture
def bucket(s3: S3) -> str:
    """A bucket of the test's own."""
    return s3.bucket(f"speech-{next(_number)}")


@contextmanager
def ais_endpoint() -> Iterator[str]:
    """The endpoint of a real AIStore (``BLENDEX_TEST_AIS_ENDPOINT``), or of an emulated one."""
    if real := os.environ.get("BLENDEX_TEST_AIS_ENDPOINT"):
        yield real
        return
    with emulator.serve() as cluster:
        yield cluster.url


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """An emulated AIStore of the test's own: its faults are its own, too."""
    with emulator.serve() as made:
        yield made


@pytest.fixture(scope="session")
def right(s3: S3, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the unit is without any fault."""
    s3.bucket("right")
    for key, data in OBJECTS.items():
        s3.put("right", key, data)
    result = index(tmp_path_factory.mktemp("right"), s3.profile(), "s3", "right")
    assert not result["failures"]
    assert len(result["entries"]) == len(OBJECTS)
    return result["entries"]  # type: ignore[no-any-return]
