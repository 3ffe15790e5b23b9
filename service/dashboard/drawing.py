"""Bars and strips as SVG: attributes only, since the pages allow no style of their own."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from markupsafe import Markup

from blendex.catalog import trace

CELL = 10
COLUMNS = 100
# A state is told by its shape too, not by colour alone: (left, width, height); app.css has the same as dashes.
SHAPES = {"done": (0, 8, 9), "leased": (0, 8, 6), "waiting": (0, 8, 2), "failed": (3, 3, 10)}


def bar(part: float, whole: float, label: str, kind: str = "run") -> Markup:
    """A bar that is filled up to ``part`` of ``whole``."""
    width = 0.0 if whole <= 0 else max(0.0, min(100.0, 100 * part / whole))
    return Markup(
        '<svg class="bar bar-{}" viewBox="0 0 100 6" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<rect class="bar-all" width="100" height="6"/><rect class="bar-part" width="{:.2f}" height="6"/></svg>'
    ).format(kind, label, width)


def stages(parts: Sequence[tuple[str, float]], label: str) -> Markup:
    """Spans of time side by side, each as wide as it took."""
    whole = sum(seconds for _, seconds in parts)
    if whole <= 0:
        return Markup("")
    pieces, at = [], 0.0
    for name, seconds in parts:
        width = 1000 * seconds / whole
        pieces.append(
            Markup('<rect class="stage-{}" x="{:.1f}" width="{:.1f}" height="10"/>').format(
                name, at, max(0.0, width - 2)
            )
        )
        at += width
    return Markup('<svg class="stages" viewBox="0 0 1000 10" preserveAspectRatio="none" role="img" aria-label="{}">'
                  "{}</svg>").format(label, Markup("").join(pieces))  # fmt: skip


def strip(cells: Sequence[dict[str, Any]], label: str) -> Markup:
    """The heat strip: a cell each, rows of a hundred, the worst state of what is in it."""
    paths: dict[str, list[str]] = {}
    states = [trace.worst(cell["units"]) for cell in cells]
    rows = max(1, (len(cells) + COLUMNS - 1) // COLUMNS)
    for row in range(rows):
        at = 0
        for worst, run in groupby(states[row * COLUMNS : (row + 1) * COLUMNS]):
            count = len(list(run))
            left, width, height = SHAPES[worst]
            # A run is one line of dashes: 2,000 cells that are alike are a few hundred characters.
            x, y = at * CELL + left, row * (CELL + 2) + CELL - height / 2
            paths.setdefault(worst, []).append(f"M{x} {y:g}h{(count - 1) * CELL + width}")
            at += count
    width = min(COLUMNS, len(cells)) * CELL
    shown = "100%" if rows > 1 else f"{width * 1.2:.0f}"
    drawn = Markup("").join(
        Markup('<path class="cell cell-{}" d="{}"/>').format(state, "".join(pieces)) for state, pieces in paths.items()
    )
    return Markup('<svg class="strip" width="{}" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        shown, width, rows * (CELL + 2), label, drawn
    )
