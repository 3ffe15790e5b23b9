"""Blendex builds, keeps and serves the indexes that make speech training data randomly accessible.

The Python API is three calls: ``plan``, ``build`` and ``resolve``, imported when they are first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from blendex.version import __version__

if TYPE_CHECKING:
    from blendex.api import BuildFailed, Built, build, plan, resolve

__all__ = ["BuildFailed", "Built", "__version__", "build", "plan", "resolve"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from blendex import api

    return getattr(api, name)
