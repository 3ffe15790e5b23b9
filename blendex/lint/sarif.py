"""SARIF 2.1.0, for code hosts and editors."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from blendex.lint.migrate import Migration, link
from blendex.lint.model import Finding, Severity
from blendex.lint.rule import RULES
from blendex.version import __version__

_LEVEL = {Severity.FATAL: "error", Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}
SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def sarif(migrations: Sequence[Migration]) -> dict[str, Any]:
    """One run with the findings of all configs.

    The four severities become three levels; ``properties.severity`` keeps them. Columns count characters.
    """
    names = sorted(RULES)
    index = {name: number for number, name in enumerate(names)}
    results = [_result(finding, index[finding.rule]) for item in migrations for finding in item.report.findings]
    driver = {"name": "Blendex", "version": __version__, "rules": [_rule(name) for name in names]}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(name: str) -> dict[str, Any]:
    rule = RULES[name]
    return {
        "id": name,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": f"{rule.why} {rule.otherwise}"},
        "help": {"text": f"{rule.where}: {rule.why} Otherwise: {rule.otherwise} See {link(name)}."},
        "defaultConfiguration": {"level": _LEVEL[rule.severity]},
        "properties": {"severity": str(rule.severity), "upstream": sorted(rule.profiles)},
    }


def _result(finding: Finding, index: int) -> dict[str, Any]:
    fingerprint = hashlib.sha256(f"{finding.rule}\0{finding.field}\0{finding.value}".encode()).hexdigest()[:32]
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": index,
        "level": _LEVEL[finding.severity],
        "message": {"text": f"{finding.message} {finding.fix}".strip()},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": _uri(finding.file)},
                    "region": {"startLine": max(1, finding.line), "startColumn": max(1, finding.column)},
                },
                "logicalLocations": [{"fullyQualifiedName": finding.field}],
            }
        ],
        "partialFingerprints": {"field/v1": fingerprint},
        "properties": {
            "severity": str(finding.severity),
            "field": finding.field,
            "value": finding.value,
            "wanted": finding.wanted,
        },
    }
    if finding.suppressed is not None:
        in_source = finding.suppressed.file == finding.file
        result["suppressions"] = [
            {"kind": "inSource" if in_source else "external", "justification": finding.suppressed.reason}
        ]
    return result


def _uri(file: str) -> str:
    path = quote(file, safe="/~._-")
    return f"file://{path}" if file.startswith("/") else path
