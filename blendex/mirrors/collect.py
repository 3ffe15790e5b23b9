"""Collect: what nobody holds goes, in two steps, and what is held never does.

First a mirror is *condemned*: it is served as before, and whoever wants it takes the mark away. Days later it is
*collected*:

1. A folder is made in ``trash/``, the grave, of a name that nobody else uses.
2. One transaction locks the row of the mirror, looks at every hold once more, closes the grave of a collector that died
   before, and writes ``collecting`` and the name of the grave. That is the decision. A stop before it changes nothing.
3. The receipt is archived, the mirror is renamed into the grave, then the folders of the builds that led to it.
4. A second transaction writes ``collected``, if the row still names this grave.

Whoever wants the mirror after the decision (``holds.want``) closes the grave: renamed away, it takes nothing in any
more. So a collector that is stopped in between, for however long, moves nothing that somebody holds; and what it had
moved before is gone, and told so. A stop after step 2 leaves a mirror that is whole and served, or gone: the next
collector decides anew, under a grave of its own.

Objects go the same way, by a mark and an age: ``dying``, then renamed into ``trash/`` under a lock of their row. An
update that meets a dying object revives it; one that comes too late finds no file, and its unit is done again.

``trash/`` is emptied apart, at a bounded rate. After a restore or an adoption nothing goes for as long as the longest
hold lasts: holds that were taken since the backup are not known.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from blendex.catalog import holds, mirrors, waste
from blendex.catalog.engine import UnitOfWork
from blendex.catalog.waste import Ages
from blendex.errors import BlendexError
from blendex.mirrors.holds import DAY
from blendex.mirrors.known import adopt_strays
from blendex.observability import logs, metrics
from blendex.settings import Settings
from blendex.storage.root import Root, flush_folder
from blendex.units.receipt import archive

logger = logs.get_logger("blendex.collect")

GRAVE = re.compile(r"[0-9a-f]{64}\.[0-9a-f]{16}")
# A grave that its collector may still be about to use. Taken too early it costs that collector a try, nothing else.
GRAVE_SECONDS = 20.0
# Files deleted per second: a metadata server has others to serve.
RATE = 2_000.0
# Between a look-up that a process remembers and the next that it notes: see ``noted_every``.
NOTES = 24


def noted_every(settings: Settings) -> float:
    """Seconds for which a process need not note once more that a mirror is looked up.

    So what the catalog says of its last use is at most that old; the collector waits for that much longer.
    """
    return settings.unused_hours * 3600 / NOTES


def ages(settings: Settings) -> Ages:
    """How old things have to be."""
    return Ages(
        unused=settings.unused_hours * 3600 + noted_every(settings),
        condemned=settings.condemned_days * DAY,
        rest=max(settings.job_hold_days, settings.chain_hold_days) * DAY,
    )


@dataclass(slots=True)
class Collected:
    """What was done, or would be.

    ``rests``: seconds for which nothing may go yet. ``kept``: mirrors that could not go, and why.
    """

    rests: float = 0.0
    condemned: int = 0
    mirrors: list[str] = field(default_factory=list)
    kept: dict[str, str] = field(default_factory=dict)
    objects_marked: int = 0
    objects: int = 0
    files: int = 0
    bytes: int = 0

    def as_dict(self) -> dict[str, Any]:
        """JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


def preview(work: UnitOfWork, age: Ages) -> dict[str, Any]:
    """What ``run`` would do now; bytes as the catalog counts them, an upper bound where mirrors share files."""
    with work.read() as session:
        rest = waste.rests(session, age)
        condemn, due = waste.to_condemn(session, age), waste.due(session, age)
        marked, dying = waste.to_mark(session, age), waste.dying(session, age)
    told = [
        [{"key": row.key, "used_at": row.used_at, "files": row.own_files, "bytes": row.own_bytes} for row in rows]
        for rows in (condemn, due)
    ]
    return {
        "rests": rest, "condemn": told[0], "collect": told[1],
        "objects_mark": {"count": len(marked), "bytes": sum(row.size for row in marked)},
        "objects_collect": {"count": len(dying), "bytes": sum(row.size for row in dying)},
    }  # fmt: skip


def run(work: UnitOfWork, root: Root, age: Ages, *, seconds: float | None = None) -> Collected:
    """Condemn what nobody holds, and let go what was condemned long enough; ``empty`` frees the space.

    Args:
        work: the catalog.
        root: its root.
        age: how old things have to be.
        seconds: begin with nothing more after this time.
    """
    done = Collected()
    until = None if seconds is None else time.monotonic() + seconds
    with work.read() as session:
        done.rests = waste.rests(session, age)
    if done.rests > 0:
        return done
    adopt_strays(work, root)
    with work.write() as session:
        done.condemned = waste.condemn(session, age)
        done.objects_marked = waste.mark(session, age)
        holds.forget(session)
    metrics.CONDEMNED.inc(done.condemned)
    with work.read() as session:
        due = [row.key for row in waste.due(session, age)]
        dying = [(row.id, row.name) for row in waste.dying(session, age)]
    for key in due:
        if until is not None and time.monotonic() >= until:
            return done
        try:
            if _collect(work, root, key, age):
                done.mirrors.append(key)
                metrics.COLLECTED.inc()
                logger.info("mirror_collected", mirror=key)
        except (OSError, BlendexError) as error:
            # One that cannot be moved, or is damaged, keeps nobody from the others.
            done.kept[key] = str(error)
            logger.warning("mirror_kept", mirror=key, error=str(error))
    for number, name in dying:
        if until is not None and time.monotonic() >= until:
            return done
        if _collect_object(work, root, number, name, age):
            done.objects += 1
            metrics.OBJECTS_COLLECTED.inc()
    return done


def _collect(work: UnitOfWork, root: Root, key: str, age: Ages) -> bool:
    """Collect one mirror, unless somebody wants it after all; the protocol is that of this module."""
    grave = root.dig(key)
    with work.write() as session:
        row = mirrors.lock(session, key)
        decided = row is not None and waste.is_due(session, key, age)
        if decided:
            assert row is not None
            if row.grave is not None:
                root.close_grave(row.grave)
            mirrors.note_grave(session, key, grave)
            folders = waste.builds_of(session, key)
    if not decided:
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(os.path.join(root.path, "trash", grave))
        return False
    mirror = root.mirror(key)
    if os.path.isdir(mirror):
        archive(mirror, root.receipt(key), os.path.join(root.path, "trash", grave, "receipt"))
    for path in (mirror, *map(root.build, folders)):
        try:
            if not root.bury(path, grave):
                return False
        except FileNotFoundError:
            continue  # a collector that died before has moved it
    for name in ("mirrors", "builds"):
        flush_folder(os.path.join(root.path, name))
    with work.write() as session:
        row = mirrors.lock(session, key)
        if row is None or row.state != "collecting" or row.grave != grave:
            return False
        mirrors.note_gone(session, key)
    return True


def _collect_object(work: UnitOfWork, root: Root, number: int, name: str, age: Ages) -> bool:
    """Let one object go that nothing refers to."""
    with work.write() as session:
        if not waste.lock_object(session, number, age):
            return False
        root.set_aside(name)
        waste.drop_object(session, number)
    return True


def _removed(path: str) -> Iterator[int]:
    """Delete a tree, a file at a time; the bytes that each removal freed. Somebody else may be deleting it, too."""
    try:
        found = os.lstat(path)
        if stat.S_ISDIR(found.st_mode):
            if stat.S_IMODE(found.st_mode) & 0o700 != 0o700:
                os.chmod(path, 0o700)
            for name in os.listdir(path):
                yield from _removed(os.path.join(path, name))
            os.rmdir(path)
            yield 0
        else:
            os.unlink(path)
            yield found.st_size if found.st_nlink == 1 else 0
    except FileNotFoundError:
        return


def empty(root: Root, *, most: int | None = None, rate: float | None = None) -> tuple[int, int]:
    """Delete what lies in ``trash/``; files and bytes.

    Args:
        root: whose trash.
        most: files to delete now.
        rate: files per second.
    """
    top = os.path.join(root.path, "trash")
    begun = time.monotonic()
    files = freed = 0
    for name in sorted(os.listdir(top)):
        path = os.path.join(top, name)
        if GRAVE.fullmatch(name):
            try:
                if time.time() - os.lstat(path).st_mtime < GRAVE_SECONDS:
                    continue
            except FileNotFoundError:
                continue
        for size in _removed(path):
            files, freed = files + 1, freed + size
            metrics.FREED.inc(size)
            if most is not None and files >= most:
                return files, freed
            if rate is not None and (ahead := files / rate - (time.monotonic() - begun)) > 0.05:
                time.sleep(ahead)
    return files, freed
