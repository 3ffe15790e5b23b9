"""The metrics of a process, by name. Labels are words from short closed lists, never an id.

All are documented in ``docs/operate.md``; a test compares the two. What a process does not do it does not show: label
sets come into being when something happens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000)
REGISTRY = CollectorRegistry(auto_describe=True)

REQUESTS = Counter("blendex_http_requests", "Requests answered.", ("method", "route", "status"), registry=REGISTRY)
REQUEST_SECONDS = Histogram(
    "blendex_http_request_seconds", "Until the headers of an answer were sent.", ("method", "route"),
    buckets=(0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60), registry=REGISTRY,
)  # fmt: skip
UNITS = Counter(
    "blendex_units_ended",
    "Attempts at units that this process ended: done, the cause of a death, handed back (shutdown, cancelled), or "
    "lost: the work was done, and the lease had gone to somebody else meanwhile.",
    ("work", "outcome"),
    registry=REGISTRY,
)
DEATHS = Counter(
    "blendex_attempts_failed",
    "Attempts that came to nothing, by cause, and by how: of memory limit, watchdog or kernel; of a signal its name; "
    "of an error its code.",
    ("work", "cause", "how"),
    registry=REGISTRY,
)
UNIT_SECONDS = Histogram(
    "blendex_unit_seconds", "From claim to end of an attempt.", ("work",), buckets=SECONDS, registry=REGISTRY
)
CLAIMS = Counter("blendex_claims", "Units claimed.", ("work",), registry=REGISTRY)
LEASES_LOST = Counter("blendex_leases_lost", "Leases that this process found lost while it worked.", registry=REGISTRY)
LEASES_EXPIRED = Counter(
    "blendex_leases_expired", "Leases that ran out and were taken back, from any worker.", registry=REGISTRY
)
WAKES_SENT = Counter("blendex_wakes_sent", "Wake-ups sent to the broker.", ("work",), registry=REGISTRY)
WAKES_FAILED = Counter("blendex_wakes_failed", "Times that the broker took no wake-up.", registry=REGISTRY)
WAKES_RECEIVED = Counter("blendex_wakes_received", "Wake-ups that arrived here.", ("work",), registry=REGISTRY)
DATABASE_AWAY = Counter(
    "blendex_database_away", "Transactions that the database did not answer or undid.", registry=REGISTRY
)
REFUSED = Counter("blendex_builds_refused", "New builds answered with 429: the service was full.", registry=REGISTRY)
LIMITED = Counter("blendex_requests_limited", "Requests answered with 429: too many.", ("sort",), registry=REGISTRY)
NOTICES = Counter("blendex_notices", "Attempts to tell receivers, by what came of it.", ("state",), registry=REGISTRY)
CONDEMNED = Counter("blendex_mirrors_condemned", "Mirrors marked: nobody holds them.", registry=REGISTRY)
COLLECTED = Counter("blendex_mirrors_collected", "Mirrors that went, with their builds' folders.", registry=REGISTRY)
OBJECTS_COLLECTED = Counter("blendex_objects_collected", "Objects that nothing referred to.", registry=REGISTRY)
FREED = Counter("blendex_freed_bytes", "Bytes of files that were deleted out of trash/.", registry=REGISTRY)
SLOTS = Gauge("blendex_slots", "Child processes that may work at one time.", registry=REGISTRY)
SLOTS_BUSY = Gauge("blendex_slots_busy", "Units that this process holds a lease of.", registry=REGISTRY)
MEMORY_BUDGET = Gauge("blendex_memory_budget_bytes", "Memory that children may have together.", registry=REGISTRY)
MEMORY_TAKEN = Gauge("blendex_memory_taken_bytes", "Of the budget, promised to units that run.", registry=REGISTRY)
MEMORY_USED = Gauge("blendex_memory_used_bytes", "Anonymous memory that all children have now.", registry=REGISTRY)

Figures = Iterable[tuple[str, str, tuple[str, ...], dict[tuple[str, ...], float]]]


class _Asked(Collector):
    """Gauges whose values are asked for when somebody scrapes; none while they cannot be had."""

    def __init__(self, ask: Callable[[], Figures]) -> None:
        self._ask = ask

    def describe(self) -> Iterable[Any]:
        return ()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for name, help_text, labels, values in self._ask():
            family = GaugeMetricFamily(name, help_text, labels=labels)
            for key, value in values.items():
                family.add_metric(key, value)
            yield family


def render(ask: Callable[[], Figures] | None = None) -> bytes:
    """All metrics as text, with the figures that ``ask`` returns."""
    text = generate_latest(REGISTRY)
    if ask is not None:
        asked = CollectorRegistry()
        asked.register(_Asked(ask))
        text += generate_latest(asked)
    return text
