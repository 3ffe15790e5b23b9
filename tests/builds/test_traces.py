"""One trace from the request to the last unit; nothing at all while nobody asked for it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from blendex.builds import reap
from blendex.builds.run import work_until_ended
from blendex.builds.site import Site
from blendex.builds.submit import submit
from blendex.catalog import states
from blendex.observability import traces
from tests.service.conftest import _site, working
from tests.support import corpus
from tests.support.inline import InlineRunner

CLIENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    spans = InMemorySpanExporter()
    traces.configure("test", spans)
    yield spans
    traces.close()


def tree(exporter: InMemorySpanExporter, number: int) -> dict[str, list[Any]]:
    """The spans of one trace, by their names."""
    found: dict[str, list[Any]] = {}
    for span in exporter.get_finished_spans():
        if span.context.trace_id == number:
            found.setdefault(span.name, []).append(span)
    return found


def test_a_build_is_one_trace_across_processes(
    exporter: InMemorySpanExporter, open_site: Callable[..., Site], data: Path
) -> None:
    site = open_site(unit_sources=1)
    span = traces.begin("blendex.request", CLIENT)
    with traces.within(span):
        build, _ = submit(site, corpus.submission(corpus.corpus(data, 2), data, packs="all"))
    traces.end(span)
    assert traces.current() is None
    # From here on only the catalog knows of the trace, as in another process.
    assert work_until_ended(site, build.id, runner=InlineRunner())["state"] == "ready"
    spans = tree(exporter, int(CLIENT.split("-")[1], 16))
    assert {name: len(found) for name, found in spans.items()} == {
        "blendex.request": 1, "blendex.plan": 1, "blendex.index": 4, "blendex.pack": 2, "blendex.publish": 1,
    }  # fmt: skip
    (request,), (plan,) = spans["blendex.request"], spans["blendex.plan"]
    assert f"{request.parent.span_id:016x}" == CLIENT.split("-")[2]
    assert plan.parent.span_id == request.context.span_id
    assert {item.parent.span_id for item in spans["blendex.index"]} == {plan.context.span_id}
    ids = {item.context.span_id for found in spans.values() for item in found}
    assert spans["blendex.publish"][0].parent.span_id in ids - {plan.context.span_id}
    assert dict(plan.attributes) == {"build": build.id, "unit": 1, "attempt": 1, "outcome": "done"}


def test_what_a_reaper_begins_goes_on_from_the_request(
    exporter: InMemorySpanExporter, tmp_path: Path, data: Path
) -> None:
    site = corpus.site(tmp_path / "root")
    span = traces.begin("blendex.request", None)
    with traces.within(span):
        build, _ = submit(site, corpus.submission(corpus.corpus(data, 1), data))
    with site.work.write() as session:
        unit = states.claim_unit(session, "w", 30, 2**40)
        assert unit is not None
        states.end_unit(session, unit.id, unit.fence, "failed")
    reap.reap(site)
    assert work_until_ended(site, build.id, runner=InlineRunner())["state"] == "ready"
    (plan,) = tree(exporter, span.context.trace_id)["blendex.plan"]
    assert plan.parent.span_id == span.context.span_id


def test_requests_are_traced_by_their_route(exporter: InMemorySpanExporter, tmp_path: Path) -> None:
    with working(_site(tmp_path / "root", tmp_path), tmp_path) as service:
        service.http.get("/v1/names/x", headers={"traceparent": CLIENT})
        service.http.get("/v1/names/x", headers={"traceparent": "00-nonsense"})
    (request,) = tree(exporter, int(CLIENT.split("-")[1], 16))["blendex.request"]
    assert (request.attributes["route"], request.attributes["method"]) == ("/v1/names/{name}", "GET")


def test_nothing_is_imported_while_it_is_off() -> None:
    code = (
        "import sys; import blendex.builds.loop; from blendex.observability import traces; "
        "span = traces.begin('a', None); traces.end(span); assert traces.current() is None; "
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
