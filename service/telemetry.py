"""``/metrics``: figures of this process, and of the catalog, in Prometheus' text format."""

from __future__ import annotations

from fastapi import APIRouter, Depends
from starlette.responses import Response

from blendex.builds import figures
from blendex.observability import metrics
from service.house import HouseOf
from service.query import refuse_unknown

router = APIRouter(tags=["health"], dependencies=[Depends(refuse_unknown)])


@router.get(
    "/metrics",
    summary="Figures for Prometheus",
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Prometheus text."}},
)
def scrape(house: HouseOf) -> Response:
    """``docs/operate.md`` names them all."""
    return Response(metrics.render(lambda: figures.gauges(house.site)), media_type=metrics.CONTENT_TYPE)
