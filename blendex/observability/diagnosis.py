"""What ``blendex doctor`` says of one thing it looked at. Every room that can look at something makes these."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warning", "wrong", "skipped"]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One thing that was looked at.

    Args:
        check: its name within its kind, one word.
        verdict: ``wrong``: a promise of Blendex does not hold here; ``warning``: it holds, at a price;
            ``skipped``: it could not be looked at, and ``says`` tells why.
        says: what was found, with figures.
        do: what the reader can do about it; empty when there is nothing to do.
    """

    check: str
    verdict: Verdict
    says: str
    do: str = ""


Check = Callable[[], Iterable[Diagnosis]]


def median_ms(seconds: list[float]) -> float:
    """The median of some durations, in milliseconds."""
    return sorted(seconds)[len(seconds) // 2] * 1000
