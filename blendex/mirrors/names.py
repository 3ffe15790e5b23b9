"""Names: movable labels on builds, each with a pointer file beside its row."""

from __future__ import annotations

import os
import re

from blendex.catalog import mirrors
from blendex.catalog.engine import UnitOfWork
from blendex.errors import BlendexError, Code
from blendex.storage.root import Root, replace
from blendex.units.receipt import dumps

# Never a path: no slash, no leading dot, short enough for a file name with a suffix.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def check_name(name: str) -> str:
    """``name``, if it may be one.

    Raises:
        BlendexError: bad_request.
    """
    if not NAME.fullmatch(name) or name.endswith(".json"):
        raise BlendexError(
            Code.BAD_REQUEST,
            f"{name!r} cannot be a name.",
            next_step="Use 1 to 100 letters, digits, dots, dashes and underscores, beginning with a letter or digit.",
        )
    return name


def write_pointer(work: UnitOfWork, root: Root, name: str) -> None:
    """Bring the files of a name in line with its row.

    The row is read again after the write until both agree: two writers may cross, and the last row must win.
    """
    while True:
        with work.read() as session:
            row = mirrors.name(session, name)
            history = mirrors.history(session, name)
        if row is None:
            return
        pointer = os.path.join(root.build(row.build), "path")
        with open(pointer, "rb") as file:
            path = file.read()
        target = root.name(name)
        replace(target, path)
        replace(
            target + ".json",
            dumps({"name": name, "build": row.build, "version": row.version, "history": history}),
        )
        with work.read() as session:
            again = mirrors.name(session, name)
        if again is not None and again.version == row.version:
            return
