"""From a config to one that can resume exactly: the report, the patch, and the report of what the patch leaves."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from blendex.blend.interpolate import Document
from blendex.blend.world import World
from blendex.errors import BlendexError
from blendex.lint.context import Context
from blendex.lint.engine import Kept, examine
from blendex.lint.ground import Ground, Sidecar
from blendex.lint.looks import Looks
from blendex.lint.lookups import Lookups
from blendex.lint.model import Edit, Finding, Report
from blendex.lint.patching import Change, diff, patch
from blendex.lint.rule import RULES
from blendex.storage.interface import Opened, Stat
from blendex.version import __version__

if TYPE_CHECKING:
    from blendex.formats.packreader import PackReader

FORMAT = 1
# A patch can bring to light what another rule then patches: a type that had no meaning before it was spelt right.
_MOST_TURNS = 5
DOCUMENT = "docs/reference/lint.md"


class _Over:
    """A ground whose nested blends are the patched ones."""

    def __init__(self, under: Ground) -> None:
        self._under = under
        self.texts: dict[str, bytes] = {}

    def read(self, path: str, limit: int | None = None) -> bytes:
        return self.texts[path] if path in self.texts else self._under.read(path, limit)

    def list(self, path: str) -> list[tuple[str, bool]]:
        return self._under.list(path)

    def stat_many(self, addresses: Sequence[str]) -> Iterator[Stat | BlendexError]:
        return self._under.stat_many(addresses)

    def open(self, address: str) -> Opened:
        return self._under.open(address)

    def pack(self, address: str) -> PackReader:
        return self._under.pack(address)

    def sidecar(self, address: str, source: Stat | None) -> Sidecar:
        return self._under.sidecar(address, source)


@dataclass(frozen=True)
class Migration:
    """One config, linted and patched.

    Args:
        report: of the config as it is.
        after: of the patched one; the same when nothing was patched.
        texts: patched files by name, the posted one among them when it changed.
        originals: what they were.
        changes: the fields that were set.
        refused: findings whose patch was left out, with the reason.
        world: what came along.
        context: of the report.
        final: of the patched files.
    """

    report: Report
    after: Report
    texts: dict[str, str]
    originals: dict[str, str]
    changes: list[Change]
    refused: dict[Finding, str]
    world: World
    context: Context = field(repr=False)
    final: Context = field(repr=False)

    @property
    def ready(self) -> bool:
        """Whether the config as it is can be launched."""
        return self.report.ready

    def diffs(self) -> dict[str, str]:
        """A unified diff of each changed file."""
        return {name: diff(name, self.originals[name], text, resumable(name)) for name, text in self.texts.items()}

    def as_dict(self) -> dict[str, Any]:
        """The JSON form; the same on the command line and over HTTP."""
        report, after = self.report, self.after
        return {
            "file": report.file,
            "upstream": report.profile,
            "ready": report.ready,
            "counts": report.counts(),
            "blockers": [_short(item) for item in report.blockers],
            "exceptions": [_short(item) | {"exception": _exception(item)} for item in report.exceptions],
            "findings": [self._finding(item) for item in report.findings],
            "unchecked": [item.as_dict() for item in report.unchecked],
            "entries": report.entries,
            "sources": report.sources,
            "files": list(report.files),
            "launcher": report.launcher,
            "sections": report.settings,
            "patch": {
                "changes": [item.as_dict() for item in self.changes],
                "diffs": self.diffs(),
                "ready": after.ready,
                "counts": after.counts(),
                "blockers": [_short(item) for item in after.blockers],
            },
        }

    def _finding(self, item: Finding) -> dict[str, Any]:
        rule = RULES[item.rule]
        state = ""
        if item.edits and item.suppressed is None:
            state = "refused" if item in self.refused else "available"
        return {
            **_short(item),
            "title": rule.title,
            "column": item.column,
            "pointer": list(item.pointer),
            "value": item.value,
            "wanted": item.wanted,
            "why": rule.why,
            "otherwise": rule.otherwise,
            "fix": item.fix,
            "source": rule.source,
            "link": link(item.rule),
            "patch": state,
            "patch_refused": self.refused.get(item, ""),
            "exception": _exception(item),
        }


def _exception(item: Finding) -> dict[str, Any] | None:
    return item.suppressed.as_dict() if item.suppressed is not None else None


def _short(item: Finding) -> dict[str, Any]:
    return {
        "rule": item.rule,
        "severity": str(item.severity),
        "message": item.message,
        "file": item.file,
        "line": item.line,
        "field": item.field,
    }


def link(rule: str) -> str:
    """Where a rule is explained."""
    return f"{DOCUMENT}#{rule.lower()}"


def answer(migrations: Sequence[Migration]) -> dict[str, Any]:
    """The JSON of one or several configs."""
    return {
        "format": FORMAT,
        "version": __version__,
        "ready": all(item.ready for item in migrations),
        "reports": [item.as_dict() for item in migrations],
    }


def resumable(name: str) -> str:
    """The file name of a patched config or blend."""
    stem, dot, suffix = posixpath.basename(name).rpartition(".")
    if not dot or suffix not in ("yaml", "yml"):
        return f"{posixpath.basename(name)}-resumable.yaml"
    return f"{stem}-resumable.{suffix}"


def migrate(text: bytes, file: str, world: World, ground: Ground, **options: Any) -> Migration:
    """Lint a config, patch it, lint what comes out.

    Args:
        text: the YAML.
        file: its name.
        world: what the submission brings along.
        ground: what may be looked at.
        options: of ``examine``.

    Raises:
        BlendexError: the posted text cannot be read at all.
    """
    over = _Over(ground)
    lookups = Lookups(world, over)
    kept = Kept(lookups, Looks(options.get("knowledge"), over, lookups))
    context, report = examine(text, file, world, over, kept=kept, **options)
    final, after = context, report
    texts: dict[str, str] = {}
    changes: list[Change] = []
    refused: dict[Finding, str] = {}
    for turn in range(_MOST_TURNS):
        patched = patch(final, after.findings)
        if turn == 0:
            refused = patched.refused
        if not patched.texts:
            break
        changes += patched.changes
        texts |= {document.name: new for document, new in patched.texts.items()}
        over.texts = {world.address(name): new.encode() for name, new in texts.items() if name != file}
        posted = texts[file].encode() if file in texts else text
        final, after = examine(posted, file, world, over, kept=kept, **options)
    originals = {name: context.atlas.marks(_document(context, name)).text for name in texts}
    return Migration(report, after, texts, originals, changes, refused, world, context, final)


def _document(context: Context, name: str) -> Document:
    documents = [context.walk.posted, *(place.document for place in context.walk.grafts.values())]
    return next(document for document in documents if document.name == name)


def side_by_side(migration: Migration) -> dict[str, str]:
    """All files of a config as they stand in one folder, patched or not: ``input_cfg`` leads to the one beside it.

    Returns:
        Texts by file name, the config's first.
    """
    context = migration.final
    names = _names(context)
    extra: dict[Document, list[Edit]] = {}
    for pointer, place in context.walk.grafts.items():
        if pointer[-1:] == ("input_cfg",) and not place.path and place.document in names:
            above = context.place(pointer[:-1])
            edit = Edit(above.document, (*above.path, "input_cfg"), names[place.document])
            edits = extra.setdefault(above.document, [])
            if edit not in edits:
                edits.append(edit)
    patched = patch(context, (), extra)
    return {names[document]: patched.texts.get(document, context.atlas.marks(document).text) for document in names}


def _names(context: Context) -> dict[Document, str]:
    """A file name for each document, no two alike."""
    documents = [context.walk.posted, *(place.document for place in context.walk.grafts.values())]
    names: dict[Document, str] = {}
    taken: set[str] = set()
    for document in dict.fromkeys(documents):
        name, number = resumable(document.name), 2
        while name in taken:
            name, number = f"{number}-{resumable(document.name)}", number + 1
        taken.add(name)
        names[document] = name
    return names
