"""Previews one after another: they share one child."""

from __future__ import annotations

import threading

from blendex.builds.preview import Preview, preview
from blendex.builds.site import Site
from blendex.builds.submission import Submission
from blendex.errors import BlendexError, Code
from blendex.runtime.slots import Runner

# Each caller that waits holds a thread of the pool, which has 40.
MOST_WAITING = 8
WAIT_SECONDS = 15.0


class Previews:
    """Runs previews in a runner of one slot."""

    def __init__(self, site: Site, runner: Runner, wait_seconds: float = WAIT_SECONDS) -> None:
        self._site = site
        self._runner = runner
        self._wait_seconds = wait_seconds
        self._turn = threading.Lock()
        self._places = threading.BoundedSemaphore(MOST_WAITING)

    def run(self, submission: Submission, site: Site | None = None) -> Preview:
        """What a submission would come to, for whoever uses ``site``, when it is its turn.

        Raises:
            BlendexError: busy, after a bounded wait; what the preview raises.
        """
        if not self._places.acquire(blocking=False):
            raise _busy()
        try:
            if not self._turn.acquire(timeout=self._wait_seconds):
                raise _busy()
            try:
                return preview(site or self._site, self._runner, submission)
            finally:
                self._turn.release()
        finally:
            self._places.release()


def _busy() -> BlendexError:
    return BlendexError(
        Code.BUSY, "other previews are under way.", next_step="Ask again in a few seconds, or post the build."
    )
