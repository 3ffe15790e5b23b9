"""URLs of objects in blends: their parts, and how they become addresses.

A key is what stands behind the first slash after the bucket, to the last byte: ``#``, ``?`` and ``%`` are letters, and
nothing is normalised, since ``a//b`` and ``a/b`` are two objects. Of ``http://`` and ``https://`` the bucket is the
host with its port, and the key is the path as it is sent; there a query, a fragment or a user name is refused, because
it may be a credential, and what a blend names is shown and kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from urllib.parse import unquote

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://([^/]*)/?(.*)", re.DOTALL)
_EXPLICIT = re.compile(r"([a-z][a-z0-9_-]{0,31}):([a-z][a-z0-9]*://.*)", re.DOTALL)
# How schemes are called in addresses; the others are other names of the same store.
SCHEMES = {
    "s3": "s3", "aws": "s3", "ais": "ais", "gs": "gs", "gcp": "gs", "az": "az", "azure": "az", "oci": "oci",
    "http": "http", "https": "https",
}  # fmt: skip
WEB = ("http", "https")

Route = tuple[str, str, str]
"""(scheme, pattern of buckets, name of an endpoint profile); of a web server: (scheme, what URLs begin with, name)."""


def parts(url: str) -> tuple[str, str, str] | None:
    """(scheme, bucket, key) of a URL, the scheme by its first name; None for what is no URL of an object."""
    match = _URL.fullmatch(url)
    if match is None:
        return None
    scheme = SCHEMES.get(match[1].lower())
    if scheme is None or not match[2]:
        return None
    return scheme, match[2].lower() if scheme in WEB else match[2], match[3]


def guarded(url: str) -> bool:
    """Whether a URL of a web server holds what may be a credential: a user name, a query or a fragment."""
    found = parts(url) if "://" in url else None
    return found is not None and found[0] in WEB and ("@" in found[1] or any(mark in url for mark in "?#"))


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
        if route_scheme == scheme and serves(pattern, scheme, bucket, key) and profile in (None, name):
            return f"{name}:{scheme}://{bucket}/{key}"
    return None


def serves(pattern: str, scheme: str, bucket: str, key: str) -> bool:
    """Whether a route leads to an object: by a pattern of its bucket, or by what a web server's URLs begin with.

    A path that goes up is under no prefix, whatever it begins with and however its dots are written.
    """
    if scheme not in WEB:
        return fnmatchcase(bucket, pattern)
    steps = re.split(r"[/\\]", unquote(unquote(key)))
    return f"{bucket}/{key}".startswith(pattern) and not {".", ".."} & set(steps)


def join(folder: str, *names: str) -> str:
    """A path below a folder, which may be a URL: ``PurePosixPath`` would take one of its slashes."""
    if "://" in folder:
        return "/".join((folder.rstrip("/"), *names))
    return str(PurePosixPath(folder, *names))


def folder_of(path: str) -> str:
    """The folder that a file lies in, which may be a URL."""
    return path.rpartition("/")[0] if "://" in path else str(PurePosixPath(path).parent)
