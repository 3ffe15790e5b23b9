"""Path patterns: the bracket rewriting of NeMo, then brace expansion.

The expansion equals braceexpand 0.1.7 with ``escape=False`` after the rewriting of
``expand_sharded_filepaths`` (nemo-toolkit 3.0.0). It is our own because a range of 30 bytes makes the library
build gigabytes: here the number of results is computed before the first one is made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from string import ascii_lowercase, ascii_uppercase

from blendex.errors import BlendexError, Code

_OPENING = ("(", "[", "<", "_OP_")
_CLOSING = (")", "]", ">", "_CL_")
_MARK = re.compile(r"[()\[\]<>{}]|_OP_|_CL_")
_LETTERS = ascii_uppercase + ascii_lowercase
_INTEGERS = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.-?(\d+))?$")
_CHARACTERS = re.compile(r"([A-Za-z])\.\.([A-Za-z])(?:\.\.-?(\d+))?$")
_MAX_NESTING = 64
_MAX_CHARACTERS = 256 * 1024 * 1024
# Counts above this are not told apart: products of many ranges would only cost time on long integers.
_MANY = 10**30


@dataclass(frozen=True, slots=True)
class _Integers:
    numbers: range
    width: int


@dataclass(frozen=True, slots=True)
class _Choice:
    options: tuple[_Chain, ...]


_Part = str | _Integers | _Choice


@dataclass(frozen=True, slots=True)
class _Chain:
    parts: tuple[_Part, ...]


def rewritten(spec: str) -> str:
    """``spec`` with every bracket that NeMo takes for a brace replaced, wherever in the string it stands."""
    for mark in _OPENING:
        spec = spec.replace(mark, "{")
    for mark in _CLOSING:
        spec = spec.replace(mark, "}")
    return spec


def count(spec: str) -> int:
    """How many paths ``spec`` means, by arithmetic, saturated at 10**30.

    Raises:
        BlendexError: PATTERN_UNBALANCED, PATTERN_TOO_MANY (nested too deeply).
    """
    return _measure(_parse(spec))[0]


def expand(spec: str, limit: int) -> list[str]:
    """The paths that ``spec`` means, leftmost range slowest.

    Args:
        spec: one path pattern.
        limit: the largest number of paths allowed.

    Raises:
        BlendexError: PATTERN_UNBALANCED, PATTERN_TOO_MANY naming the count.
    """
    if limit > 0 and len(spec) <= _MAX_CHARACTERS and _MARK.search(spec) is None:
        return [spec]  # most paths are no pattern
    chain = _parse(spec)
    total, characters = _measure(chain)
    if total > limit:
        shown = f"{total:,}" if total < _MANY else "more than 10^30"
        raise BlendexError(
            Code.PATTERN_TOO_MANY,
            f"{_short(spec)} would expand to {shown} paths; the limit is {limit:,}.",
            next_step="Check the range bounds, or split the entry.",
        )
    if characters > _MAX_CHARACTERS:
        raise BlendexError(
            Code.PATTERN_TOO_MANY,
            f"{_short(spec)} would expand to {total:,} paths of {characters:,} characters altogether.",
            next_step="Shorten the pattern, or split the entry.",
        )
    return _strings(chain)


def _parse(spec: str) -> _Chain:
    pattern = rewritten(spec)
    if "{" not in pattern and "}" not in pattern:
        return _Chain((pattern,))
    balance = pattern.count("{") - pattern.count("}")
    if balance:
        raise BlendexError(
            Code.PATTERN_UNBALANCED,
            f"{_short(spec)} has unbalanced braces after NeMo's bracket rewriting ({_short(pattern)}).",
            next_step="Close every brace; ( [ < and _OP_ open one, ) ] > and _CL_ close one.",
        )
    depth = 0
    for match in re.finditer(r"[{}]", pattern):  # each level is looked through again for its inner ones
        depth += 1 if match.group() == "{" else -1
        if depth > _MAX_NESTING + 1:
            raise _nested()
    return _chain(pattern, 0)


def _nested() -> BlendexError:
    return BlendexError(
        Code.PATTERN_TOO_MANY,
        f"A path pattern nests braces deeper than {_MAX_NESTING} levels.",
        next_step="Write the pattern with fewer nested braces.",
    )


def _chain(pattern: str, nesting: int) -> _Chain:
    if nesting > _MAX_NESTING:
        raise _nested()
    parts: list[_Part] = []
    start = 0
    for opening, closing in _groups(pattern):
        if opening > start:
            parts.append(pattern[start:opening])
        inside = pattern[opening + 1 : closing]
        part = _expression(inside, nesting)
        if part is None:
            parts.append("{")
            parts.extend(_chain(inside, nesting + 1).parts)
            parts.append("}")
        else:
            parts.append(part)
        start = closing + 1
    if start < len(pattern):
        parts.append(pattern[start:])
    return _Chain(tuple(parts))


def _groups(pattern: str) -> Iterator[tuple[int, int]]:
    """Start and end of every outermost brace pair.

    A closing brace that comes too early makes the depth negative, and the library then takes the next opening
    one for its partner: ``}{`` is literal text.
    """
    depth = 0
    opening = 0
    for match in re.finditer(r"[{}]", pattern):
        position = match.start()
        if match.group() == "{":
            if depth == 0:
                opening = position
            depth += 1
        else:
            depth -= 1
            if depth == 0:
                yield opening, position


def _expression(inside: str, nesting: int) -> _Part | None:
    match = _INTEGERS.match(inside)
    if match:
        return _integers(*match.groups())
    match = _CHARACTERS.match(inside)
    if match:
        return _characters(*match.groups())
    pieces = _pieces(inside)
    if len(pieces) == 1:
        return None
    return _Choice(tuple(_chain(piece, nesting + 1) for piece in pieces))


def _integers(first: str, last: str, step: str | None) -> _Integers:
    padded = any(bound.startswith(("0", "-0")) and bound not in ("0", "-0") for bound in (first, last))
    width = max(len(first), len(last)) if padded else 0
    start, end, stride = _number(first), _number(last), _number(step or "1") or 1
    if start < end:
        return _Integers(range(start, end + 1, stride), width)
    return _Integers(range(start, end - 1, -stride), width)


def _characters(first: str, last: str, step: str | None) -> _Choice:
    start, end = _LETTERS.index(first), _LETTERS.index(last)
    stride = _number(step or "1") or 1
    span = _LETTERS[start : end + 1] if start < end else _LETTERS[end : start + 1][::-1]
    return _Choice(tuple(_Chain((letter,)) for letter in span[::stride]))


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BlendexError(
            Code.PATTERN_TOO_MANY,
            "A range in a path pattern has a bound of thousands of digits.",
            next_step="Check the range bounds.",
        ) from None


def _pieces(inside: str) -> list[str]:
    pieces: list[str] = []
    depth = 0
    start = 0
    for match in re.finditer(r"[{},]", inside):
        mark = match.group()
        if mark == "{":
            depth += 1
        elif mark == "}":
            depth -= 1
        elif depth == 0:
            pieces.append(inside[start : match.start()])
            start = match.end()
    pieces.append(inside[start:])
    return pieces


def _measure(part: _Part | _Chain) -> tuple[int, int]:
    """Number of strings, and an upper bound of their characters altogether."""
    if isinstance(part, str):
        return 1, len(part)
    if isinstance(part, _Integers):
        # len() of a range overflows beyond 2**63.
        numbers = part.numbers
        amount = abs(numbers[-1] - numbers[0]) // abs(numbers.step) + 1
        digits = max(len(str(numbers[0])), len(str(numbers[-1])), part.width)
        return min(amount, _MANY), min(amount * digits, _MANY)
    if isinstance(part, _Choice):
        measured = [_measure(option) for option in part.options]
        return min(sum(m[0] for m in measured), _MANY), min(sum(m[1] for m in measured), _MANY)
    total, characters = 1, 0
    for inner in part.parts:
        amount, size = _measure(inner)
        total, characters = min(total * amount, _MANY), min(characters * amount + size * total, _MANY)
    return total, characters


def _strings(part: _Part | _Chain) -> list[str]:
    if isinstance(part, str):
        return [part]
    if isinstance(part, _Integers):
        return [f"{number:0{part.width}d}" if part.width else str(number) for number in part.numbers]
    if isinstance(part, _Choice):
        return [text for option in part.options for text in _strings(option)]
    made = [""]
    for inner in part.parts:
        more = _strings(inner)
        made = [text + more[0] for text in made] if len(more) == 1 else [text + tail for text in made for tail in more]
    return made


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}…"
