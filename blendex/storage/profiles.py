"""Endpoint profiles: which stores there are, which buckets of theirs may be read, and with what.

A blend names URLs; which endpoint answers for one is a matter of the profiles alone. The address of an object is the
name of its profile and its URL, ``lab:s3://bucket/key``: tokens belong to it, and another endpoint is another address.
A key is what stands behind the first slash after the bucket, to the last byte: ``#``, ``?`` and ``%`` are letters.
Of a web server (kind ``http``) the bucket is host and port, and what may be read is said by what URLs begin with.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from blendex.blend.urls import SCHEMES, guarded, parts, serves
from blendex.errors import BlendexError, Code

NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
SERVED = {
    "s3": ("s3",),
    "aistore": ("ais", "s3", "gs", "az", "oci"),
    "http": ("http", "https"),
}


@dataclass(frozen=True)
class Profile:
    """One endpoint. What is secret is not shown by ``repr``.

    Args:
        name: what addresses call it.
        kind: ``s3``, ``aistore`` or ``http``.
        endpoint: its URL; None for Amazon's own.
        schemes: of the URLs it answers for.
        buckets: patterns of the buckets it may read.
        prefixes: what the URLs that may be read begin with, each ending in a slash (http only).
        networks: in which hosts may lie, besides public addresses (http only).
        parallel: most requests at a time from one child.
        connect_seconds, read_seconds: how long a connection and one read of a socket may take.
        patience_seconds: how long one request is tried in all.
        mode: of whole reads from AIStore: ``auto``, ``batch`` or ``individual``.
        trust_size: a token that is only a size counts as unchanged.
        local_mirrors: folders laid out ``<bucket>/<key>`` that are looked into first (s3 only).
        environment: what the credential chain of an SDK may see (``AWS_…``).
    """

    name: str
    kind: str
    endpoint: str | None = None
    schemes: tuple[str, ...] = ()
    buckets: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()
    region: str | None = None
    addressing: str = "auto"
    anonymous: bool = False
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ca: str | None = None
    client_cert: str | None = None
    client_key: str | None = None
    verify: bool = True
    parallel: int = 16
    connect_seconds: float = 3.0
    read_seconds: float = 20.0
    patience_seconds: float = 60.0
    mode: str = "auto"
    trust_size: bool = False
    local_mirrors: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    pace: Mapping[str, float] = field(default_factory=dict)  # what was measured before: see ``meter``

    def serves(self, scheme: str, bucket: str, key: str) -> bool:
        """Whether it answers for an object."""
        return any(of == scheme and serves(pattern, scheme, bucket, key) for of, pattern, _ in self.routes())

    def routes(self) -> list[tuple[str, str, str]]:
        """(scheme, pattern of buckets, name) of what it answers for; of a web server, what URLs begin with."""
        if self.kind == "http":
            found = [parts(prefix) for prefix in self.prefixes]
            return [(item[0], f"{item[1]}/{item[2]}", self.name) for item in found if item is not None]
        return [(scheme, pattern, self.name) for scheme in self.schemes for pattern in self.buckets]

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Profile:
        """A profile from its JSON form; what is left out has its default."""
        known = {item.name for item in fields(cls)}
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in data.items()
        }
        unknown = sorted(set(values) - known)
        if unknown:
            raise _bad(str(data.get("name")), f"has no field {unknown[0]}")
        values["schemes"] = tuple(values.get("schemes") or SERVED.get(values.get("kind", ""), ()))
        profile = cls(**values)
        profile._check()
        return profile

    def as_dict(self) -> dict[str, Any]:
        """The JSON form, with all secrets: it goes through a pipe to a child and nowhere else."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    def _check(self) -> None:
        if not NAME.fullmatch(self.name) or self.name in (*SCHEMES, "http", "https", "derived"):
            raise _bad(self.name, "has a name that is no lower-case word, or the name of a scheme")
        if self.kind not in SERVED:
            raise _bad(self.name, f"is of kind {self.kind}; the kinds are {', '.join(SERVED)}")
        for scheme in self.schemes:
            if scheme not in SERVED[self.kind]:
                raise _bad(self.name, f"cannot answer for {scheme}://")
        if self.mode not in ("auto", "batch", "individual"):
            raise _bad(self.name, "has a mode other than auto, batch and individual")
        if self.addressing not in ("auto", "path", "virtual"):
            raise _bad(self.name, "has an addressing other than auto, path and virtual")
        if self.kind == "aistore" and not self.endpoint:
            raise _bad(self.name, "has no endpoint")
        if self.kind == "http":
            self._check_web()
        elif not self.buckets:
            raise _bad(self.name, "names no buckets")
        elif self.prefixes or self.networks:
            raise _bad(self.name, "has prefixes or networks, which only profiles of kind http have")
        if self.endpoint is not None:
            rest = self.endpoint.partition("://")[2]
            if not self.endpoint.startswith(("http://", "https://")) or not rest:
                raise _bad(self.name, "has an endpoint that begins with neither http:// nor https://")
            if "@" in rest:
                raise _bad(self.name, "has an endpoint with a password in it; give credentials in their own fields")
            if self.kind == "s3" and rest.rstrip("/").endswith("/s3"):
                raise _bad(
                    self.name,
                    "points at the S3 interface of an AIStore, which redirects where S3 clients do not follow; "
                    "make it a profile of kind aistore, without /s3",
                )


    def _check_web(self) -> None:
        if not self.prefixes:
            raise _bad(self.name, "names no prefixes: it may read nothing")
        if self.endpoint is not None or self.buckets:
            raise _bad(self.name, "has an endpoint or buckets; profiles of kind http have prefixes instead")
        for prefix in self.prefixes:
            found = parts(prefix)
            if found is None or found[0] not in self.schemes or guarded(prefix) or not prefix.endswith("/"):
                raise _bad(
                    self.name,
                    "has a prefix that is no https:// or http:// URL ending in a slash, without user name and query",
                )
        for network in self.networks:
            try:
                ipaddress.ip_network(network)
            except ValueError:
                raise _bad(self.name, f"names {network}, which is no network like 10.1.0.0/16") from None


def _bad(name: str, what: str) -> BlendexError:
    return BlendexError(
        Code.STORE_SETTINGS,
        f"the endpoint profile {name} {what}.",
        next_step="Correct it in BLENDEX_STORES or the stores file; see docs/stores.md.",
    )


class Place(NamedTuple):
    """Where an object is: by profile, in the words of its store."""

    profile: str
    scheme: str
    bucket: str
    key: str

    @property
    def address(self) -> str:
        """Its address."""
        return f"{self.profile}:{self.scheme}://{self.bucket}/{self.key}"

    @property
    def url(self) -> str:
        """Its URL, as people and blends write it."""
        return f"{self.scheme}://{self.bucket}/{self.key}"


_ADDRESS = re.compile(r"([a-z][a-z0-9_-]{0,31}):([a-z][a-z0-9]*)://([^/]+)/?(.*)", re.DOTALL)


def place_of(address: str) -> Place | None:
    """The parts of an address; None for a path."""
    match = None if address.startswith("/") else _ADDRESS.fullmatch(address)
    return Place(*match.groups()) if match else None


def is_object(address: str) -> bool:
    """Whether an address is one of an object, and no path."""
    return not address.startswith("/") and place_of(address) is not None
