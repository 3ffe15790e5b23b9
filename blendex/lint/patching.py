"""Patches: the safe edits of findings, made in the text itself, so that everything else stays byte for byte.

Each edited file is read again and held against what it should mean: the fields that were named, and not one more. An
edit that would reach further, because an anchor or a merge key shares the place, is left out and said so.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from blendex.blend.interpolate import Document, escape
from blendex.blend.load import Limits, parse
from blendex.blend.model import Pointer
from blendex.errors import BlendexError
from blendex.lint.context import Context
from blendex.lint.kinds import shown
from blendex.lint.marks import Marks, Span
from blendex.lint.model import Edit, Finding
from blendex.lint.scopes import dotted

_PLAIN_KEY = re.compile(r"[A-Za-z_][\w\-]*\Z")
_ANCHOR = re.compile(r"(&\S+\s+)")
# Each edit alone costs one reading of its file.
_MOST_ALONE = 200
SHARED = "an anchor, an alias or a merge key shares the place; change it by hand"
CONTRADICTS = "another finding sets the same field otherwise"
SHAPE = "the place is written in a way that is not edited safely; change it by hand"
SECTIONS = "training and validation share this mapping; give each its own first"


@dataclass(frozen=True, slots=True)
class Change:
    """One field that a patch has set.

    Args:
        rule: which asked for it.
        file: where.
        field: dotted path.
        before: what stood there.
        after: what does.
    """

    rule: str
    file: str
    field: str
    before: str
    after: str

    def as_dict(self) -> dict[str, str]:
        """The JSON form."""
        return {"rule": self.rule, "file": self.file, "field": self.field, "before": self.before, "after": self.after}


@dataclass
class Patched:
    """What patching has come to.

    Args:
        texts: the new text of each changed file.
        changes: the fields that were set.
        refused: findings whose patch was left out → why.
    """

    texts: dict[Document, str] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    refused: dict[Finding, str] = field(default_factory=dict)


def patch(context: Context, findings: Iterable[Finding], extra: Mapping[Document, list[Edit]] | None = None) -> Patched:
    """Apply the edits of findings that nobody suppressed.

    Args:
        context: of the report that the findings are of.
        findings: those to mend.
        extra: edits that belong to no finding, such as the name of a patched blend.
    """
    result = Patched()
    wanted: dict[Document, dict[Pointer, Edit]] = {}
    owners: dict[tuple[Document, Pointer], list[Finding]] = {}
    shared = _shared_places(context)
    for finding in findings:
        if not finding.edits or finding.suppressed is not None:
            continue
        why = _refusal(finding.edits, wanted, shared)
        if why:
            result.refused[finding] = why
            continue
        for edit in finding.edits:
            wanted.setdefault(edit.document, {})[edit.path] = edit
            owners.setdefault((edit.document, edit.path), []).append(finding)
    for document, edits in (extra or {}).items():
        for edit in edits:
            wanted.setdefault(document, {}).setdefault(edit.path, edit)
    for document, by_path in wanted.items():
        text = context.atlas.marks(document).text
        new, failed = _edited(context, document, text, list(by_path.values()))
        for edit, reason in failed:
            for finding in owners.get((document, edit.path), []):
                result.refused[finding] = reason
        if new != text:
            result.texts[document] = new
        dropped = {edit.path for edit, _ in failed}
        for path, edit in by_path.items():
            for finding in owners.get((document, path), [])[:1] if path not in dropped else []:
                after = f"{len(edit.value):,} items" if edit.spread else shown(edit.value)
                result.changes.append(Change(finding.rule, document.name, dotted(path), finding.value, after))
    return result


def _shared_places(context: Context) -> set[tuple[Document, Pointer]]:
    """Mappings that sections of different roles are made from, by interpolation."""
    roles: dict[tuple[Document, Pointer], set[str]] = {}
    for section in context.sections:
        for scope in (section, section.outer):
            if scope is not None:
                place = scope.spot.place
                roles.setdefault((place.document, place.path), set()).add(section.role)
    return {place for place, found in roles.items() if len(found) > 1}


def _refusal(
    edits: Sequence[Edit], wanted: Mapping[Document, Mapping[Pointer, Edit]], shared: set[tuple[Document, Pointer]]
) -> str:
    for edit in edits:
        other = wanted.get(edit.document, {}).get(edit.path)
        if other is not None and (other.value != edit.value or other.spread != edit.spread):
            return CONTRADICTS
        if (edit.document, edit.path[:-1]) in shared:
            return SECTIONS
    return ""


def _edited(context: Context, document: Document, text: str, edits: list[Edit]) -> tuple[str, list[tuple[Edit, str]]]:
    """The text with every edit that leaves the rest as it is, and those that do not."""
    marks = context.atlas.marks(document)
    limits = context.walk.limits
    pieces: list[tuple[Edit, tuple[int, int, str]]] = []
    failed: list[tuple[Edit, str]] = []
    for edit in edits:
        piece = _piece(marks, edit)
        if isinstance(piece, str):
            failed.append((edit, piece))
        else:
            pieces.append((edit, piece))
    if not pieces:
        return text, failed
    new = _joined(text, [piece for _, piece in pieces])
    if _holds(document.root, new, [edit for edit, _ in pieces], limits):
        return new, failed
    good: list[tuple[Edit, tuple[int, int, str]]] = []
    for number, (edit, piece) in enumerate(pieces):
        trial = [*good, (edit, piece)]
        fits = number < _MOST_ALONE and _holds(
            document.root, _joined(text, [part for _, part in trial]), [part for part, _ in trial], limits
        )
        if fits:
            good = trial
        else:
            failed.append((edit, SHARED))
    return _joined(text, [piece for _, piece in good]), failed


def _joined(text: str, pieces: list[tuple[int, int, str]]) -> str:
    made: list[str] = []
    at = 0
    for start, end, new in sorted(pieces, key=lambda piece: (piece[0], piece[1])):
        made += [text[at:start], new]
        at = end
    return "".join([*made, text[at:]])


# Where an edit goes


def _piece(marks: Marks, edit: Edit) -> tuple[int, int, str] | str:
    """The place and the new text of one edit, or why there is none."""
    holder = marks.find(edit.path[:-1]) if len(edit.path) > 1 else None
    node = holder.node if holder is not None else marks.root
    if holder is not None and not holder.own:
        return SHARED
    span = marks.find(edit.path)
    if edit.spread:
        return _spread(marks, span, edit.value) if span is not None and span.own else SHARED
    if span is not None and span.holder is node:
        return _replaced(marks, span, edit.value)
    if not isinstance(node, yaml.MappingNode):
        return SHAPE
    return _inserted(marks, node, str(edit.path[-1]), edit.value)


def _replaced(marks: Marks, span: Span, value: Any) -> tuple[int, int, str] | str:
    if span.alias is not None:
        start, end = span.alias
        return (start, end, _scalar(value)) if end > start else SHARED
    node = span.node
    if not isinstance(node, yaml.ScalarNode) or node.style in ("|", ">"):
        return SHAPE
    start, end = node.start_mark.index, node.end_mark.index
    anchor = _ANCHOR.match(marks.text, start, end)
    if anchor:
        start = anchor.end()
    blank = " " if start == end and marks.text[start - 1 : start] == ":" else ""
    return start, end, blank + _scalar(value)


def _inserted(marks: Marks, node: yaml.MappingNode, key: str, value: Any) -> tuple[int, int, str] | str:
    written = f"{key if _PLAIN_KEY.match(key) else _scalar(key)}: {_scalar(value)}"
    text = marks.text
    if node.flow_style:
        if not node.value:
            brace = text.find("{", node.start_mark.index)
            return brace + 1, brace + 1, written
        last_key, last = node.value[-1]
        if last.start_mark.index > last_key.end_mark.index and last.end_mark.index > last.start_mark.index:
            return last.end_mark.index, last.end_mark.index, f", {written}"
        first = node.value[0][0].start_mark.index
        return first, first, f"{written}, "
    first_key = node.value[0][0]
    column = first_key.start_mark.column
    if text[: first_key.start_mark.index].rstrip(" ").endswith("?"):
        return SHAPE
    for key_node, value_node in reversed(node.value):
        if _on_one_line(key_node, value_node):
            end = text.find("\n", value_node.end_mark.index)
            if end < 0:
                return len(text), len(text), f"\n{' ' * column}{written}"
            line_end = "\r\n" if text[end - 1 : end] == "\r" else "\n"
            end -= len(line_end) - 1
            return end, end, f"{line_end}{' ' * column}{written}"
    start = first_key.start_mark.index
    return start, start, f"{written}\n{' ' * column}"


def _on_one_line(key: Any, value: Any) -> bool:
    """Whether a pair ends with its line: what comes after can go on the next one."""
    return (
        isinstance(value, yaml.ScalarNode)
        and value.style not in ("|", ">")
        and key.start_mark.line == value.start_mark.line == value.end_mark.line
        and value.start_mark.index >= key.end_mark.index
    )


def _spread(marks: Marks, span: Span, values: tuple[str, ...]) -> tuple[int, int, str] | str:
    node, holder = span.node, span.holder
    if not isinstance(node, yaml.ScalarNode) or node.style in ("|", ">") or marks.text[node.start_mark.index] == "&":
        return SHAPE
    start, end = node.start_mark.index, node.end_mark.index
    if holder.flow_style:
        return start, end, ", ".join(_scalar(value) for value in values)
    dash = marks.text.rfind("-", 0, start)
    line_start = marks.text.rfind("\n", 0, dash) + 1
    if marks.text[line_start:dash].strip(" ") or marks.text[dash + 1 : start].strip(" "):
        return SHAPE
    lead = marks.text[line_start:dash]
    return start, end, f"\n{lead}- ".join(_scalar(value) for value in values)


def _scalar(value: Any) -> str:
    """Plain data in a spelling that every YAML reader takes alike."""
    if isinstance(value, str):
        return json.dumps(escape(value), ensure_ascii=False)
    return shown(value)


# What an edited file must mean


def _holds(root: Any, text: str, edits: Iterable[Edit], limits: Limits) -> bool:
    """Whether ``text`` means ``root`` with the edits and nothing else."""
    try:
        new = parse(text.encode("utf-8"), "patched", replace(limits, bytes=limits.bytes * 2))
    except (BlendexError, UnicodeEncodeError):
        return False
    tree: dict[Any, Any] = {}
    for edit in edits:
        branch = tree
        for step in edit.path[:-1]:
            branch = branch.setdefault(step, {})
        branch[edit.path[-1]] = edit
    return _same(root, new, tree)


def _same(old: Any, new: Any, edits: Mapping[Any, Any]) -> bool:
    if isinstance(old, dict):
        if not isinstance(new, dict):
            return False
        added = [key for key in edits if key not in old]
        if set(new) != {*old, *added}:
            return False
        # What is set anew may stand anywhere, also where a merge key gave it before; the order of the others stays.
        if [key for key in new if key in old and key not in edits] != [key for key in old if key not in edits]:
            return False
        return all(_value(old.get(key), new[key], edits.get(key)) for key in new)
    if isinstance(old, list):
        if not isinstance(new, list):
            return False
        at = 0
        for index, item in enumerate(old):
            edit = edits.get(index)
            if isinstance(edit, Edit) and edit.spread:
                if new[at : at + len(edit.value)] != list(edit.value):
                    return False
                at += len(edit.value)
                continue
            if at >= len(new) or not _value(item, new[at], edit):
                return False
            at += 1
        return at == len(new)
    return _equal(old, new)


def _value(old: Any, new: Any, edit: Any) -> bool:
    if isinstance(edit, Edit):
        expected = escape(edit.value) if isinstance(edit.value, str) else edit.value
        return _equal(expected, new)
    return _same(old, new, edit or {})


def _equal(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    return bool(one == other) or (isinstance(one, float) and math.isnan(one) and math.isnan(other))


# Diffs


def diff(name: str, before: str, after: str, new_name: str | None = None) -> str:
    """A unified diff."""
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), name, new_name or name, n=3
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
