"""A runner that runs calls in this very process: the local implementation for tests that need no children."""

from __future__ import annotations

import importlib
import queue
from typing import Any

from blendex.errors import BlendexError
from blendex.runtime.slots import Call, Outcome


class InlineRunner:
    """Runs each call at ``start``; the outcome is there at once."""

    def __init__(self) -> None:
        self.outcomes: queue.Queue[Outcome] = queue.Queue()
        self.count = 1
        self.calls: list[Call] = []

    def free(self) -> int:
        return 1 if self.outcomes.empty() else 0

    def idle(self) -> int:
        return 0

    def used(self) -> int:
        return 0

    def start(self, call: Call) -> int:
        self.calls.append(call)
        ticket = len(self.calls)
        progress: list[dict[str, Any]] = []
        module, _, name = call.function.partition(":")
        try:
            result = getattr(importlib.import_module(module), name)(
                call.arguments, lambda data: progress.append(data) if "in_hand" not in data else None
            )
            outcome = Outcome(ticket, "done", result=result, progress=progress)
        except BlendexError as error:
            outcome = Outcome(ticket, "error", error=error.as_dict(), progress=progress)
        self.outcomes.put(outcome)
        return ticket

    def holding(self, ticket: int) -> dict[str, Any]:
        return {}

    def cancel(self, ticket: int, cause: str = "cancelled") -> None:
        """Nothing runs between calls."""

    def close(self) -> None:
        """Nothing to end."""
