"""Traces: one from the request that posts a blend to the last unit of its build, whoever does it. An extra, and off.

While it is off, or nobody configured it, nothing of OpenTelemetry is imported and every function here does nothing. The
context of a trace is stored with builds and units (W3C's ``traceparent``), so a worker goes on where an api process
began:

    blendex.request            one request of the API; goes on a trace that its client sent
    └ blendex.plan             an attempt at a unit, from its claim to its end
      └ blendex.index …        of units that this one made; so are blendex.pack and blendex.publish

A unit that several builds wait for belongs to the trace of the one that asked first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PARENT = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class _Process:
    """What this process traces by; None: it does not."""

    provider: Any = None
    tracer: Any = None


def configure(service: str, exporter: Any = None) -> None:
    """Begin to trace.

    Args:
        service: what this process is called.
        exporter: where spans go; None: OTLP over HTTP, by the variables ``OTEL_EXPORTER_OTLP_…``.

    Raises:
        ModuleNotFoundError: the extra is not installed.
    """
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor

    if exporter is None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        processor: Any = BatchSpanProcessor(OTLPSpanExporter())
    else:
        processor = SimpleSpanProcessor(exporter)
    # Not the global one: what else is in this process has its own.
    _Process.provider = TracerProvider(resource=Resource.create({"service.name": service}))
    _Process.provider.add_span_processor(processor)
    _Process.tracer = _Process.provider.get_tracer("blendex")


def close() -> None:
    """Send what is left, and trace no more."""
    if _Process.provider is not None:
        _Process.provider.shutdown()
    _Process.provider = _Process.tracer = None


def on() -> bool:
    """Whether anything is traced."""
    return _Process.tracer is not None


def current() -> str | None:
    """The context of the span that is open here, to be stored; None without one."""
    if _Process.tracer is None:
        return None
    from opentelemetry import trace

    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def begin(name: str, parent: str | None, **attributes: str | int) -> Any:
    """A span that goes on from a stored context; None while nothing is traced. ``end`` ends it."""
    if _Process.tracer is None:
        return None
    return _Process.tracer.start_span(name, _context(parent), attributes=attributes)


def end(span: Any, **attributes: str | int) -> None:
    """End a span of ``begin``."""
    if span is not None:
        span.set_attributes(attributes)
        span.end()


@contextmanager
def within(span: Any) -> Iterator[None]:
    """Let a span of ``begin`` be the current one; it is not ended by that."""
    if span is None:
        yield
        return
    from opentelemetry import trace

    with trace.use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False):
        yield


def _context(parent: str | None) -> Any:
    from opentelemetry import trace
    from opentelemetry.context import Context

    if parent is None or not PARENT.fullmatch(parent):
        return Context()
    _, number, span, flags = parent.split("-")
    found = trace.SpanContext(int(number, 16), int(span, 16), True, trace.TraceFlags(int(flags, 16)))
    return trace.set_span_in_context(trace.NonRecordingSpan(found), Context())
