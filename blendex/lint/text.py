"""Findings for people: a line for each, the line of the YAML that it speaks of, what to do."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Iterator

from blendex.lint.migrate import Migration
from blendex.lint.model import Finding, Report, Severity
from blendex.lint.rule import RULES

_WIDTH = 160


def lines(migration: Migration, *, relative_to: str | None = None) -> Iterator[str]:
    """The report of one config.

    Args:
        migration: what was found.
        relative_to: a folder below which names are told shortly.
    """
    report = migration.report

    def short(name: str) -> str:
        if relative_to and name.startswith(relative_to.rstrip("/") + "/"):
            return os.path.relpath(name, relative_to)
        return name

    texts = {name: text.decode("utf-8", "replace").split("\n") for name, text in report.files.items()}
    for finding in report.findings:
        if finding.suppressed is None:
            yield from _finding(migration, finding, texts.get(finding.file, []), short)
    yield from _end(migration, short)


def _finding(migration: Migration, finding: Finding, text: list[str], short: Callable[[str], str]) -> Iterator[str]:
    place = f"{short(finding.file)}:{finding.line}:{finding.column}"
    yield clean(f"{place}: {finding.severity} {finding.rule}: {finding.message} [{finding.field}]")
    if 0 < finding.line <= len(text):
        line = text[finding.line - 1].rstrip("\r")
        number = f"{finding.line:>5} | "
        begin = max(0, finding.column - 1 - _WIDTH // 2) if len(line) > _WIDTH else 0
        yield clean(number + line[begin : begin + _WIDTH])
        yield " " * (len(number) + finding.column - 1 - begin) + "^"
    if finding.value or finding.wanted:
        wanted = f", wanted {finding.wanted}" if finding.wanted else ""
        yield clean(f"        now {finding.value or 'not set'}{wanted}")
    if finding.edits and finding not in migration.refused:
        yield "        patch: --fix"
    elif finding.fix:
        yield clean(f"        {finding.fix}")
    if finding in migration.refused:
        yield f"        no patch: {migration.refused[finding]}"
    yield clean(f"        otherwise: {RULES[finding.rule].otherwise}")


def clean(text: str) -> str:
    """One line that does nothing to a terminal."""
    return "".join(" " if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") else char for char in text)


def _end(migration: Migration, short: Callable[[str], str]) -> Iterator[str]:
    report, after = migration.report, migration.after
    counts = ", ".join(f"{count} {level}" for level, count in report.counts().items())
    yield f"{short(report.file)}: {counts}; {report.entries:,} entries, {report.sources:,} sources"
    for item in report.exceptions:
        assert item.suppressed is not None
        yield clean(f"  exception: {item.rule} {item.field}: {item.suppressed.reason}")
    if report.unchecked:
        yield f"  not checked, for want of facts ({len(report.unchecked)}):"
        for unknown in report.unchecked:
            yield clean(f"    {unknown.rule} {unknown.what}; takes {unknown.needs}")
    yield verdict(report)
    if migration.changes:
        state = "launch-ready" if after.ready else f"not launch-ready: {blocking(after)}"
        yield f"  with the patch of {len(migration.changes)} fields: {state}"


def verdict(report: Report) -> str:
    """Launch-ready or not, in one line."""
    if report.ready:
        kept = f", with {len(report.exceptions)} exceptions" if report.exceptions else ""
        return f"  launch-ready{kept}"
    return f"  not launch-ready: {blocking(report)}"


def blocking(report: Report) -> str:
    """The rules that block, with how often."""
    counts: dict[str, int] = {}
    for item in report.blockers:
        counts[item.rule] = counts.get(item.rule, 0) + 1
    return ", ".join(name if count == 1 else f"{name} ×{count}" for name, count in sorted(counts.items()))


def at_least(report: Report, level: str) -> bool:
    """Whether something of this severity, or worse, stands."""
    if level == "never":
        return False
    rank = Severity(level).rank
    return any(item.severity.rank <= rank for item in report.findings if item.suppressed is None)
