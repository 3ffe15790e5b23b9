"""Verify a mirror because somebody asks, and keep what came of it for whoever looks at the mirror."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from blendex.builds.naming import not_found
from blendex.builds.site import Site
from blendex.catalog import audit, mirrors, verifications
from blendex.catalog.models import Verification
from blendex.errors import BlendexError, Code

# One that has not ended after so long is taken for lost with its process. 400,000 sidecars are read in minutes.
SECONDS = 3600.0

Verify = Callable[[dict[str, Any]], dict[str, Any]]


def begin(site: Site, key: str, *, with_sources: bool) -> bool:
    """Note that one begins; False when one is under way already.

    Raises:
        BlendexError: not_found, also for a mirror that was collected.
    """
    with site.work.write() as session:
        row = mirrors.get(session, key)
        if row is None or row.state == "collected":
            raise not_found("mirror", key)
        begun = verifications.begin(session, key, with_sources=with_sources, patience=SECONDS)
        audit.note(session, site.who, "mirror.verify", key)
        return begun


def run(site: Site, key: str, verify: Verify, *, with_sources: bool) -> dict[str, Any]:
    """Verify a mirror that was begun with; its description.

    Args:
        site: root and catalog.
        key: of the mirror.
        verify: does it: takes the arguments of ``blendex.units.verify``, gives its result.
        with_sources: whether tokens of the sources are compared too.
    """
    result: dict[str, Any] = {}
    error = None
    try:
        result = verify({"mirror": site.root.mirror(key), "sources": with_sources, **site.reading()})
    except BlendexError as failure:
        # A receipt that cannot be trusted is no verdict on every file, and a bad one all the same.
        error = failure.as_dict()
    state = "failed" if error else "damaged" if result["faults"] else "whole"
    with site.work.write() as session:
        verifications.end(session, key, state, result=result, error=error)
    found = of(site, key)
    assert found is not None
    return found


def drop(site: Site, key: str) -> None:
    """One that was begun with is not made: the process ends."""
    error = BlendexError(Code.CANCELLED, "the service ended before it was made.", next_step="Ask for it again.")
    with site.work.write() as session:
        verifications.end(session, key, "failed", result={}, error=error.as_dict())


def of(site: Site, key: str) -> dict[str, Any] | None:
    """What came of the last one of a mirror; None when nobody asked for any."""
    with site.work.read() as session:
        return summary(verifications.of(session, [key]).get(key))


def summary(row: Verification | None) -> dict[str, Any] | None:
    """A verification as JSON; ``state``: running, whole, damaged, or failed when it could not be made."""
    if row is None:
        return None
    return {
        "state": row.state, "with_sources": row.with_sources, "sources": row.sources, "faults": row.faults,
        "fault_count": row.fault_count, "changed": row.changed, "changed_count": row.changed_count, "error": row.error,
        "began_at": row.began_at, "ended_at": row.ended_at,
    }  # fmt: skip
