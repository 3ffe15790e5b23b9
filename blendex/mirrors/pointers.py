"""Pointer files: what a name says, for those who ask while the service is down."""

from __future__ import annotations

import os

from blendex.catalog import mirrors
from blendex.catalog.engine import UnitOfWork
from blendex.storage.root import Root, replace
from blendex.units.receipt import dumps


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
            dumps(
                {"name": name, "build": row.build, "version": row.version, "history": history}
                | ({"team": row.team} if row.team else {})
            ),
        )
        with work.read() as session:
            again = mirrors.name(session, name)
        if again is not None and again.version == row.version:
            return
