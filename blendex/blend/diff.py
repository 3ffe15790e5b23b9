"""The difference between the posted blend and the ready one, as ``diff -u`` writes it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

CONTEXT = 3
MOST_LINES = 2_000
"""``difflib`` takes seconds for more lines in one piece: beyond, lines that occur once on both sides part the texts."""


def unified(before: str, after: str, name: str) -> str:
    """A unified diff; empty when nothing differs."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    parts: list[str] = []
    for group in _groups(list(_opcodes(old, new))):
        parts += _hunk(old, new, group)
    if not parts:
        return ""
    return "".join([f"--- {name}\n", f"+++ ready/{name.rpartition('/')[2]}\n", *parts])


Opcode = tuple[str, int, int, int, int]


def _opcodes(old: list[str], new: list[str]) -> Iterator[Opcode]:
    """As ``SequenceMatcher.get_opcodes``, joined over the pieces."""
    last: Opcode | None = None
    for code in _pieces(old, new, 0, len(old), 0, len(new)):
        if last is not None and (last[0] == code[0]):
            last = (last[0], last[1], code[2], last[3], code[4])
            continue
        if last is not None:
            yield last
        last = code
    if last is not None:
        yield last


def _pieces(old: list[str], new: list[str], a: int, b: int, c: int, d: int) -> Iterator[Opcode]:
    start = 0
    while a + start < b and c + start < d and old[a + start] == new[c + start]:
        start += 1
    if start:
        yield "equal", a, a + start, c, c + start
    a, c, end = a + start, c + start, 0
    while b - end > a and d - end > c and old[b - end - 1] == new[d - end - 1]:
        end += 1
    yield from _middle(old, new, a, b - end, c, d - end)
    if end:
        yield "equal", b - end, b, d - end, d


def _middle(old: list[str], new: list[str], a: int, b: int, c: int, d: int) -> Iterator[Opcode]:
    if a == b and c == d:
        return
    if a == b or c == d:
        yield "delete" if c == d else "insert", a, b, c, d
        return
    anchors = _anchors(old, new, a, b, c, d) if b - a + d - c > MOST_LINES else []
    if not anchors:
        if b - a + d - c > MOST_LINES:
            yield "replace", a, b, c, d
            return
        for tag, i, j, k, m in difflib.SequenceMatcher(None, old[a:b], new[c:d], autojunk=False).get_opcodes():
            yield tag, a + i, a + j, c + k, c + m
        return
    for x, y in [*anchors, (b, d)]:
        yield from _pieces(old, new, a, x, c, y)
        if x < b:
            yield "equal", x, x + 1, y, y + 1
        a, c = x + 1, y + 1


def _anchors(old: list[str], new: list[str], a: int, b: int, c: int, d: int) -> list[tuple[int, int]]:
    """Lines that occur once on both sides, in an order that both sides have."""
    seen: dict[str, int | None] = {}
    for at in range(a, b):
        seen[old[at]] = None if old[at] in seen else at
    there: dict[str, int | None] = {}
    for at in range(c, d):
        there[new[at]] = None if new[at] in there else at
    found: list[tuple[int, int]] = []
    for line, place in seen.items():
        other = there.get(line)
        if place is not None and other is not None and (not found or other > found[-1][1]):
            found.append((place, other))
    return found


def _groups(codes: list[Opcode]) -> Iterator[list[Opcode]]:
    """Changes with their surroundings (as ``SequenceMatcher.get_grouped_opcodes``)."""
    group: list[Opcode] = []
    for number, (tag, a, b, c, d) in enumerate(codes):
        if tag != "equal":
            group.append((tag, a, b, c, d))
            continue
        first, last = number == 0, number == len(codes) - 1
        if first:
            cut = max(a, b - CONTEXT)
            group = [(tag, cut, b, c + cut - a, d)]
        elif last or b - a > 2 * CONTEXT:
            end = min(b, a + CONTEXT)
            group.append((tag, a, end, c, c + end - a))
            yield group
            group = [] if last else [(tag, b - CONTEXT, b, d - CONTEXT, d)]
        else:
            group.append((tag, a, b, c, d))
    if group and any(tag != "equal" for tag, *_ in group):
        yield group


def _hunk(old: list[str], new: list[str], group: list[Opcode]) -> Iterator[str]:
    first, last = group[0], group[-1]
    yield f"@@ -{_range(first[1], last[2])} +{_range(first[3], last[4])} @@\n"
    for tag, a, b, c, d in group:
        if tag == "equal":
            yield from (_line(" ", line) for line in old[a:b])
            continue
        yield from (_line("-", line) for line in old[a:b])
        yield from (_line("+", line) for line in new[c:d])


def _range(start: int, end: int) -> str:
    length = end - start
    if length == 1:
        return str(start + 1)
    return f"{start + 1 if length else start},{length}"


def _line(mark: str, line: str) -> str:
    return f"{mark}{line}" if line.endswith("\n") else f"{mark}{line}\n\\ No newline at end of file\n"
