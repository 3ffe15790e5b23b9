"""The consuming half of Celery, in a thread: receives wake-ups, for as long as there is a broker to receive from."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from celery import Celery
from celery.worker import state

from blendex.observability import logs
from workers.app import task_name

AGAIN_SECONDS = 5.0

logger = logs.get_logger("blendex.worker")


class Consumer:
    """A Celery worker with the threads pool, one thread being plenty for tasks of microseconds.

    Celery's own worker class is used below its command line: signals, drains and exits belong to our supervisor. It
    waits for a broker that is away; should it end on its own, it is begun again. Nothing depends on it but latency.
    """

    def __init__(self, app: Celery, classes: Sequence[str], name: str) -> None:
        self._app = app
        self._queues = [task_name(work) for work in classes]
        self._name = name
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="blendex-celery", daemon=True)

    def start(self) -> None:
        """Begin, in a thread."""
        state.should_stop = None
        state.should_terminate = None
        self._thread.start()

    def stop(self, seconds: float = 3.0) -> None:
        """End; a connection attempt under way is not waited for."""
        self._stop.set()
        state.should_stop = 0
        self._thread.join(seconds)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                controller: Any = self._app.WorkController(
                    hostname=self._name,
                    pool_cls="threads",
                    concurrency=1,
                    queues=self._queues,
                    without_gossip=True,
                    without_mingle=True,
                    without_heartbeat=True,
                )
                controller.start()
            except Exception:
                logger.exception("consumer_failed")
            if not self._stop.wait(AGAIN_SECONDS):
                logger.warning("consumer_restarted")
