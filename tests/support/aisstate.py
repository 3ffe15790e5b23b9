"""What the nodes of the tests' AIStore know together: buckets, objects, faults, and what was asked of them."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass, field
from typing import Any

import xxhash
from awscrt import checksums

from tests.support.faults import Faults

PROVIDERS = {"ais": "ais", "aws": "aws", "s3": "aws", "gcp": "gcp", "gs": "gcp", "azure": "azure", "az": "azure",
             "oci": "oci"}  # fmt: skip
PROPS = {"name", "size", "version", "checksum", "atime", "copies", "ec", "custom", "location", "chunked",
         "last-modified", "etag", "cached", "status", "target_url", "present"}  # fmt: skip


@dataclass
class Item:
    """One object."""

    data: bytes
    version: int = 1
    present: bool = True
    kind: str = "xxhash2"
    checksum: str = ""

    def __post_init__(self) -> None:
        self.checksum = self.checksum or digest(self.kind, self.data)


def digest(kind: str, data: bytes) -> str:
    """A checksum as AIStore tells it."""
    if kind == "crc32c":
        return f"{checksums.crc32c(data):08x}"
    return xxhash.xxh64(data).hexdigest() if kind.startswith("xxhash") else hashlib.new(kind, data).hexdigest()


@dataclass
class Cluster:
    """State that proxy and targets share.

    Attributes:
        url: of the proxy.
        token: what clients must send as Bearer, when set.
        weak: a bucket without versions and checksums.
        checksum: the kind of checksum of objects that are put from now on.
        batch, archives: whether it knows GetBatch, and members of archives.
        latency: seconds before each answer of a node.
        bandwidth: bytes per second of one response; 0: unlimited.
    """

    url: str = ""
    targets: list[str] = field(default_factory=list)
    buckets: dict[tuple[str, str], dict[str, Item]] = field(default_factory=dict)
    faults: Faults = field(default_factory=Faults)
    token: str | None = None
    latency: float = 0.0
    bandwidth: float = 0.0
    batch: bool = True
    weak: bool = False
    checksum: str = "xxhash2"
    archives: bool = True
    page: int = 1000
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    sent: int = 0
    works: dict[str, dict[str, Any]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def bucket(self, name: str, provider: str = "ais") -> str:
        """Make a bucket."""
        self.buckets.setdefault((PROVIDERS[provider], name), {})
        return name

    def put(self, bucket: str, key: str, data: bytes, provider: str = "ais", present: bool = True) -> None:
        """Put an object; ``present`` False: it lies in the backend of a remote bucket only."""
        objects = self.buckets[PROVIDERS[provider], bucket]
        version = objects[key].version + 1 if key in objects else 1
        objects[key] = Item(data, version, present, self.checksum)

    def put_tree(self, bucket: str, folder: Any, prefix: str = "", provider: str = "ais") -> None:
        """Put every file below a folder."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.put(bucket, prefix + str(path.relative_to(folder)), path.read_bytes(), provider)

    def profile(self, **values: object) -> dict[str, object]:
        """The settings of an endpoint profile that reads here, as a user writes them."""
        return {"kind": "aistore", "endpoint": self.url, "buckets": ["*"], "token": self.token} | values

    def count(self, operation: str) -> int:
        """How many requests of an operation came to a node that answers them."""
        return sum(seen == operation for seen, _, _ in self.requests)
