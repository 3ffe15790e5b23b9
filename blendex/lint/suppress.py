"""Findings that somebody lets stand: by a comment beside the field, or in a baseline file. Always with a reason.

    # blendex: allow IDX016 until 2027-01-31 cost "2 h more per epoch" because the text set is small

A comment counts for its own line, or, on a line of its own, for the next line that is none. ``allow-file`` counts for
the whole file. What is fatal needs a cost as well: it is an exception, not an oversight.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from blendex.errors import BlendexError, Code
from blendex.lint.marks import Marks
from blendex.lint.model import Finding, Severity, Suppression

_COMMENT = re.compile(
    r"#\s*blendex:\s*(?P<word>allow|allow-file)\s+(?P<rules>IDX\d+(?:\s*,\s*IDX\d+)*)"
    r"(?:\s+until\s+(?P<until>\S+))?(?:\s+cost\s+\"(?P<cost>[^\"\n]*)\")?(?:\s+because\s+(?P<reason>\S[^\n]*))?"
)
_ANY = re.compile(r"#\s*blendex:[^\n]*")
LARGEST = 16 * 2**20


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment of this kind: what it allows, and what is wrong with it."""

    line: int
    column: int
    applies: int
    whole_file: bool
    rules: tuple[str, ...]
    until: str | None
    cost: str
    reason: str


def comments(text: str, marks: Marks) -> list[Comment]:
    """The comments of one YAML text that speak to the linter."""
    if "blendex:" not in text:
        return []
    found = []
    lines = text.split("\n")
    offset = 0
    for number, line in enumerate(lines, start=1):
        any_match = _ANY.search(line)
        if any_match and not marks.in_scalar(offset + any_match.start()):
            match = _COMMENT.match(line, any_match.start())
            alone = not line[: any_match.start()].strip()
            applies = _next(lines, number) if alone else number
            column = any_match.start() + 1
            if match is None:
                found.append(Comment(number, column, applies, False, (), None, "", ""))
            else:
                rules = tuple(part.strip() for part in match["rules"].split(","))
                found.append(
                    Comment(
                        number, column, applies, match["word"] == "allow-file", rules, match["until"],
                        match["cost"] or "", (match["reason"] or "").strip(),
                    )
                )  # fmt: skip
        offset += len(line) + 1
    return found


def _next(lines: list[str], number: int) -> int:
    """The next line that is neither blank nor a comment."""
    for following in range(number, len(lines)):
        if lines[following].strip() and not lines[following].lstrip().startswith("#"):
            return following + 1
    return number


def _date(text: str | None) -> tuple[datetime.date | None, bool]:
    if text is None:
        return None, True
    try:
        return datetime.date.fromisoformat(text), True
    except ValueError:
        return None, False


def wrong(comment: Comment, known: Iterable[str], fatal: Iterable[str], today: datetime.date) -> str:
    """Why a comment does not count; empty when it does."""
    until, readable = _date(comment.until)
    unknown = [rule for rule in comment.rules if rule not in set(known)]
    if not comment.rules:
        return "it is not spelt as one that allows a rule"
    if unknown:
        return f"there is no rule {unknown[0]}"
    if not readable:
        return f"{str(comment.until)[:40]} is no date (YYYY-MM-DD)"
    if not comment.reason:
        return "it gives no reason (because …)"
    if until is not None and until < today:
        return f"it ended on {until.isoformat()}"
    if not comment.cost and any(rule in set(fatal) for rule in comment.rules):
        return 'what is fatal needs an expected cost (cost "…")'
    return ""


@dataclass(frozen=True, slots=True)
class Baseline:
    """One finding that a baseline file lets stand."""

    rule: str
    file: str
    field: str
    suppression: Suppression


def wrong_listed(item: Baseline, severities: Mapping[str, Severity], today: datetime.date) -> str:
    """Why an item of a baseline does not count; empty when it does."""
    until = item.suppression.until
    if item.rule not in severities:
        return f"there is no rule {item.rule[:20]}"
    if until is not None and until < today:
        return f"it ended on {until.isoformat()}"
    if not item.suppression.cost and severities[item.rule] is Severity.FATAL:
        return "what is fatal needs an expected cost (cost)"
    return ""


def read_baseline(text: bytes, name: str) -> list[Baseline]:
    """The baseline in a JSON text: ``{"allow": [{"rule", "field", "reason", "file"?, "until"?, "cost"?}]}``.

    Raises:
        BlendexError: bad_request, naming the item.
    """
    try:
        data = orjson.loads(text) if len(text) <= LARGEST else None
    except orjson.JSONDecodeError:
        data = None
    items = data.get("allow") if isinstance(data, dict) else None
    if not isinstance(items, list):
        raise _bad(name, "it is no JSON object with a list allow.")
    return [_baseline(item, number, name) for number, item in enumerate(items)]


def _baseline(item: Any, number: int, name: str) -> Baseline:
    if not isinstance(item, Mapping) or not all(isinstance(value, str) for value in item.values()):
        raise _bad(name, f"item {number} is no object of texts.")
    if not item.get("rule") or not item.get("field") or not item.get("reason"):
        raise _bad(name, f"item {number} lacks rule, field or reason.")
    until, readable = _date(item.get("until"))
    if not readable:
        raise _bad(name, f"until of item {number} is no date (YYYY-MM-DD).")
    rule = item["rule"]
    suppression = Suppression(rule, item["reason"], until, item.get("cost", ""), name, number + 1)
    return Baseline(rule, item.get("file", ""), item["field"], suppression)


def _bad(name: str, message: str) -> BlendexError:
    return BlendexError(
        Code.BAD_REQUEST,
        f"The baseline cannot be read: {message}",
        file=name,
        next_step='Write {"allow": [{"rule": "IDX016", "field": "…", "reason": "…", "until": "2027-01-31"}]}.',
    )


def apply(
    findings: Iterable[Finding],
    by_file: Mapping[str, list[Comment]],
    baseline: Iterable[Baseline],
    today: datetime.date,
) -> list[Finding]:
    """The findings, each with who lets it stand.

    Args:
        findings: all of them.
        by_file: the comments that count.
        baseline: of a file.
        today: what an end is held against.
    """
    listed = {(item.rule, item.field): item for item in baseline}
    result = []
    for finding in findings:
        found = _comment_for(finding, by_file.get(finding.file, ())) or _listed_for(finding, listed, today)
        fatal = finding.severity is Severity.FATAL
        if found is not None and fatal and not found.cost:
            found = None
        result.append(replace(finding, suppressed=found) if found is not None else finding)
    return result


def _comment_for(finding: Finding, found: Iterable[Comment]) -> Suppression | None:
    for comment in found:
        if finding.rule in comment.rules and (comment.whole_file or comment.applies == finding.line):
            until, _ = _date(comment.until)
            return Suppression(finding.rule, comment.reason, until, comment.cost, finding.file, comment.line)
    return None


def _listed_for(
    finding: Finding, listed: Mapping[tuple[str, str], Baseline], today: datetime.date
) -> Suppression | None:
    item = listed.get((finding.rule, finding.field))
    if item is None or (item.file and not finding.file.endswith(item.file)):
        return None
    until = item.suppression.until
    return None if until is not None and until < today else item.suppression
