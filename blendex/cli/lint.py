"""``blendex lint``: files in, findings out; exit status 0, 1, 2."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from blendex.blend.load import Limits
from blendex.blend.world import World
from blendex.builds.profiles import profiles_for
from blendex.cli.linted import Linted, more_than_json, one_run, read, there, together
from blendex.errors import BlendexError, Code
from blendex.lint import outputs
from blendex.lint.facts import read_facts
from blendex.lint.ground import Disk, Knowledge
from blendex.lint.launcher import read_launcher
from blendex.lint.migrate import answer, migrate
from blendex.lint.profile import profile
from blendex.lint.sarif import sarif
from blendex.lint.suppress import read_baseline
from blendex.lint.text import at_least, lines
from blendex.settings import settings_for
from blendex.storage.local import LocalStorage
from blendex.storage.stores import Stores
from blendex.units.plan import FolderReader

FINDINGS, UNUSABLE = 1, 2
LEVELS = ("fatal", "error", "warning", "note", "never")


def _knowledge(root: Path | None, storage: LocalStorage) -> Knowledge | None:
    """The catalog under a root, where there is one: linting makes none."""
    if root is None or not root.is_dir():
        return None
    from blendex.builds.site import open_site
    from blendex.cli.local import EVERYWHERE
    from blendex.lint.knowledge import CatalogKnowledge

    return CatalogKnowledge(open_site(settings_for(root), EVERYWHERE).work, storage)


def run(
    files: Iterable[Path],
    world: World,
    *,
    fix: bool = False,
    launcher: Path | None = None,
    facts: Path | None = None,
    baseline: Path | None = None,
    upstream: str = "main",
    fail_on: str = "error",
    form: str = "text",
    out: Path | None = None,
    root: Path | None = None,
    server: str | None = None,
) -> int:
    """Lint files; the exit status.

    Args:
        files: configs and blends.
        world: what relative paths, variables and environment values mean.
        fix: write the patches into the files.
        launcher: the script that starts training with them.
        facts: JSON.
        baseline: findings that may stand.
        upstream: the profile.
        fail_on: the least severity that makes the status 1, or ``never``.
        form: text, json, or sarif.
        out: a folder for report, patched files, checklist and command.
        root: of mirrors, whose catalog knows contents.
        server: a service that lints instead, with what it knows; what is to be fixed is fixed here first.

    Raises:
        BlendexError: a file or an option cannot be used.
    """
    if fail_on not in LEVELS:
        raise BlendexError(
            Code.BAD_REQUEST, f"--fail-on {fail_on!r} is unknown.", next_step=f"Say one of {', '.join(LEVELS)}."
        )
    here = _Here(launcher, facts, baseline, upstream, root)
    more = more_than_json(form, out)
    # Of one config everything stays in use until its end: looking for garbage would be a third of the time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        found: list[Linted] = []
        for path in files:
            if found:
                gc.collect()  # what the one before has left
            if server is None:
                found.append(here.lint(path, world, more, fix=fix))
                continue
            if fix:
                here.lint(path, world, (), fix=True)
            found.append(there(server, path, world, launcher, facts, baseline, upstream, more))
        if out is not None:
            for folder, item in zip(_folders(out, [item.report["file"] for item in found]), found, strict=True):
                _write_folder(folder, item)
        _show(found, form, fixed=fix)
        return FINDINGS if any(at_least(item.report, fail_on) for item in found) else 0
    finally:
        if collecting:
            gc.enable()


class _Here:
    """Lints on this machine."""

    def __init__(
        self, launcher: Path | None, facts: Path | None, baseline: Path | None, upstream: str, root: Path | None
    ) -> None:
        storage = LocalStorage(("/",))
        limits = Limits()
        profiles = profiles_for(settings_for(root), own=True)
        self._stores = tuple(route for item in profiles for route in item.routes())
        self._ground = Disk(storage, FolderReader(Stores(("/",), profiles), {}, limits.bytes))
        self._options: dict[str, Any] = {
            "profile": profile(upstream),
            "facts": read_facts(read(facts, "the facts")) if facts else None,
            "launcher": read_launcher(read(launcher, "the launcher"), str(launcher)) if launcher else None,
            "baseline": read_baseline(read(baseline, "the baseline"), str(baseline)) if baseline else [],
            "limits": limits,
            "knowledge": _knowledge(root, storage),
        }

    def lint(self, path: Path, world: World, more: Sequence[str], *, fix: bool) -> Linted:
        """Lint one file; with ``fix``, patch it and lint what the patch leaves."""
        name = os.path.abspath(path)
        world = replace(world, stores=self._stores)
        migration = migrate(read(path, "the config"), name, world, self._ground, **self._options)
        if fix and migration.texts:
            for file, text in migration.texts.items():
                _replace(file, text, keep_mark=migration.report.files[file].startswith(b"\xef\xbb\xbf"))
            migration = migrate(read(path, "the config"), name, world, self._ground, **self._options)
        texts = {file: text.decode("utf-8", "replace") for file, text in migration.report.files.items()}
        log = sarif([migration]) if "sarif" in more else {}
        return Linted(answer([migration]), texts, log, outputs.folder(migration) if "zip" in more else {})


def _replace(file: str, text: str, *, keep_mark: bool) -> None:
    """Write beside the file and rename, so that it is the old one or the new one."""
    real = os.path.realpath(file)
    mode = os.stat(real).st_mode & 0o7777
    descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(real), prefix=".blendex-lint-")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write((b"\xef\xbb\xbf" if keep_mark else b"") + text.encode())
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, real)
    except BaseException:
        os.unlink(temporary)
        raise


def _folders(out: Path, files: list[str]) -> Iterator[Path]:
    """A folder for each config: the one that was named for one alone, else one below it, no two alike."""
    taken: set[str] = set()
    for file in files:
        stem, number = Path(file).stem, 2
        name = stem
        while name in taken:
            name, number = f"{stem}-{number}", number + 1
        taken.add(name)
        yield out if len(files) == 1 else out / name


def _write_folder(folder: Path, linted: Linted) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in linted.folder.items():
        path = folder / name
        path.write_text(text, encoding="utf-8", newline="")
        if name.endswith(".sh"):
            path.chmod(0o755)


def _show(found: list[Linted], form: str, *, fixed: bool) -> None:
    if form in ("json", "sarif"):
        value = together([item.answer for item in found]) if form == "json" else one_run([item.sarif for item in found])
        sys.stdout.write(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() + "\n")
        return
    for item in found:
        for line in lines(item.report, item.texts, relative_to=os.getcwd()):
            sys.stdout.write(line + "\n")
        left_out = sum(finding["patch"] == "refused" for finding in item.report["findings"])
        if fixed and left_out:
            sys.stdout.write(f"  {left_out} patches were left out; see above.\n")
