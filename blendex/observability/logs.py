"""Logging: one line per event, JSON in production, words on a terminal; what is bound goes into every line.

Everything that is logged, by us or by a library, goes through one handler on standard error. Bound to the context
of a thread or a request: ``request``, ``worker``, ``build``, ``unit``, ``attempt``. The text of a record never enters.
"""

from __future__ import annotations

import logging
import re
import sys
from typing import Any, Literal

import structlog

Format = Literal["auto", "json", "text"]
# Keys whose values are secrets, whoever logged them.
SECRET = ("authorization", "password", "secret", "token", "cookie")
# Tokens and sessions of ours, by how they begin, wherever they stand.
OURS = re.compile(r"bxs?_[0-9A-Za-z]{20,}")

# Before ``configure``, as in ``blendex build``: warnings only, in words, through the standard library's last resort.
structlog.configure(
    processors=[
        structlog.stdlib.filter_by_level,
        structlog.contextvars.merge_contextvars,
        structlog.processors.format_exc_info,
        structlog.processors.KeyValueRenderer(key_order=["event"]),
    ],
    logger_factory=structlog.stdlib.LoggerFactory(),
    wrapper_class=structlog.stdlib.BoundLogger,
)

bound = structlog.contextvars.bound_contextvars


def get_logger(name: str) -> Any:
    """A logger whose keywords become fields."""
    return structlog.stdlib.get_logger(name)


def _redact(_logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    for key, value in event.items():
        if any(word in key.lower() for word in SECRET):
            event[key] = "…"
        elif isinstance(value, str) and ("bx_" in value or "bxs_" in value):
            event[key] = OURS.sub("bx_…", value)
    return event


def configure(form: Format = "auto", level: str = "INFO") -> None:
    """Send everything to standard error.

    Args:
        form: ``auto``: text where standard error is a terminal, else JSON.
        level: the least level that is shown.
    """
    as_json = form == "json" or (form == "auto" and not sys.stderr.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _redact,
    ]
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    last: list[structlog.typing.Processor] = (
        [structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer()]
        if as_json
        else [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
