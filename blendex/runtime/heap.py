"""The garbage collector of a process of ours, set for rows that come by the hundred thousand."""

from __future__ import annotations

import gc

# New containers before a collection looks at them, instead of 700. A unit tells of 2,048 sources in some 10,000
# containers, none of them in a cycle: looking for some took 85 % of the time of decoding it.
YOUNG = 50_000


def settle() -> None:
    """What is loaded by now stays and is looked at no more; what comes is looked at seldom.

    For programs, once they are set up: not for a library, whose process is somebody else's.
    """
    gc.freeze()
    gc.set_threshold(YOUNG, 10, 10)
