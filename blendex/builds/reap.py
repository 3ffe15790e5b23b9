"""Reap: return what the dead left behind. Any process may do it at any time, several at once."""

from __future__ import annotations

import contextlib
import os
import random
import time

from sqlalchemy import select
from sqlalchemy.orm import Session

from blendex.builds import abilities
from blendex.builds.keeping import collect_in_turn
from blendex.builds.progress import queue_publish_if_done
from blendex.builds.site import Site
from blendex.builds.submit import queue_plan
from blendex.catalog import builds, deaths, lanes, states, units, workers
from blendex.catalog.models import RUNNING, Build, Name, Unit
from blendex.mirrors import collect
from blendex.mirrors.pointers import write_pointer
from blendex.observability import metrics

# Private files of builds that this catalog does not know may belong to another catalog on the same root.
FOREIGN_SECONDS = 24 * 3600
# Wake-ups that nobody tells: no relay runs, or the broker is away. The work is found by polling.
OUTBOX_SECONDS = 3600
REAPS_BETWEEN = 1 / 12
# Of one reap, which comes every few seconds: whoever waits for this process waits no longer.
COLLECT_SECONDS = 2.0
TRASH_FILES = 500


def reap(site: Site) -> None:
    """Expired leases go back to waiting, builds that wait for nothing move on, pointers and staging are tidied."""
    _expire(site)
    with site.work.read() as session:
        stuck = [build for build in builds.running(session) if units.unfinished(session, build) == 0]
    for build in stuck:
        _move_on(site, build)
    with site.work.read() as session:
        tidy = workers.has_old(session) or builds.has_old_outbox(session, OUTBOX_SECONDS) or lanes.any_over(session)
        tidy = tidy or deaths.has_old(session)
        # It looks at all that waits, so about once in a minute.
        tidy = tidy or (random.random() < REAPS_BETWEEN and lanes.any_missing(session))  # noqa: S311
    if tidy:
        with site.work.write() as session:
            lanes.mend(session)
            lanes.forget(session)
            deaths.forget(session)
            builds.forget_outbox(session, OUTBOX_SECONDS)
            workers.forget(session)
    if random.random() < REAPS_BETWEEN:  # noqa: S311 -- it looks at all that waits, too
        plan_anew(site)
    _sweep_staging(site)
    _reconcile_names(site)
    collect_in_turn(site, COLLECT_SECONDS)
    collect.empty(site.root, most=TRASH_FILES)


def _expire(site: Site) -> None:
    with site.work.read() as session:
        if not states.any_expired(session):
            return
    with site.work.write() as session:
        held_by = states.expired_workers(session)
        expired = states.expire_leases(session)
        metrics.LEASES_EXPIRED.inc(len(expired))
        deaths.lost(session, expired, held_by)
        for build in sorted(units.builds_of(session, expired)):
            states.touch_build(session, build)
        for work in units.works_of(session, expired):
            builds.wake(session, work)


def _move_on(site: Site, name: str) -> None:
    """A running build that waits for no unit: whoever finished the last one died before the next step.

    Several may see it at one time, and its last step may just be ending: locked, it is looked at again.
    """
    with site.work.write() as session:
        build = builds.lock(session, name)
        if build is None or build.state not in RUNNING or units.unfinished(session, name) > 0:
            return
        if build.state in ("queued", "planning"):
            _plan_again(session, build)
        elif build.state in ("indexing", "packing"):
            queue_publish_if_done(session, build)
        elif states.move_build(session, name, "planning", build.fence):
            _plan_again(session, build)


def _plan_again(session: Session, build: Build) -> None:
    queue_plan(session, build.id)
    builds.wake(session, "plan")


def plan_anew(site: Site) -> None:
    """Plan builds again whose units need recipes of an older version that nobody has any more.

    What needs a newer one waits for a worker that has it: this program may have been rolled back for an hour.
    """
    with site.work.read() as session:
        has = workers.recipes(session)
        if has is None:
            return
        known = has | set(abilities.own())
        old = [
            named
            for named in units.needed(session)
            if (lacking := abilities.missing(named, known)) and abilities.superseded(lacking)
        ]
        waiting = sorted({build for named in old for build in units.waiting_for(session, named)})
    for name in waiting:
        with site.work.write() as session:
            units.unsubscribe(session, name)
            build = builds.lock(session, name)
            if build is None or build.state not in RUNNING:
                continue
            if build.state == "queued" or states.move_build(session, name, "planning", build.fence):
                _plan_again(session, build)


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
