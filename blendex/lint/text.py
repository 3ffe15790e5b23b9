"""Findings for people: a line for each, the line of the YAML that it speaks of, what to do.

Told from the JSON form of a report, so that the answer of a service reads as one from here.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from blendex.lint.model import Severity

_WIDTH = 160


def lines(report: Mapping[str, Any], texts: Mapping[str, str], *, relative_to: str | None = None) -> Iterator[str]:
    """The report of one config.

    Args:
        report: as in the answer.
        texts: of its files, by name, as far as they are here.
        relative_to: a folder below which names are told shortly.
    """

    def short(name: str) -> str:
        if relative_to and name.startswith(relative_to.rstrip("/") + "/"):
            return os.path.relpath(name, relative_to)
        return name

    rows = {name: text.split("\n") for name, text in texts.items()}
    for finding in report["findings"]:
        if finding["exception"] is None:
            yield from _finding(finding, rows.get(finding["file"], []), short)
    yield from _end(report, short)


def _finding(finding: Mapping[str, Any], rows: list[str], short: Callable[[str], str]) -> Iterator[str]:
    row, column = finding["line"], finding["column"]
    place = f"{short(finding['file'])}:{row}:{column}"
    yield clean(f"{place}: {finding['severity']} {finding['rule']}: {finding['message']} [{finding['field']}]")
    if 0 < row <= len(rows):
        line = rows[row - 1].rstrip("\r")
        number = f"{row:>5} | "
        begin = max(0, column - 1 - _WIDTH // 2) if len(line) > _WIDTH else 0
        yield clean(number + line[begin : begin + _WIDTH])
        yield " " * (len(number) + column - 1 - begin) + "^"
    if finding["value"] or finding["wanted"]:
        wanted = f", wanted {finding['wanted']}" if finding["wanted"] else ""
        yield clean(f"        now {finding['value'] or 'not set'}{wanted}")
    if finding["patch"] == "available":
        yield "        patch: --fix"
    elif finding["fix"]:
        yield clean(f"        {finding['fix']}")
    if finding["patch"] == "refused":
        yield f"        no patch: {finding['patch_refused']}"
    yield clean(f"        otherwise: {finding['otherwise']}")


def clean(text: str) -> str:
    """One line that does nothing to a terminal."""
    return "".join(" " if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") else char for char in text)


def _end(report: Mapping[str, Any], short: Callable[[str], str]) -> Iterator[str]:
    counts = ", ".join(f"{count} {level}" for level, count in report["counts"].items())
    yield f"{short(report['file'])}: {counts}; {report['entries']:,} entries, {report['sources']:,} sources"
    for item in report["exceptions"]:
        yield clean(f"  exception: {item['rule']} {item['field']}: {item['exception']['reason']}")
    if report["unchecked"]:
        yield f"  not checked, for want of facts ({len(report['unchecked'])}):"
        for unknown in report["unchecked"]:
            yield clean(f"    {unknown['rule']} {unknown['what']}; takes {unknown['needs']}")
    if report["ready"]:
        kept = f", with {len(report['exceptions'])} exceptions" if report["exceptions"] else ""
        yield f"  launch-ready{kept}"
    else:
        yield f"  not launch-ready: {_rules(report['blockers'])}"
    patch = report["patch"]
    if patch["changes"]:
        state = "launch-ready" if patch["ready"] else f"not launch-ready: {_rules(patch['blockers'])}"
        yield f"  with the patch of {len(patch['changes'])} fields: {state}"


def _rules(findings: Iterable[Mapping[str, Any]]) -> str:
    return blocking(item["rule"] for item in findings)


def blocking(rules: Iterable[str]) -> str:
    """The rules that block, with how often."""
    counts: dict[str, int] = {}
    for rule in rules:
        counts[rule] = counts.get(rule, 0) + 1
    return ", ".join(name if count == 1 else f"{name} ×{count}" for name, count in sorted(counts.items()))


def at_least(report: Mapping[str, Any], level: str) -> bool:
    """Whether something of this severity, or worse, stands."""
    if level == "never":
        return False
    worst = list(Severity)[: Severity(level).rank + 1]
    return any(report["counts"][str(severity)] for severity in worst)
