"""What an attempt that came to nothing counts for."""

from __future__ import annotations

from sqlalchemy.orm import Session

from blendex.builds.site import Site
from blendex.catalog import deaths, states
from blendex.catalog.models import Unit
from blendex.errors import PASSING
from blendex.runtime.slots import Outcome

# While a store is away: pauses that double up to a minute, as many as patience lasts. Then what needs it is named, and
# nothing is held against it: whoever needs it next tries again.
AWAY_FIRST, AWAY_MOST = 2.0, 60.0
_PAUSES = tuple(min(AWAY_MOST, AWAY_FIRST * 2.0**number) for number in range(8))

# A unit whose worker was lost with it and nothing else this often is not given to another one; one that was lost in
# company, which says little, only after so many times as often: else it might take workers with it for ever.
MOST_LOSSES, IN_COMPANY = 5, 4


def is_passing(outcome: Outcome) -> bool:
    """Whether an attempt met something that passes by itself and is nobody's fault."""
    return outcome.cause == "unstarted" or (outcome.error is not None and outcome.error["code"] in PASSING)


def loses_workers(site: Site, unit: Unit) -> bool:
    """Whether a unit is to blame for the workers that were lost while they had it."""
    if unit.losses < MOST_LOSSES:
        return False
    with site.work.read() as session:
        return unit.losses >= MOST_LOSSES * IN_COMPANY or deaths.lost_alone(session, unit.id) >= MOST_LOSSES


def pause_of(unit: Unit) -> float:
    """Seconds to leave a unit alone: twice as long each time, a minute at most."""
    return min(AWAY_MOST, AWAY_FIRST * float(1 << min(unit.delays, 10)))


def paused(delays: int) -> float:
    """Seconds of so many pauses."""
    return sum(_PAUSES[min(number, len(_PAUSES) - 1)] for number in range(delays))


def again(
    session: Session, unit: Unit, outcome: Outcome, most: int, patience: float, *, errors_too: bool = False
) -> bool | None:
    """Hand a plan, pack or publish unit back when it shall be tried again: whether it was; None when it shall not.

    What passes by itself is waited for, ``patience`` seconds for a store, for ever for a disk; it counts nothing. A
    death counts, and so does an error where ``errors_too``, up to ``most``.
    """
    full = (outcome.error or {}).get("code") == "no_space"
    if is_passing(outcome) and (full or paused(unit.delays) < patience):
        pause = pause_of(unit)
        return states.hand_back(session, unit.id, unit.fence, count=False, pause=pause, error=outcome.error)
    if (outcome.error is None or errors_too) and outcome.cause != "lost lease" and unit.attempts + 1 < most:
        return states.hand_back(session, unit.id, unit.fence, count=True)
    return None
