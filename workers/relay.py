"""The relay: tells workers of work after the transaction that made it, from its outbox rows.

A row is read, told, and then removed: a relay that dies between tells twice, and never forgets. Any number of relays
may run; api processes and workers each have one. What is told is bounded: a class has at most a few messages in its
queue, however many units wait, since a worker that is busy claims the next unit by itself.
"""

from __future__ import annotations

import threading

from celery import Celery
from kombu.exceptions import OperationalError as BrokerError
from redis.exceptions import RedisError

from blendex.catalog import builds, dialect, units
from blendex.catalog.engine import UnitOfWork
from blendex.observability import logs, metrics
from workers.app import queue_length, send_wake

# Messages in the queue of one class, per relay. More idle workers than these find the work by polling.
MOST_MESSAGES = 8
MOST_PAUSE = 5.0

logger = logs.get_logger("blendex.relay")


class Relay:
    """Tells one broker of one catalog's work.

    Args:
        work: the catalog.
        app: sends; must not be patient.
        poll_seconds: how often the outbox is looked at when nobody nudges.
    """

    def __init__(self, work: UnitOfWork, app: Celery, poll_seconds: float) -> None:
        self._work = work
        self._app = app
        self._poll = poll_seconds
        self._nudge = threading.Event()
        self._stop = threading.Event()
        self.thread = threading.Thread(target=self._run, name="blendex-relay", daemon=True)

    def start(self) -> None:
        """Begin, in a thread."""
        self.thread.start()

    def nudge(self) -> None:
        """A transaction was committed that may have left outbox rows."""
        self._nudge.set()

    def stop(self) -> None:
        """End, after what is being told."""
        self._stop.set()
        self._nudge.set()
        self.thread.join(MOST_PAUSE)

    def _run(self) -> None:
        pause = self._poll
        while not self._stop.is_set():
            try:
                self.tell()
                pause = self._poll
            except dialect.AWAY as error:
                metrics.DATABASE_AWAY.inc()
                logger.warning("database_away", error=type(error).__name__)
                pause = min(pause * 2, MOST_PAUSE)
            except (BrokerError, RedisError, OSError) as error:
                metrics.WAKES_FAILED.inc()
                logger.warning("broker_away", error=type(error).__name__)
                pause = min(pause * 2, MOST_PAUSE)
                self._stop.wait(pause)  # a nudge cannot mend it
            self._nudge.wait(pause)
            self._nudge.clear()

    def tell(self) -> int:
        """Tell what the outbox holds now; how many messages were sent."""
        with self._work.read() as session:
            rows = builds.outbox(session)
            waiting = units.waiting(session) if rows else {}
        if not rows:
            return 0
        sent = 0
        for work in sorted({work for _, work in rows}):
            count, _ = waiting.get(work, (0, 0.0))
            for _ in range(min(count, MOST_MESSAGES) - queue_length(self._app, work)):
                send_wake(self._app, work)
                sent += 1
        with self._work.write() as session:
            builds.told(session, [number for number, _ in rows])
        return sent
