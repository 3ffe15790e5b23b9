"""What a walk says of the keys and values of an entry."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from blendex.blend.entries import Entry, Spot, misspelt, weight_of
from blendex.blend.load import MapNode
from blendex.blend.remarks import remarkable, remarks
from blendex.blend.types import BUILDER_FORGETS, DATA_KEYS, OVERRIDES, TYPES, TypeSpec, misspelt_keys
from blendex.errors import Code

if TYPE_CHECKING:
    from blendex.blend.walk import Walk


# Longer ones are rare, and keeping them would only hold memory.
_LONGEST_SHAPE = 32


@lru_cache(maxsize=1024)
def _silent(name: str, shape: tuple[Any, ...]) -> bool:
    """Whether nothing is to be said of an entry of this type that gives each of these keys, and no others, a value.

    Thousands of entries have a few shapes between them.
    """
    spec, given = TYPES[name], dict.fromkeys(shape, "")
    return (
        all(any(key in given for key in group) for group in spec.required)
        and spec.known.issuperset(key for key in shape if key in DATA_KEYS)
        and not spec.ignored(given)
        and not misspelt_keys(spec, shape)
        and not remarkable(name, given)
    )


def keys(walk: Walk, entry: Entry, node: MapNode, spec: TypeSpec) -> None:
    """Tell keys of a leaf that are misspelt, missing, ignored, or have odd values."""
    if len(node) <= _LONGEST_SHAPE and None not in node.values() and _silent(spec.name, tuple(node)):
        return
    slips = misspelt_keys(spec, node)
    for wrong, right in slips.items():
        error = misspelt(entry.type, wrong, right)
        line = node.lines[wrong]
        walk.problem(error.code, error.message, entry.spot, line, error.next_step)
    for group in spec.required:
        if any(node.get(key) is not None for key in group) or set(group) & set(slips.values()):
            continue
        others = sorted(str(key)[:80] for key in node if key != "type")
        walk.problem(
            Code.MISSING_KEY,
            f"{entry.type} needs {' or '.join(group)}; the entry has {', '.join(others) or 'nothing'}.",
            entry.spot,
            entry.line,
            f"Set {' or '.join(group)}.",
        )
    unread = [key for key in node if key in DATA_KEYS and key not in spec.known and not entry.classic]
    walk.ignored(unread, f"{entry.type} does not read it", entry.spot, node)
    if not entry.classic:
        for key in spec.ignored(node):
            walk.ignored([key], f"{min(spec.opened(node))} is set beside it", entry.spot, node)
    for error, key, refused in remarks(walk.resolver, entry):
        tell = walk.problem if refused else walk.warn
        tell(error.code, error.message, entry.spot, node.lines.get(key, entry.line), error.next_step)


def odd(walk: Walk, node: MapNode, spot: Spot, name: str) -> None:
    """Tell what is odd about an entry as a whole."""
    if name in BUILDER_FORGETS:
        walk.warn(
            Code.UNKNOWN_TYPE,
            f"NeMo's builder of indexes passes over {name}, which training reads by an index; it is built here.",
            spot,
            node.line,
            "Nothing to do.",
        )
    set_here = [key for key in OVERRIDES if key in node]
    if set_here:
        walk.overridden.append(spot.pointer)
        walk.warn(
            Code.UNKNOWN_KEY,
            f"The entry sets {', '.join(set_here)}; the ready blend sets its own.",
            spot,
            node.lines[set_here[0]],
            "Nothing to do; the difference is shown.",
        )
    if "weight" in node and weight_of(walk.resolver, node, spot.place) is None:
        walk.warn(
            Code.BAD_VALUE,
            "The weight is not a finite number of at least 0; training refuses or misreads it.",
            spot,
            node.lines["weight"],
            "Write the weight as a plain number.",
        )
