"""What a submission brings along so that its blend means the same on every machine."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from blendex.errors import BlendexError, Code

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")
# Absolute, and as normpath leaves it: of a hundred thousand paths all but a few, and fifteen times cheaper to tell.
_PLAIN = re.compile(r"(?:/(?!\.)[^/\0]+)+", re.DOTALL)


def has_scheme(path: str) -> bool:
    """Whether ``path`` is spelled as a URL."""
    return _SCHEME.match(path) is not None


def unsupported(path: str) -> BlendexError | None:
    """Why no worker can read ``path`` today (``PATH_UNSUPPORTED``), or None for a file path."""
    if path.startswith("pipe:"):
        return BlendexError(
            Code.PATH_UNSUPPORTED,
            f"{path} is a shell command; no command is ever run.",
            next_step="Name the file that the command reads.",
        )
    match = _SCHEME.match(path)
    if match is None:
        return None
    scheme = match.group()
    if scheme in ("s3://", "ais://"):
        message = f"{path} lies in an object store ({scheme}); object stores are not served yet."
    else:
        message = f"{path} has the scheme {scheme}, which cannot be read."
    return BlendexError(
        Code.PATH_UNSUPPORTED,
        message,
        next_step="Name a copy on a shared filesystem, or exclude the entry.",
    )


@dataclass(frozen=True)
class World:
    """All that a submission brings along; nothing comes from the service's own environment or folder.

    Args:
        base: absolute folder that relative paths mean.
        variables: what ``${name}`` may see besides the YAML; ``data_blend_dir`` is one.
        env: what ``${oc.env:NAME}`` may see.
        view: ordered pairs (prefix as the job sees it, prefix as workers see it).
    """

    base: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    view: tuple[tuple[str, str], ...] = ()

    def address(self, path: str) -> str:
        """Where a worker reads ``path``.

        The path is joined to ``base`` when relative, its ``..`` are taken away by spelling, then the longest
        view prefix that ends on a component boundary is exchanged (the first one, of equally long ones).

        Raises:
            BlendexError: RELATIVE_WITHOUT_BASE, PATH_UNSUPPORTED (pipes and URLs), BAD_VALUE (empty, NUL).
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
        joined = path if path.startswith("/") else posixpath.join(self.base or "", path)
        if not joined.startswith("/"):
            raise BlendexError(
                Code.RELATIVE_WITHOUT_BASE,
                f"{path} is a relative source without a base.",
                next_step="Say which absolute folder relative paths mean (base), or write absolute paths.",
            )
        return self._through_view(_normal(joined))

    def _through_view(self, path: str) -> str:
        best: tuple[int, str] | None = None
        for seen, real in self.view:
            prefix = _normal(seen).rstrip("/")
            inside = path == prefix or path.startswith(prefix + "/")
            if inside and (best is None or len(prefix) > best[0]):
                best = (len(prefix), _normal(real).rstrip("/"))
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
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> World:
        """The world whose ``as_dict`` is ``data``; absent keys mean their defaults."""
        return cls(
            base=data.get("base"),
            variables=dict(data.get("variables") or {}),
            env=dict(data.get("env") or {}),
            view=tuple((str(seen), str(real)) for seen, real in data.get("view") or ()),
        )


def _normal(path: str) -> str:
    # POSIX lets normpath keep two leading slashes; the kernels we run on read them as one.
    return "/" + posixpath.normpath(path).lstrip("/") if path.startswith("/") else posixpath.normpath(path)
