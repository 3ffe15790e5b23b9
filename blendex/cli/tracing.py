"""Traces of a process, when its settings ask for them."""

from __future__ import annotations

from blendex.errors import BlendexError, Code
from blendex.observability import traces
from blendex.settings import Settings


def begin(settings: Settings, service: str) -> None:
    """Begin to trace.

    Raises:
        BlendexError: bad_request, when the extra is not installed.
    """
    if settings.traces == "off":
        return
    try:
        traces.configure(service)
    except ModuleNotFoundError as error:
        raise BlendexError(
            Code.BAD_REQUEST,
            f"BLENDEX_TRACES needs the extra 'telemetry' ({error.name} is not installed).",
            next_step="pip install 'blendex[telemetry]', or unset it.",
        ) from error
