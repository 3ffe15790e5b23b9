"""Reap: return what the dead left behind. Any process may do it at any time, several at once."""

from __future__ import annotations

import contextlib
import os
import time

from sqlalchemy import select
from sqlalchemy.orm import Session

from blendex.builds.progress import queue_publish_if_done
from blendex.builds.site import Site
from blendex.builds.submit import queue_plan
from blendex.catalog import builds, states, units
from blendex.catalog.models import RUNNING, Build, Name, Unit
from blendex.mirrors.pointers import write_pointer

# Private files of builds that this catalog does not know may belong to another catalog on the same root.
FOREIGN_SECONDS = 24 * 3600


def reap(site: Site) -> None:
    """Expired leases go back to waiting, builds that wait for nothing move on, pointers and staging are tidied."""
    with site.work.write() as session:
        for unit_id in states.expire_leases(session):
            unit = session.get(Unit, unit_id, populate_existing=True)
            if unit is not None:
                states.touch_build(session, unit.build)
        for build in list(session.execute(select(Build).where(Build.state.in_(RUNNING))).scalars()):
            if units.unfinished(session, build.id) == 0:
                _move_on(session, build)
    _sweep_staging(site)
    _reconcile_names(site)


def _move_on(session: Session, build: Build) -> None:
    """A running build that waits for no unit: whoever finished the last one died before the next step."""
    if build.state in ("queued", "planning"):
        queue_plan(session, build.id)
        builds.wake(session, "plan")
    elif build.state in ("indexing", "packing"):
        queue_publish_if_done(session, build)
    elif states.move_build(session, build.id, "planning", build.fence):
        queue_plan(session, build.id)


def _sweep_staging(site: Site) -> None:
    """Remove private files of attempts that are over."""
    top = os.path.join(site.root.path, "staging")
    for name in os.listdir(top):
        path = os.path.join(top, name)
        build, _, rest = name.partition(".")
        attempt = rest.split(".")[0].split("-")
        try:
            age = time.time() - os.lstat(path).st_mtime
        except FileNotFoundError:
            continue
        if not _over(site, build, attempt) and age < FOREIGN_SECONDS:
            continue
        with contextlib.suppress(FileNotFoundError):
            if os.path.isdir(path):
                site.root.discard(path)
            else:
                os.unlink(path)


def _over(site: Site, build: str, attempt: list[str]) -> bool:
    """True when this catalog knows the build and knows that the attempt holds no lease."""
    with site.work.read() as session:
        if builds.get(session, build) is None or len(attempt) != 2 or not all(part.isdigit() for part in attempt):
            return False
        unit = session.get(Unit, int(attempt[0]))
        return unit is None or unit.state != "leased" or unit.fence != int(attempt[1])


def _reconcile_names(site: Site) -> None:
    """Write name files that a crash between the transaction and the file left behind."""
    with site.work.read() as session:
        rows = [(row.name, row.build) for row in session.execute(select(Name)).scalars()]
    for name, build in rows:
        try:
            with (
                open(site.root.name(name), "rb") as file,
                open(os.path.join(site.root.build(build), "path"), "rb") as it,
            ):
                same = file.read() == it.read()
        except FileNotFoundError:
            same = False
        if not same and os.path.exists(os.path.join(site.root.build(build), "path")):
            write_pointer(site.work, site.root, name)
