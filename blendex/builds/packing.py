"""Packing: one unit that arranges which packs a build wants, and one per pack that is not known yet.

Builds that want the same pack share its unit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
from sqlalchemy.orm import Session

from blendex.builds import causes, packs
from blendex.builds.arranging import ARRANGE, LeaseLostError, arrange
from blendex.builds.attempts import attempt, priority_of
from blendex.builds.judging import ReplanError
from blendex.builds.objects import ObjectGoneError, add_object, do_again
from blendex.builds.progress import queue_publish_if_done
from blendex.builds.publishing import replan
from blendex.builds.site import Site
from blendex.catalog import builds, sources, states, units
from blendex.catalog import packs as catalog
from blendex.catalog.models import Unit
from blendex.errors import BlendexError, Code
from blendex.runtime.slots import Call, Outcome

MOST_ATTEMPTS = 3
LARGER = 2


def _job(payload: dict[str, Any]) -> Iterator[bytes]:
    head = {name: payload[name] for name in ("collections", "natives")}
    yield orjson.dumps(head, option=orjson.OPT_APPEND_NEWLINE)
    for source in payload["sources"]:
        yield orjson.dumps(source, option=orjson.OPT_APPEND_NEWLINE)


def prepare(site: Site, unit: Unit) -> Call | None:
    """The call of a unit that makes a pack; None when it was to arrange, which is done by then."""
    payload = units.payload(unit)
    if payload == ARRANGE:
        _arrange(site, unit)
        return None
    job = site.root.staging(attempt(unit)) + ".job"
    with open(job, "xb") as file:
        file.writelines(_job(payload))
    arguments = {"root": site.root.path, "attempt": attempt(unit), "job": job}
    return Call("blendex.units.pack:run", arguments, unit.memory, site.settings.unit_seconds)


def _arrange(site: Site, unit: Unit) -> None:
    known = True
    try:
        arrange(site, unit)
    except LeaseLostError:
        return
    except ReplanError:
        known = False
    with site.work.write() as session:
        if not states.end_unit(session, unit.id, unit.fence, "done"):
            return
        if known:
            _release(session, unit.id)
        elif (build := builds.get(session, unit.build)) is not None and build.state == "packing":
            replan(session, build, [])


def finish(site: Site, unit: Unit, outcome: Outcome) -> bool:
    """Take over a pack, or why there can be none, and let go on whoever waited; False when the lease was lost."""
    assert outcome.result is not None
    try:
        return _take_over(site, unit, outcome.result)
    except ObjectGoneError:
        return do_again(site, unit)


def _take_over(site: Site, unit: Unit, result: dict[str, Any]) -> bool:
    with site.work.write() as session:
        if not states.end_unit(session, unit.id, unit.fence, "done"):
            return False
        name = units.payload(unit)["digest"]
        if "refused" in result:
            catalog.record(session, name, object_id=None, error=result["refused"])
        else:
            object_id = add_object(site, session, result["object"], result["counts"]["bytes"])
            catalog.record(
                session, name, object_id=object_id, layout_hash=result["layout_hash"], counts=result["counts"]
            )
        _release(session, unit.id)
    return True


def _release(session: Session, unit: int) -> None:
    units.withdraw(session, unit)
    for name in sorted(units.subscribers(session, unit)):
        states.touch_build(session, name)
        build = builds.get(session, name)
        if build is not None:
            queue_publish_if_done(session, build)


def fail(site: Site, unit: Unit, outcome: Outcome) -> bool:
    """A child died, or found that what it packs from is damaged; False when the lease was lost."""
    with site.work.write() as session:
        error = outcome.error
        if error is not None and error["code"] == Code.OBJECT_DAMAGED:
            return _plan_again(site, session, unit, error)
        if outcome.cause == "memory" and unit.attempts == 0:
            return _larger(session, unit)
        patience = site.settings.store_patience
        if (again := causes.again(session, unit, outcome, MOST_ATTEMPTS, patience, errors_too=True)) is not None:
            return again
        error = error or _cause(outcome.cause).as_dict()
        if not states.end_unit(session, unit.id, unit.fence, "failed", error):
            return False
        payload = units.payload(unit)
        if payload != ARRANGE:
            catalog.record(session, payload["digest"], object_id=None, error=error)
            _release(session, unit.id)
        elif (build := builds.get(session, unit.build)) is not None:
            states.move_build(session, build.id, "failed", build.fence, error=error)
            units.unsubscribe(session, build.id)
    return True


def _cause(cause: str) -> BlendexError:
    return BlendexError(
        Code.OUT_OF_MEMORY if cause == "memory" else Code.CHILD_DIED,
        f"packing was stopped ({cause}).",
        next_step="The dataset keeps its loose sidecars; post the blend again to try once more.",
    )


def _larger(session: Session, unit: Unit) -> bool:
    if not states.end_unit(session, unit.id, unit.fence, "failed", {"cause": "memory"}):
        return False
    payload = units.payload(unit)
    new = units.create(
        session, "pack", unit.build, payload, memory=unit.memory * LARGER, cost=unit.cost,
        priority=priority_of(unit), attempts=1, needs=unit.needs,
    )  # fmt: skip
    units.move_pending(session, unit.id, new, [(f"pack:{payload['digest']}", packs.RECIPE)])
    units.copy_subscriptions(session, unit.id, new, 0)
    return True


def _plan_again(site: Site, session: Session, unit: Unit, error: dict[str, Any]) -> bool:
    """An object is damaged: its sources are read once more for every build that waits."""
    if not states.end_unit(session, unit.id, unit.fence, "done"):
        return False
    units.withdraw(session, unit.id)
    site.root.set_aside(error["file"])
    sources.lose_object(session, error["file"])
    for name in sorted(units.subscribers(session, unit.id)):
        build = builds.get(session, name)
        if build is not None:
            replan(session, build, [])
    return True
