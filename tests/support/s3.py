"""An S3 server of the tests' own (moto), and the objects that tests put there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from moto.server import ThreadedMotoServer

KEYS = {"aws_access_key_id": "AKIDTEST", "aws_secret_access_key": "canary-secret-key-of-tests"}


class S3:
    """One server. Its endpoint is ``url``."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client: Any = boto3.client(
            "s3", endpoint_url=url, region_name="us-east-1", config=Config(s3={"addressing_style": "path"}), **KEYS
        )

    def bucket(self, name: str) -> str:
        """Make a bucket."""
        self.client.create_bucket(Bucket=name)
        return name

    def put(self, bucket: str, key: str, data: bytes) -> None:
        """Put an object."""
        self.client.put_object(Bucket=bucket, Key=key, Body=data)

    def put_tree(self, bucket: str, folder: Path, prefix: str = "") -> None:
        """Put every file below a folder."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.put(bucket, prefix + str(path.relative_to(folder)), path.read_bytes())

    def profile(self, **values: object) -> dict[str, object]:
        """The settings of an endpoint profile that reads here, as a user writes them."""
        return {
            "kind": "s3", "endpoint": self.url, "buckets": ["*"], "addressing": "path",
            "access_key": KEYS["aws_access_key_id"], "secret_key": KEYS["aws_secret_access_key"],
        } | values  # fmt: skip


@contextmanager
def serve() -> Iterator[S3]:
    """A server for as long as the tests want it."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield S3(f"http://{host}:{port}")
    finally:
        server.stop()
