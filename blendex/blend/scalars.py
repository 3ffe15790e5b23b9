"""Plain YAML scalars as OmegaConf 2.4 reads them.

That is PyYAML's YAML 1.1 table without timestamps, and with floats whose exponent has no sign or whose
mantissa has no point (``1e-4``).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

import yaml

Scalar = str | int | float | bool | None

_TAG = "tag:yaml.org,2002:"
_SHORT_FLOAT = re.compile(r"[-+]?[0-9]+(?:_[0-9]+)*(?:\.[0-9_]*)?[eE][-+]?[0-9]+$")
_TABLE: dict[str, list[tuple[str, re.Pattern[str]]]] = {
    first: [(tag.removeprefix(_TAG), pattern) for tag, pattern in rules if not tag.endswith((":timestamp", ":yaml"))]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class NotAScalarError(ValueError):
    """A plain scalar that OmegaConf recognises and then cannot read (``=``, ``<<``, ``0x_``)."""


def plain(text: str) -> Scalar:
    """The value of an unquoted scalar.

    Raises:
        NotAScalarError: the scalar has a meaning in YAML 1.1 that no value belongs to.
    """
    # Long scalars are paths, each met once; keeping them would only hold memory.
    return _cached(text) if len(text) <= 32 else _resolved(text)


def _resolved(text: str) -> Scalar:
    for tag, pattern in _TABLE.get(text[:1], ()):
        if pattern.match(text):
            if tag not in _READERS:
                raise NotAScalarError(tag)
            try:
                return _READERS[tag](text)
            except ValueError:
                raise NotAScalarError(tag) from None
    if text[:1] in "-+0123456789" and _SHORT_FLOAT.match(text):
        return float(text.replace("_", ""))
    return text


_cached = lru_cache(maxsize=4096)(_resolved)


def _null(_: str) -> None:
    return None


def _bool(text: str) -> bool:
    return text.lower() in ("yes", "true", "on")


def _int(text: str) -> int:
    sign = -1 if text[0] == "-" else 1
    digits = text.replace("_", "").lstrip("+-")
    if digits == "0":
        return 0
    for prefix, base in (("0b", 2), ("0x", 16), ("0", 8)):
        if digits.startswith(prefix):
            return sign * int(digits[len(prefix) :], base)
    value: int = sum(int(part) * 60**power for power, part in enumerate(reversed(digits.split(":"))))
    return sign * value


def _float(text: str) -> float:
    sign = -1.0 if text[0] == "-" else 1.0
    digits = text.replace("_", "").lower().lstrip("+-")
    if digits in (".inf", ".nan"):
        return sign * float(digits[1:])
    value: float = sum(float(part) * 60**power for power, part in enumerate(reversed(digits.split(":"))))
    return sign * value


_READERS: dict[str, Callable[[str], Scalar]] = {"null": _null, "bool": _bool, "int": _int, "float": _float}
