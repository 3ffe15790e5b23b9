"""One rule, one unit: what it asks, where it comes from, how it is told, with an example that is a test as well."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from blendex.blend.interpolate import Document
from blendex.blend.model import Pointer
from blendex.lint.context import Context
from blendex.lint.kinds import shown
from blendex.lint.model import Edit, Severity
from blendex.lint.paths import PathSpec
from blendex.lint.profile import PROFILES
from blendex.lint.scopes import Scope, Setting

NOTES = "NeMo Speech (c03be830), notes of the migration to the resumable dataloader"
CODE = "NeMo Speech main (c03be830)"
OURS = "found while reading upstream's code"


@dataclass(frozen=True, slots=True)
class Hit:
    """What a rule has noticed, before it is a finding.

    Args:
        document: the YAML, None for a launcher.
        path: the keys in it; what is not written is placed at what would hold it.
        pointer: the field.
        message: one sentence.
        value: what stands there.
        wanted: what should.
        fix: what to do by hand.
        edits: the patch.
        severity: when it weighs otherwise than its rule.
        file: of a launcher.
        line: of a launcher.
    """

    document: Document | None
    path: Pointer
    pointer: Pointer
    message: str
    value: str = ""
    wanted: str = ""
    fix: str = ""
    edits: tuple[Edit, ...] = ()
    severity: Severity | None = None
    file: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class Packed:
    """One collection of a pack of an example.

    Args:
        role: what training looks for.
        kind: of its sources.
        spec: the value that names it.
        paths: its sources; each has one record.
    """

    role: str
    kind: str
    spec: str
    paths: tuple[str, ...]


@dataclass(frozen=True)
class Example:
    """A config that breaks a rule, and one that does not; shown in the documents and run by the tests.

    Args:
        bad: breaks it.
        good: does not.
        fixed: ``bad`` as the patch leaves it, for rules with a patch.
        nested: files that both include, and folders and sources as far as they matter: path → content.
        launcher: a script beside ``bad``.
        good_launcher: the one beside ``good``.
        facts: beside ``bad``.
        good_facts: beside ``good``.
        profile: of upstream.
        file: name of the launcher.
        findings: what builds have found in sources: path → class and count.
        packs: what the packs beside both hold.
    """

    bad: str
    good: str
    fixed: str = ""
    nested: Mapping[str, str] = field(default_factory=dict)
    launcher: str = ""
    good_launcher: str = ""
    facts: Mapping[str, Any] | None = None
    good_facts: Mapping[str, Any] | None = None
    profile: str = "main"
    file: str = "job.sbatch"
    findings: Mapping[str, list[tuple[str, int]]] = field(default_factory=dict)
    packs: Mapping[str, tuple[Packed, ...]] = field(default_factory=dict)


Check = Callable[[Context], Iterator[Hit]]


@dataclass(frozen=True)
class Rule:
    """One rule.

    Args:
        id: never re-used for another one.
        severity: as a rule.
        title: what must be true, in few words.
        where: the field that it looks at.
        why: the reason.
        otherwise: what breaks when it is not so.
        source: where upstream says or does it.
        patch: what the safe patch does; empty when there is none.
        profiles: names of the versions of upstream it holds for.
        blend: it concerns the blend itself, whatever config is around it: a build is refused when it is fatal.
        example: breaks it, and does not.
        check: yields what breaks it.
    """

    id: str
    severity: Severity
    title: str
    where: str
    why: str
    otherwise: str
    source: str
    patch: str
    profiles: frozenset[str]
    blend: bool
    example: Example
    check: Check


RULES: dict[str, Rule] = {}


def rule(
    id: str,  # noqa: A002 -- the word of the table
    severity: Severity,
    *,
    title: str,
    where: str,
    why: str,
    otherwise: str,
    source: str,
    example: Example,
    patch: str = "",
    profiles: tuple[str, ...] = tuple(PROFILES),
    blend: bool = False,
) -> Callable[[Check], Check]:
    """Enter the decorated check as a rule."""

    def enter(check: Check) -> Check:
        assert id not in RULES, id
        RULES[id] = Rule(
            id, severity, title, where, why, otherwise, source, patch, frozenset(profiles), blend, example, check
        )
        return check

    return enter


def at(
    setting: Setting,
    message: str,
    *,
    wanted: Any = "",
    fix: str = "",
    edits: tuple[Edit, ...] = (),
    severity: Severity | None = None,
    value: str | None = None,
) -> Hit:
    """A hit at a field, written or not."""
    place = setting.spot.place
    path = (*place.path, setting.key) if setting.written else place.path
    text = wanted if isinstance(wanted, str) else shown(wanted)
    return Hit(
        place.document, path, setting.pointer, message,
        setting.shown if value is None else value, text, fix, edits, severity,
    )  # fmt: skip


def needs(setting: Setting, wanted: Any, message: str, *, severity: Severity | None = None) -> Hit:
    """A hit at a field that a patch sets to what it should be."""
    edits = (setting.set(wanted),)
    return at(
        setting, message, wanted=wanted, fix=f"Set {setting.key}: {shown(wanted)}.", edits=edits, severity=severity
    )


def on(
    scope: Scope,
    message: str,
    *,
    key: str | None = None,
    value: str = "",
    wanted: str = "",
    fix: str = "",
    edits: tuple[Edit, ...] = (),
    severity: Severity | None = None,
) -> Hit:
    """A hit at an entry or a section as a whole, or at one key of it."""
    place, pointer = scope.spot.place, scope.spot.pointer
    path = (*place.path, key) if key is not None and key in scope.node else place.path
    pointer = (*pointer, key) if key is not None else pointer
    return Hit(place.document, path, pointer, message, value, wanted, fix, edits, severity)


def where_path(
    spec: PathSpec,
    message: str,
    *,
    wanted: str = "",
    fix: str = "",
    edits: tuple[Edit, ...] = (),
    severity: Severity | None = None,
) -> Hit:
    """A hit at one path of an entry."""
    place = spec.spot.place
    return Hit(
        place.document, (*place.path, spec.step), spec.pointer, message, shown(spec.text), wanted, fix, edits, severity
    )


def in_launcher(
    context: Context,
    line: int,
    message: str,
    *,
    field: str = "launcher",
    value: str = "",
    wanted: str = "",
    fix: str = "",
) -> Hit:
    """A hit in the launcher."""
    assert context.launcher is not None
    return Hit(None, (), (field,), message, value, wanted, fix, file=context.launcher.file, line=line)
