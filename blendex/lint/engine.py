"""The engine: a config in, its report out."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from blendex.blend.discover import Discovery, explore
from blendex.blend.interpolate import Document
from blendex.blend.load import Limits, Node
from blendex.blend.walk import Walk
from blendex.blend.world import World
from blendex.lint import rules
from blendex.lint.context import Context
from blendex.lint.facts import Facts
from blendex.lint.ground import Ground, Knowledge
from blendex.lint.launcher import Launcher
from blendex.lint.looks import Looks
from blendex.lint.lookups import Lookups
from blendex.lint.marks import Atlas, Marks
from blendex.lint.model import Finding, Report, Severity
from blendex.lint.profile import MAIN, Profile
from blendex.lint.rule import OURS, RULES, Example, Hit, rule
from blendex.lint.scopes import DEFAULTS, dotted
from blendex.lint.suppress import Baseline, Comment, apply, comments, wrong, wrong_listed

__all__ = ["RULES", "examine", "lint"]

assert rules  # importing them enters them
# More of one rule in one file helps nobody, and keeps an answer small.
_MOST_OF_A_RULE = 1000
_SHOWN_SETTINGS = tuple(DEFAULTS)


@rule(
    "IDX115",
    Severity.WARNING,
    title="Exceptions are spelt, reasoned and not over",
    where="comments `# blendex: allow …`, items of a baseline",
    why="A finding that somebody lets stand needs a rule, a reason and, where it is fatal, a cost.",
    otherwise="The exception does not count.",
    source=OURS,
    example=Example(
        bad="# blendex: allow IDX006\ntrain_ds: {seed: trng, input_cfg: [{type: nemo, manifest_filepath: "
        "/d/a.json}]}\n",
        good="# blendex: allow IDX006 because the chain has one chunk\n"
        "train_ds: {seed: trng, input_cfg: [{type: nemo, manifest_filepath: /d/a.json}]}\n",
    ),
)
def exceptions(context: Context) -> Any:
    """Told by the engine, which knows the comments."""
    del context
    return iter(())


@dataclass
class Kept:
    """What one examination leaves for the next one, of nearly the same texts and with the same ground and world."""

    lookups: Lookups
    looks: Looks
    trees: dict[bytes, Node] = field(default_factory=dict)
    marks: dict[bytes, Marks] = field(default_factory=dict)


def examine(
    text: bytes,
    file: str,
    world: World,
    ground: Ground,
    *,
    profile: Profile = MAIN,
    facts: Facts | None = None,
    launcher: Launcher | None = None,
    knowledge: Knowledge | None = None,
    baseline: Iterable[Baseline] = (),
    today: datetime.date | None = None,
    limits: Limits | None = None,
    blend_only: bool = False,
    kept: Kept | None = None,
) -> tuple[Context, Report]:
    """Hold a config, or a blend alone, against every rule.

    Args:
        text: the YAML.
        file: its name; when absolute, relative ``input_cfg`` are looked for beside it.
        world: what the submission brings along; nothing else is ever resolved.
        ground: what may be looked at.
        profile: the version of upstream.
        facts: of the run.
        launcher: the script.
        knowledge: of contents.
        baseline: findings that may stand.
        today: what the ends of exceptions are held against.
        limits: what the YAML may ask for.
        blend_only: only rules of the blend itself.
        kept: of the examination before.

    Raises:
        BlendexError: the posted text cannot be read at all.
    """
    if kept is None:
        lookups = Lookups(world, ground)
        kept = Kept(lookups, Looks(knowledge, ground, lookups))
    today = today or datetime.datetime.now(datetime.UTC).date()
    if blend_only:
        # No sources: what they come to is the work of a plan.
        walk = Walk(text, file, world, ground, limits or Limits(), kept.trees).run()
        discovery = Discovery((), (), (), len(walk.leaves))
    else:
        walk, discovery = explore(text, file, world, ground, limits, kept.trees)
    atlas = Atlas(walk.files.text, kept.marks)
    context = Context(walk, discovery, profile, ground, kept.lookups, kept.looks, atlas, facts or Facts(), launcher)
    found: list[Finding] = []
    for name, item in sorted(RULES.items()):
        if profile.name not in item.profiles or (blend_only and not item.blend):
            continue
        context.rule = name
        for number, hit in enumerate(item.check(context)):
            if number >= _MOST_OF_A_RULE:
                context.unknown(f"more than {_MOST_OF_A_RULE:,} places", "those that are told to be mended")
                break
            found.append(_finding(context, name, item.severity, hit))
    counting, refused = _comments(context, today)
    listed = list(baseline)
    found = apply([*found, *refused, *_listed(listed, today)], counting, listed, today)
    order = {document.name: number for number, document in enumerate(_documents(context))}
    found.sort(key=lambda one: (order.get(one.file, len(order)), one.line, one.column, one.rule, one.field))
    return context, _report(context, file, found)


def _documents(context: Context) -> list[Document]:
    """Every file that was read, the posted one first."""
    return [context.walk.posted, *dict.fromkeys(place.document for place in context.walk.grafts.values()
                                                if place.document is not context.walk.posted)]  # fmt: skip


def _finding(context: Context, name: str, severity: Severity, hit: Hit) -> Finding:
    field = dotted(hit.pointer)
    if hit.document is None:
        file, line, column = hit.file, hit.line, 1
    else:
        file = hit.document.name
        line, column = context.atlas.at(hit.document, hit.path)
        if hit.file:  # discovery knows the place better than the tree does
            column = column if hit.line in (0, line) and hit.file == file else 1
            file, line = hit.file, hit.line or line
    return Finding(
        rule=name, severity=hit.severity or severity, message=hit.message, file=file, line=line, column=column,
        field=field, value=hit.value, wanted=hit.wanted, fix=hit.fix, edits=hit.edits, pointer=hit.pointer,
    )  # fmt: skip


def _comments(context: Context, today: datetime.date) -> tuple[dict[str, list[Comment]], list[Finding]]:
    counting: dict[str, list[Comment]] = {}
    refused: list[Finding] = []
    fatal = [name for name, item in RULES.items() if item.severity is Severity.FATAL]
    for document in _documents(context):
        raw = context.walk.files.text(document)
        if b"blendex:" not in raw:
            continue
        marks = context.atlas.marks(document)
        for comment in comments(marks.text, marks):
            why = wrong(comment, RULES, fatal, today)
            if not why:
                counting.setdefault(document.name, []).append(comment)
                continue
            refused.append(
                Finding(
                    "IDX115", Severity.WARNING, f"The exception does not count: {why}.", document.name, comment.line,
                    comment.column, "comment", ", ".join(comment.rules),
                    '# blendex: allow IDX000 until YYYY-MM-DD cost "…" because …', "Correct the comment, or remove it.",
                )
            )  # fmt: skip
    return counting, refused


def _listed(baseline: list[Baseline], today: datetime.date) -> Iterator[Finding]:
    severities = {name: item.severity for name, item in RULES.items()}
    for item in baseline:
        why = wrong_listed(item, severities, today)
        if why:
            place = item.suppression
            yield Finding(
                "IDX115", Severity.WARNING, f"The exception does not count: {why}.", place.file, place.line, 1,
                item.field, item.rule, "an exception that counts", "Correct the baseline, or remove the item.",
            )  # fmt: skip


def _report(context: Context, file: str, found: list[Finding]) -> Report:
    settings = {
        section.name or "blend": {
            "role": section.role,
            "entries": len(section.entries),
            "fields": {
                key: {"value": _plain(setting.value), "written": setting.written, "known": setting.known}
                for key in _SHOWN_SETTINGS
                for setting in (section.get(key),)
            },
        }
        for section in context.sections
        if section.role != "blend"
    }
    return Report(
        file=file,
        profile=context.profile.name,
        findings=tuple(found),
        unchecked=tuple(sorted(context.unchecked, key=lambda item: item.rule)),
        files={document.name: context.walk.files.text(document) for document in _documents(context)},
        settings=settings,
        sources=len(context.sources),
        entries=len(context.entries),
        remote=context.remote,
        launcher=context.launcher.file if context.launcher is not None else None,
    )


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)[:200]


def lint(text: bytes, file: str, world: World, ground: Ground, **options: Any) -> Report:
    """The report of ``examine`` alone."""
    return examine(text, file, world, ground, **options)[1]
