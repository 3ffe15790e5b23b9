"""``/v1/workers``."""

from __future__ import annotations

from fastapi import APIRouter, Depends
from starlette.responses import Response

from blendex.builds.figures import observation_summary, worker_summary
from blendex.catalog import observations, workers
from service.api.v1 import schemas
from service.house import HouseOf
from service.query import refuse_unknown
from service.replies import Json

router = APIRouter(prefix="/v1/workers", tags=["workers"], dependencies=[Depends(refuse_unknown)])


@router.get("", summary="Who works here", responses={200: {"model": schemas.Workers}})
def page(house: HouseOf) -> Response:
    """Every process that claims units, the oldest first; ``silent`` is one that missed its heartbeats.

    ``waiting`` says why one takes nothing though there is work; ``observations``: memory predicted and seen, by sort of
    source.
    """
    with house.site.work.read() as session:
        found = [worker_summary(worker, alive) for worker, alive in workers.page(session)]
        seen = [observation_summary(item) for item in observations.page(session)]
    if not house.site.who.everything:
        for item in found:
            item["in_hand"] = []  # it may be another team's
    return Json({"workers": found, "observations": seen})
