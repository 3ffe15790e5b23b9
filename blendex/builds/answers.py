"""What a look-up is answered."""

from __future__ import annotations

from dataclasses import dataclass

from blendex.errors import BlendexError


@dataclass(frozen=True, slots=True)
class Answer:
    """Where a mirror is, or how far it is."""

    state: str  # ready, building, failed, cancelled, collected
    build: str | None = None
    key: str | None = None
    path: str | None = None
    excluded: int = 0
    stage: str = ""
    done: int = 0
    total: int = 0
    eta_seconds: float | None = None
    error: BlendexError | None = None
    team: str = ""
    degraded: bool = False  # told by the root, while the catalog is away
    lease_until: float | None = None

    def collected(self, *, degraded: bool) -> Answer:
        """The same of a mirror that is gone."""
        return Answer("collected", self.build, key=self.key, degraded=degraded)
