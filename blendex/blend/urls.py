"""URLs of objects in blends: their parts, and how they become addresses.

A key is what stands behind the first slash after the bucket, to the last byte: ``#``, ``?`` and ``%`` are letters, and
nothing is normalised, since ``a//b`` and ``a/b`` are two objects.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://([^/]*)/?(.*)", re.DOTALL)
_EXPLICIT = re.compile(r"([a-z][a-z0-9_-]{0,31}):([a-z][a-z0-9]*://.*)", re.DOTALL)
# How schemes are called in addresses; the others are other names of the same store.
SCHEMES = {"s3": "s3", "aws": "s3", "ais": "ais", "gs": "gs", "gcp": "gs", "az": "az", "azure": "az", "oci": "oci"}

Route = tuple[str, str, str]
"""(scheme, pattern of buckets, name of an endpoint profile)"""


def parts(url: str) -> tuple[str, str, str] | None:
    """(scheme, bucket, key) of a URL, the scheme by its first name; None for what is no URL of an object."""
    match = _URL.fullmatch(url)
    if match is None:
        return None
    scheme = SCHEMES.get(match[1].lower())
    return (scheme, match[2], match[3]) if scheme is not None and match[2] else None


def split_explicit(text: str) -> tuple[str, str] | None:
    """(profile, URL) of an address; None for anything else."""
    match = _EXPLICIT.fullmatch(text)
    return (match[1], match[2]) if match else None


def routed(url: str, routes: Iterable[Route], profile: str | None = None) -> str | None:
    """The address of a URL: by the first route that serves its bucket, or by the one of ``profile`` that does."""
    found = parts(url)
    if found is None:
        return None
    scheme, bucket, key = found
    for route_scheme, pattern, name in routes:
        if route_scheme == scheme and fnmatchcase(bucket, pattern) and profile in (None, name):
            return f"{name}:{scheme}://{bucket}/{key}"
    return None


def join(folder: str, *names: str) -> str:
    """A path below a folder, which may be a URL: ``PurePosixPath`` would take one of its slashes."""
    if "://" in folder:
        return "/".join((folder.rstrip("/"), *names))
    return str(PurePosixPath(folder, *names))


def folder_of(path: str) -> str:
    """The folder that a file lies in, which may be a URL."""
    return path.rpartition("/")[0] if "://" in path else str(PurePosixPath(path).parent)
