"""The disk: a limit of our own on what the root holds, and what could be freed."""

from __future__ import annotations

import os

from sqlalchemy.orm import Session

from blendex.builds.site import Site
from blendex.catalog import usage
from blendex.errors import BlendexError, Code

MIB = 2**20
# Of a walk through what will be deleted anyway; a root in trouble may hold millions of such files.
MOST_FILES = 20_000


def _size(folder: str) -> int:
    total = seen = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_size
            except FileNotFoundError:
                continue  # it is being swept
            seen += 1
            if seen >= MOST_FILES:
                return total
    return total


def reclaimable(site: Site, session: Session) -> dict[str, int]:
    """Bytes that ``blendex collect`` frees, now or when they are old enough, by where they are; an upper bound, since
    mirrors share files."""
    return {
        "trash": _size(os.path.join(site.root.path, "trash")),
        "staging": _size(os.path.join(site.root.path, "staging")),
        "unreferenced_objects": usage.unreferenced_objects(session).bytes,
        "condemned_mirrors": usage.condemned_mirrors(session).bytes,
        "mirrors_that_nobody_holds": usage.unheld_mirrors(session).bytes,
    }


def told(found: dict[str, int]) -> str:
    """That, in words."""
    return "could be freed: " + ", ".join(
        f"{name.replace('_', ' ')} {size / MIB:.1f} MiB" for name, size in found.items()
    )


def check(site: Site, session: Session, *, files: int = 0, size: int = 0) -> None:
    """Refuse to begin what would take more than the root may hold.

    Args:
        site: with its limits.
        session: any.
        files: that it will need.
        size: bytes that it will need.

    Raises:
        BlendexError: no_space, naming what could be freed.
    """
    most_files, most_bytes = site.settings.max_root_files, site.settings.max_root_bytes
    if most_files is None and most_bytes is None:
        return
    now = usage.used(session)
    over = []
    if most_files is not None and now.files + files > most_files:
        over.append(f"{now.files} of {most_files} files")
    if most_bytes is not None and now.bytes + size > most_bytes:
        over.append(f"{now.bytes / MIB:.1f} of {most_bytes / MIB:.1f} MiB")
    if over:
        raise BlendexError(
            Code.NO_SPACE,
            f"the root holds {' and '.join(over)} that it may, and this needs {files} files and {size / MIB:.1f} MiB "
            f"more; {told(reclaimable(site, session))}.",
            file=site.root.path,
            next_step="Free some of it (blendex collect), or raise max_root_files or max_root_bytes; then retry.",
        )
