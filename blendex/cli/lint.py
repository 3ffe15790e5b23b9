"""``blendex lint``: files in, findings out; exit status 0, 1, 2."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from blendex.blend.load import Limits
from blendex.blend.world import World
from blendex.builds.profiles import profiles_for
from blendex.cli.local import settings_for
from blendex.errors import BlendexError, Code
from blendex.lint import outputs
from blendex.lint.facts import Facts, read_facts
from blendex.lint.ground import Disk, Knowledge
from blendex.lint.launcher import Launcher, read_launcher
from blendex.lint.migrate import Migration, answer, migrate
from blendex.lint.profile import profile
from blendex.lint.sarif import sarif
from blendex.lint.suppress import Baseline, read_baseline
from blendex.lint.text import at_least, lines
from blendex.storage.local import LocalStorage
from blendex.storage.stores import Stores
from blendex.units.plan import FolderReader

FINDINGS, UNUSABLE = 1, 2
LEVELS = ("fatal", "error", "warning", "note", "never")


def _bytes(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BlendexError(
            Code.NESTED_MISSING,
            f"{what} cannot be read ({error.strerror}).",
            file=str(path),
            next_step="Check the path.",
        ) from None


def _knowledge(root: Path | None, storage: LocalStorage) -> Knowledge | None:
    """The catalog under a root, where there is one: linting makes none."""
    if root is None or not root.is_dir():
        return None
    from blendex.builds.site import open_site
    from blendex.cli.local import EVERYWHERE, settings_for
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

    Raises:
        BlendexError: a file or an option cannot be used.
    """
    if fail_on not in LEVELS:
        raise BlendexError(
            Code.BAD_REQUEST, f"--fail-on {fail_on!r} is unknown.", next_step=f"Say one of {', '.join(LEVELS)}."
        )
    storage = LocalStorage(("/",))
    script: Launcher | None = read_launcher(_bytes(launcher, "the launcher"), str(launcher)) if launcher else None
    given: Facts | None = read_facts(_bytes(facts, "the facts")) if facts else None
    listed: list[Baseline] = read_baseline(_bytes(baseline, "the baseline"), str(baseline)) if baseline else []
    limits = Limits()
    profiles = profiles_for(settings_for(root), own=True)
    world = replace(world, stores=tuple(route for item in profiles for route in item.routes()))
    ground = Disk(storage, FolderReader(Stores(("/",), profiles), {}, limits.bytes))
    options: dict[str, Any] = {
        "profile": profile(upstream), "facts": given, "launcher": script, "baseline": listed, "limits": limits,
        "knowledge": _knowledge(root, storage),
    }  # fmt: skip
    found = _all(files, world, ground, options, fix=fix)
    if out is not None:
        for migration in found:
            _write_folder(out if len(found) == 1 else out / Path(migration.report.file).stem, migration)
    _show(found, form, fixed=fix)
    return FINDINGS if any(at_least(item.report, fail_on) for item in found) else 0


def _all(files: Iterable[Path], world: World, ground: Disk, options: dict[str, Any], *, fix: bool) -> list[Migration]:
    # Everything stays in use until the end: looking for garbage would be a third of the time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return [_one(path, world, ground, options, fix=fix) for path in files]
    finally:
        if collecting:
            gc.enable()


def _one(path: Path, world: World, ground: Disk, options: dict[str, Any], *, fix: bool) -> Migration:
    name = os.path.abspath(path)
    migration = migrate(_bytes(path, "the config"), name, world, ground, **options)
    if not fix or not migration.texts:
        return migration
    for file, text in migration.texts.items():
        _replace(file, text, keep_mark=migration.report.files[file].startswith(b"\xef\xbb\xbf"))
    return migrate(_bytes(path, "the config"), name, world, ground, **options)


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


def _write_folder(folder: Path, migration: Migration) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in outputs.folder(migration).items():
        path = folder / name
        path.write_text(text, encoding="utf-8", newline="")
        if name.endswith(".sh"):
            path.chmod(0o755)


def _show(found: list[Migration], form: str, *, fixed: bool) -> None:
    if form == "json":
        sys.stdout.write(orjson.dumps(answer(found), option=orjson.OPT_INDENT_2).decode() + "\n")
        return
    if form == "sarif":
        sys.stdout.write(orjson.dumps(sarif(found), option=orjson.OPT_INDENT_2).decode() + "\n")
        return
    for migration in found:
        for line in lines(migration, relative_to=os.getcwd()):
            sys.stdout.write(line + "\n")
        if fixed and migration.refused:
            sys.stdout.write(f"  {len(migration.refused)} patches were left out; see above.\n")
