"""Where a config names data: every mapping that a dataloader is made from."""

from __future__ import annotations

from collections.abc import Iterator

from blendex.blend.load import MapNode
from blendex.blend.types import DATA_KEYS
from blendex.lint.scopes import Scope, Section

_MOST_SECTIONS = 1000
_SECTION_DEPTH = 6


def sections(root: Scope) -> list[Section]:
    """The sections of a config, in order; a blend posted as a mapping is one of the role ``blend``."""
    found: list[Section] = []
    _search(root, 0, found)
    return found or [Section(root, "blend")]


def _search(scope: Scope, depth: int, found: list[Section]) -> None:
    for key in scope.node:
        if not isinstance(key, str) or len(found) > _MOST_SECTIONS or key == "input_cfg":
            continue
        inner = scope.inner(key)
        if inner is None:
            continue
        if key.endswith("_ds"):
            found += _parts(inner, "train" if key.startswith("train") else "eval")
        elif depth < _SECTION_DEPTH and len(inner.spot.pointer) <= _SECTION_DEPTH:
            _search(inner, depth + 1, found)


def _parts(scope: Scope, role: str) -> Iterator[Section]:
    """The loaders of one section: itself, its named sets, or the loaders of ``multi_config``."""
    children = [(key, scope.inner(key)) for key in scope.node if isinstance(key, str)]
    inner = {key: child for key, child in children if child is not None}
    if scope.get("multi_config").value is True:
        for key, child in inner.items():
            if _holds_data(child.node) and key != "sampler_weights":
                yield Section(child, role, scope, multi=True)
        return
    sets = inner.get("datasets")
    if sets is not None and role == "eval":
        for key in sets.node:
            one = sets.inner(key) if isinstance(key, str) else None
            if one is not None:
                yield Section(one, role, scope)
        return
    dataset = inner.get("dataset")
    if dataset is not None and not _holds_data(scope.node) and _holds_data(dataset.node):
        yield Section(dataset, role, scope)
        return
    yield Section(scope, role)


def _holds_data(node: MapNode) -> bool:
    return any(node.get(key) is not None for key in DATA_KEYS)
