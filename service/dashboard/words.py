"""Figures, times and texts as people read them; nothing here knows what it speaks of."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup, escape

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
# Kept as they are: they are what a text is laid out with.
_LAYOUT = frozenset("\n\t\r")


def plain(text: str) -> str:
    """``text`` with whatever cannot be seen made visible: controls, and what turns the direction of writing."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_seen(char) for char in text)


def _seen(char: str) -> str:
    if char in _LAYOUT:
        return char
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    kind = unicodedata.category(char)
    return f"⟨U+{code:04X}⟩" if kind in ("Cc", "Cf", "Cs", "Zl", "Zp") else char


def finalize(value: Any) -> Any:
    """What a page shows of a value, before it is escaped; nothing for what is not known."""
    if value is None:
        return ""
    if isinstance(value, str) and not isinstance(value, Markup):
        return plain(value)
    return value


def count(value: float | None) -> str:
    """400,000."""
    return "–" if value is None else f"{value:,.0f}"


def size(value: float | None) -> str:
    """1.2 GB, in powers of 1,000."""
    if value is None:
        return "–"
    number, unit = float(value), 0
    while number >= 999.5 and unit < len(_UNITS) - 1:
        number, unit = number / 1000, unit + 1
    return f"{number:.0f} {_UNITS[unit]}" if unit == 0 or number >= 99.5 else f"{number:.1f} {_UNITS[unit]}"


def span(seconds: float | None) -> str:
    """3 s, 4 min 10 s, 2 h 5 min, 3 d 4 h."""
    if seconds is None:
        return "–"
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s"
    whole = round(seconds)
    for width, name, below, small in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= width:
            rest = whole % width // below
            return f"{whole // width} {name} {rest} {small}" if rest else f"{whole // width} {name}"
    return f"{whole} s"


def share(part: float, whole: float) -> str:
    """37 %; 100 % only when nothing is missing, 0 % only when there is nothing."""
    if whole <= 0:
        return "–"
    value = 100 * part / whole
    if 0 < value < 1:
        return "< 1 %"
    if 99 < value < 100:
        return "> 99 %"
    return f"{value:.0f} %"


def moment(at: float | None) -> str:
    """2026-11-29 17:20:05 UTC."""
    return "–" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def ago(at: float | None, now: float) -> Markup:
    """How long ago, with the moment itself for whoever wants it."""
    if at is None:
        return Markup("–")
    exact = datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
    seconds = max(0.0, now - at)
    number, unit = span(max(10.0, seconds)).split(" ")[:2]
    text = "just now" if seconds < 5 else f"{round(seconds) if seconds < 60 else number} {unit} ago"
    return Markup('<time datetime="{}" title="{}" data-ago>{}</time>').format(exact, moment(at), text)


def percent(value: float | None) -> str:
    """12.5 %, 0.031 %: a part of 1, in three digits."""
    return "–" if value is None else f"{100 * value:.3g} %"


def hours(value: float | None) -> str:
    """1,204 h; 0.25 h; less than a hundredth as seconds."""
    if value is None:
        return "–"
    if value < 0.01:
        return f"{3600 * value:.0f} s"
    return f"{value:,.0f} h" if value >= 100 else f"{value:.3g} h"


def weight(value: float | None) -> str:
    """A weight, in as few digits as tell it."""
    return "–" if value is None else f"{value:.6g}"


def short(text: str, most: int = 12) -> str:
    """The beginning of a long key."""
    return text if len(text) <= most else text[:most] + "…"


def state(name: str) -> Markup:
    """A state as text with a mark, so that colour is never all that tells it."""
    mark = {
        "queued": "○", "planning": "◔", "indexing": "◑", "packing": "◕", "publishing": "◕", "ready": "✓",
        "failed": "✕", "cancelled": "–", "published": "✓", "condemned": "!", "collected": "–", "working": "●",
        "draining": "◒", "silent": "✕", "ok": "✓", "trouble": "✕", "waiting": "○", "leased": "◑", "done": "✓",
        "whole": "✓", "damaged": "✕", "running": "◑",
    }.get(name, "·")  # fmt: skip
    return Markup('<span class="state state-{0}"><span aria-hidden="true">{1}</span> {0}</span>').format(
        escape(plain(name)), mark
    )


def diff(lines: Iterable[str]) -> list[tuple[str, str]]:
    """Lines of a unified difference, each with what it is: place, add, cut, same."""
    kinds = {"+": "add", "-": "cut", "@": "place"}
    return [("place" if line.startswith(("--- ", "+++ ")) else kinds.get(line[:1], "same"), line) for line in lines]
