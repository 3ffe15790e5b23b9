"""What the linter speaks of: findings, edits, and what could not be checked."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from blendex.blend.interpolate import Document
from blendex.blend.model import Pointer


class Severity(StrEnum):
    """How much a finding weighs."""

    FATAL = "fatal"
    """No patch can mend it: data must be prepared anew, or the layout changed."""
    ERROR = "error"
    """The run would not resume exactly, or not start."""
    WARNING = "warning"
    """It depends on things that the linter cannot weigh."""
    NOTE = "note"
    """Told, nothing more."""

    @property
    def rank(self) -> int:
        """0 is the worst."""
        return list(Severity).index(self)


BLOCKING = (Severity.FATAL, Severity.ERROR)


@dataclass(frozen=True, slots=True)
class Edit:
    """One field of one file set to plain data.

    Args:
        document: the file.
        path: the keys that lead to the field there.
        value: what it becomes.
        spread: ``path`` names an item of a list, and ``value`` the items that take its place.
    """

    document: Document
    path: Pointer
    value: Any
    spread: bool = False


@dataclass(frozen=True, slots=True)
class Suppression:
    """Somebody's word that a finding may stand: why, until when, at which cost."""

    rule: str
    reason: str
    until: datetime.date | None
    cost: str
    file: str
    line: int

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        until = self.until.isoformat() if self.until else None
        return {"reason": self.reason, "until": until, "cost": self.cost, "file": self.file, "line": self.line}


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a rule has to say.

    Args:
        rule: id of the rule.
        severity: as it is here; some rules weigh differently by place and by version of upstream.
        message: one sentence.
        file: where it is written.
        line: 1-based; of the key, or of the mapping that lacks it.
        column: 1-based.
        field: dotted path, with nested files thought inlined.
        value: what stands there now, as text; of config and launcher only, never of records.
        wanted: what should.
        fix: what to do, where no patch does it.
        edits: the patch.
        pointer: ``field`` as keys.
        suppressed: who lets it stand.
        unpatchable: why its patch was not applied.
    """

    rule: str
    severity: Severity
    message: str
    file: str
    line: int
    column: int
    field: str
    value: str
    wanted: str
    fix: str
    edits: tuple[Edit, ...] = ()
    pointer: Pointer = ()
    suppressed: Suppression | None = None
    unpatchable: str = ""

    @property
    def blocks(self) -> bool:
        """Whether it stands between the config and a launch."""
        return self.severity in BLOCKING and self.suppressed is None


@dataclass(frozen=True, slots=True)
class Unchecked:
    """A rule that could not be judged, and what it would take."""

    rule: str
    what: str
    needs: str

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"rule": self.rule, "what": self.what, "needs": self.needs}


@dataclass(frozen=True)
class Report:
    """All that was found in one config.

    Args:
        file: the config.
        profile: the texts of upstream that it was held against.
        findings: by file and place, the suppressed ones among them.
        unchecked: what was not judged.
        files: every YAML that was read, with its text.
        settings: what training and validation sections say, by dotted name.
        sources: how many sources the blend names.
        entries: how many entries.
        remote: whether sources lie in an object store.
        launcher: its file name.
    """

    file: str
    profile: str
    findings: tuple[Finding, ...]
    unchecked: tuple[Unchecked, ...]
    files: dict[str, bytes] = field(default_factory=dict)
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    sources: int = 0
    entries: int = 0
    remote: bool = False
    launcher: str | None = None

    @property
    def blockers(self) -> list[Finding]:
        """What stands between this config and a launch."""
        return [item for item in self.findings if item.blocks]

    @property
    def exceptions(self) -> list[Finding]:
        """What would, had nobody signed for it."""
        return [item for item in self.findings if item.severity in BLOCKING and item.suppressed is not None]

    @property
    def ready(self) -> bool:
        """Whether nothing that the linter can judge stands between this config and a launch."""
        return not self.blockers

    def counts(self) -> dict[str, int]:
        """Findings by severity, without the suppressed ones."""
        return {
            str(level): sum(item.severity is level and item.suppressed is None for item in self.findings)
            for level in Severity
        }
