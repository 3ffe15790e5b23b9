"""Verifications that are asked of this process: one after another, in a child, in a thread of their own."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from blendex.builds import verifying
from blendex.builds.site import Site
from blendex.errors import BlendexError, Code
from blendex.observability import logs
from blendex.runtime.slots import Call, Runner, Slots

MOST_WAITING = 16
# Reading receipts and sidecars one after another takes little.
MEMORY = 512 * 2**20

logger = logs.get_logger("blendex.service")


class Verifier:
    """Reads mirrors whole; its child is started when the first one is asked for."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._lock = threading.Lock()
        self._places = threading.BoundedSemaphore(MOST_WAITING)
        self._pool: ThreadPoolExecutor | None = None
        self._runner: Runner | None = None

    def ask(self, site: Site, key: str, *, with_sources: bool) -> bool:
        """Have a mirror verified for whoever uses ``site``; False when one is under way.

        Raises:
            BlendexError: not_found; busy.
        """
        if not self._places.acquire(blocking=False):
            raise BlendexError(
                Code.BUSY, "too many mirrors wait to be verified.", next_step="Ask again in a few minutes."
            )
        begun = False
        try:
            begun = verifying.begin(site, key, with_sources=with_sources)
            if begun:
                with self._lock:
                    self._pool = self._pool or ThreadPoolExecutor(1, "blendex-verify")
                    future = self._pool.submit(self._run, key, with_sources)
                future.add_done_callback(partial(self._over, key))
        finally:
            if not begun:
                self._places.release()
        return begun

    def close(self) -> None:
        """End the child; what it has not finished can be asked for again."""
        with self._lock:
            pool = self._pool
        if pool is None:
            return
        pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            runner = self._runner
        if runner is not None:
            runner.close()
        pool.shutdown()

    def _run(self, key: str, with_sources: bool) -> None:
        try:
            verifying.run(self._site, key, self._verify, with_sources=with_sources)
        except Exception:
            logger.exception("verifying_failed", mirror=key)  # in a thread nobody else would hear of it

    def _over(self, key: str, future: Future[None]) -> None:
        self._places.release()
        if future.cancelled():
            verifying.drop(self._site, key)

    def _verify(self, arguments: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            self._runner = self._runner or Slots(1, "blendex.units")
        self._runner.start(Call("blendex.units.verify:run", arguments, MEMORY, verifying.SECONDS))
        outcome = self._runner.outcomes.get()
        if outcome.result is not None:
            return outcome.result
        if outcome.error is not None:
            raise BlendexError.from_dict(outcome.error)
        raise BlendexError(
            Code.CHILD_DIED, f"verifying was stopped ({outcome.cause}).", next_step="Ask again; see the log."
        )
