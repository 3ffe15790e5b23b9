"""What a submission brings along so that its blend means the same on every machine."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from blendex.blend.urls import WEB, Route, guarded, parts, routed, split_explicit
from blendex.errors import BlendexError, Code

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")
# Absolute, and as normpath leaves it: of a hundred thousand paths all but a few, and fifteen times cheaper to tell.
_PLAIN = re.compile(r"(?:/(?!\.)[^/\0]+)+", re.DOTALL)


def has_scheme(path: str) -> bool:
    """Whether ``path`` is spelled as a URL."""
    return _SCHEME.match(path) is not None


def unsupported(path: str) -> BlendexError | None:
    """Why no worker can ever read ``path`` (``PATH_UNSUPPORTED``), or None for a file path or a URL of an object."""
    if path.startswith("pipe:"):
        return BlendexError(
            Code.PATH_UNSUPPORTED,
            f"{path} is a shell command; no command is ever run.",
            next_step="Name the file that the command reads.",
        )
    match = _SCHEME.match(path)
    if match is not None and guarded(path):
        return BlendexError(
            Code.PATH_UNSUPPORTED,
            f"a URL that begins with {match.group()} holds a user name, a query or a fragment, which may be a secret.",
            next_step="Write the URL without it; credentials belong into the endpoint profile.",
        )
    if match is None or parts(path) is not None:
        return None
    return BlendexError(
        Code.PATH_UNSUPPORTED,
        f"{path} has the scheme {match.group()}, which cannot be read."
        if parts(path.replace("://", "://x", 1)) is None
        else f"{path} names no bucket.",
        next_step="Name a copy on a shared filesystem or in an object store, or exclude the entry.",
    )


@dataclass(frozen=True)
class World:
    """All that a submission brings along; nothing comes from the service's own environment or folder.

    Args:
        base: absolute folder that relative paths mean.
        variables: what ``${name}`` may see besides the YAML; ``data_blend_dir`` is one.
        env: what ``${oc.env:NAME}`` may see.
        view: ordered pairs (prefix as the job sees it, prefix as workers see it); both may be URLs, and the second
            may name the endpoint profile that answers for it (``lab:s3://bucket/data``).
        stores: (scheme, pattern of buckets, endpoint profile), as the service has it: no client chooses an endpoint.
    """

    base: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    view: tuple[tuple[str, str], ...] = ()
    stores: tuple[Route, ...] = ()

    def address(self, path: str) -> str:
        """Where a worker reads ``path``.

        The path is joined to ``base`` when relative, its ``..`` are taken away by spelling, then the longest
        view prefix that ends on a component boundary is exchanged (the first one, of equally long ones). A URL is
        never changed but by a view; its address begins with the name of the endpoint profile that serves its bucket.

        Raises:
            BlendexError: RELATIVE_WITHOUT_BASE, PATH_UNSUPPORTED (pipes, other schemes), STORE_UNKNOWN, BAD_VALUE
                (empty, NUL).
        """
        if not self.view and _PLAIN.fullmatch(path):
            return path
        refusal = unsupported(path)
        if refusal is not None:
            raise refusal
        if not path or "\0" in path:
            raise BlendexError(
                Code.BAD_VALUE,
                "A path is empty or holds a NUL character.",
                next_step="Correct the path in the blend.",
            )
        if has_scheme(path):
            return self._placed(self._through_view(path), path)
        joined = path if path.startswith("/") else posixpath.join(self.base or "", path)
        if has_scheme(joined):
            return self._placed(self._through_view(joined), path)
        if not joined.startswith("/"):
            raise BlendexError(
                Code.RELATIVE_WITHOUT_BASE,
                f"{path} is a relative source without a base.",
                next_step="Say which absolute folder relative paths mean (base), or write absolute paths.",
            )
        return self._placed(self._through_view(_normal(joined)), path)

    def _placed(self, seen: str, path: str) -> str:
        """The address of what came through the view: a path as it is, a URL with its endpoint profile."""
        if seen.startswith("/"):
            return seen
        explicit = split_explicit(seen)
        profile, url = explicit if explicit is not None else (None, seen)
        address = routed(url, self.stores, profile)
        if address is not None:
            return address
        found = parts(url)
        where = "the beginning of its URL" if found is not None and found[0] in WEB else "its bucket"
        kind = " of kind http" if found is not None and found[0] in WEB else ""
        raise BlendexError(
            Code.STORE_UNKNOWN,
            f"no endpoint profile serves {path}.",
            next_step=f"Have {where} added to a profile{kind} (BLENDEX_STORES), or name a copy on a shared filesystem.",
        )

    def _through_view(self, path: str) -> str:
        best: tuple[int, str] | None = None
        for seen, real in self.view:
            prefix = _plain(seen)
            inside = path == prefix or path.startswith(prefix + "/")
            if inside and (best is None or len(prefix) > best[0]):
                best = (len(prefix), _plain(real))
        if best is None:
            return path
        return (best[1] + path[best[0] :]) or "/"

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "base": self.base,
            "variables": dict(self.variables),
            "env": dict(self.env),
            "view": [list(pair) for pair in self.view],
        } | ({"stores": [list(route) for route in self.stores]} if self.stores else {})

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> World:
        """The world whose ``as_dict`` is ``data``; absent keys mean their defaults."""
        return cls(
            base=data.get("base"),
            variables=dict(data.get("variables") or {}),
            env=dict(data.get("env") or {}),
            view=tuple((str(seen), str(real)) for seen, real in data.get("view") or ()),
            stores=tuple((str(scheme), str(buckets), str(name)) for scheme, buckets, name in data.get("stores") or ()),
        )


def _plain(prefix: str) -> str:
    """One side of a view, without slashes at its end."""
    return (prefix if "://" in prefix else _normal(prefix)).rstrip("/")


def _normal(path: str) -> str:
    # POSIX lets normpath keep two leading slashes; the kernels we run on read them as one.
    return "/" + posixpath.normpath(path).lstrip("/") if path.startswith("/") else posixpath.normpath(path)
