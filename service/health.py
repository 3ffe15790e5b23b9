"""``/healthz`` and ``/readyz``."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from fastapi import APIRouter, Depends
from sqlalchemy.exc import SQLAlchemyError
from starlette.responses import Response

from blendex.builds.degraded import CATALOG
from blendex.catalog import states
from blendex.storage.root import create
from service.house import House, HouseOf
from service.query import refuse_unknown
from service.replies import Json, told

router = APIRouter(tags=["health"], dependencies=[Depends(refuse_unknown)])


@router.get("/healthz", summary="Is the process alive?")
async def healthz() -> Response:
    """Touches nothing: a probe that fails restarts the process, which mends no database."""
    return Json({"alive": True})


@router.get("/readyz", summary="Can it do its work?", responses={503: {"description": "Not now; the body says why."}})
def readyz(house: HouseOf) -> Response:
    """Writes to the root, looks after the claim loop, asks the database.

    Without the database it is ready and ``degraded``: what is published is still found, which nobody could ask for if
    a load balancer took every process out for that.
    """
    checks = {
        "database": database(house),
        "root": root(house),
        "work": "" if house.alive() else "has stopped",
    }
    degraded = bool(checks["database"])
    ready = not (checks["root"] or checks["work"])
    words: dict[str, Any] = {name: reason or "ok" for name, reason in checks.items()}
    return told({"ready": ready, **words} | ({"degraded": CATALOG} if degraded else {}), 200 if ready else 503)


def database(house: House) -> str:
    """What is wrong with the database; empty when nothing is."""
    if house.site.work.resting():
        return "does not answer"
    try:
        with house.site.work.read() as session:
            states.running_builds(session)
    except SQLAlchemyError as error:
        return f"does not answer ({type(error).__name__})"
    return ""


def root(house: House) -> str:
    """What is wrong with the root; empty when nothing is."""
    probe = os.path.join(house.site.root.path, "staging", f".probe-{os.urandom(8).hex()}")
    try:
        create(probe, b"")
    except OSError as error:
        return f"cannot be written ({error.strerror})"
    finally:
        with contextlib.suppress(OSError):
            os.unlink(probe)
    return ""
