"""Memory that sorts of sources were seen to take, and what follows for the next one."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import case, select
from sqlalchemy.orm import Session

from blendex.catalog import dialect
from blendex.catalog.models import Observation

# What is predicted of one that was seen to take so much: a half more, and what a child has before it reads at all.
MARGIN, BASE_BYTES = 1.5, 48 * 2**20
# Fewer say nothing.
ENOUGH = 8
# A peak is forgotten by so much with every unit that stays below it: a hundred calm ones halve it twice.
FORGET = 0.99


def record(session: Session, peaks: Mapping[str, int], predicted: int) -> None:
    """Take over what a unit was seen to take, by sort, under the memory that it was promised."""
    for sort in sorted(peaks):
        seen = peaks[sort]
        kept = Observation.peak * FORGET
        statement = dialect.insert(session, Observation).values(
            sort=sort, peak=seen, last=seen, predicted=predicted, count=1, updated_at=dialect.now(session)
        )
        session.execute(
            statement.on_conflict_do_update(
                index_elements=["sort"],
                set_={
                    "peak": case((kept > seen, kept), else_=seen),
                    "last": seen,
                    "predicted": predicted,
                    "count": Observation.count + 1,
                    "updated_at": dialect.now(session),
                },
            )
        )


def predictions(session: Session) -> dict[str, int]:
    """What the next source of a sort will take, in bytes, for every sort of which enough is known."""
    rows = session.execute(select(Observation.sort, Observation.peak).where(Observation.count >= ENOUGH))
    return {sort: int(peak * MARGIN) + BASE_BYTES for sort, peak in rows}


def page(session: Session) -> list[Observation]:
    """All that was observed, by sort."""
    return list(session.execute(select(Observation).order_by(Observation.sort)).scalars())
