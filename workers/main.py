"""One worker process: the claim loop, with a consumer that wakes it, a relay, and a probe beside it."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType

from blendex.builds.loop import ClaimLoop
from blendex.builds.notify import Notifier
from blendex.builds.site import Site
from blendex.catalog.engine import catalog_id
from blendex.observability import logs
from blendex.runtime import activity, heap
from blendex.runtime.slots import Slots
from workers import liveness
from workers.app import create_celery, install_tasks
from workers.consumer import Consumer
from workers.probe import Probe
from workers.relay import Relay

logger = logs.get_logger("blendex.worker")


def run(site: Site, broker_url: str | None) -> None:
    """Work until SIGTERM or SIGINT, then drain.

    The first signal ends claiming; what runs may end within ``drain_seconds``, and is handed back after that. A second
    one hands back at once. A unit that is handed back counts no attempt, and somebody else has it within a second.

    Args:
        site: root and catalog.
        broker_url: where wake-ups come from; None: this worker only polls.
    """
    settings = site.settings
    consumer = relay = probe = None
    notifier = Notifier(site)
    key = catalog_id(site.root.path)
    if broker_url is not None:
        relay = Relay(site.work, create_celery(broker_url, key, patient=False), settings.poll_seconds)
    loop = ClaimLoop(
        site,
        Slots(settings.slots, "blendex.units"),
        classes=settings.classes,
        budget=None if settings.budget_mb is None else settings.budget_mb * 2**20,
        threads=settings.slots + 1,
        relay=None if relay is None else relay.nudge,
    )
    if broker_url is not None:
        receiver = create_celery(broker_url, key, patient=True)
        install_tasks(receiver, loop.wake)
        consumer = Consumer(receiver, settings.classes, loop.worker)
    heap.settle()
    thread = threading.Thread(target=loop.run, name="blendex-claims", daemon=True)

    def beat() -> liveness.Beat:
        return liveness.Beat(activity.identity(os.getpid()), loop.turned, loop.polled, loop.beaten)

    def healthy() -> str:
        return liveness.trouble(beat(), time.monotonic()) if thread.is_alive() else "the claim loop has ended"

    # A handler may run at any instruction: it writes to a pipe, and takes no lock that the interrupted code may hold.
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    os.set_blocking(reading, True)

    def handler(_number: int, _frame: FrameType | None) -> None:
        os.write(writing, b"!")

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handler)
    thread.start()
    teller = liveness.Teller(beat)
    notifier.start()
    for part in (consumer, relay):
        if part is not None:
            part.start()
    if settings.metrics_port is not None:
        probe = Probe(settings.metrics_port, healthy)
    logger.info(
        "worker_started",
        worker=loop.worker,
        classes=settings.classes,
        slots=settings.slots,
        probe=None if probe is None else probe.port,
    )
    threading.Thread(target=_tell_end, args=(thread, writing), daemon=True).start()
    os.read(reading, 1)
    logger.info("worker_draining", worker=loop.worker, seconds=settings.drain_seconds)
    if consumer is not None:
        consumer.stop()
    loop.stop(settings.drain_seconds)
    os.read(reading, 1)  # it ended, or somebody is in a hurry
    loop.stop()
    thread.join(30)
    teller.close()
    notifier.stop()
    for last in (relay, probe):
        if last is not None:
            last.stop() if isinstance(last, Relay) else last.close()
    site.work.engine.dispose()
    logger.info("worker_ended", worker=loop.worker)


def _tell_end(thread: threading.Thread, writing: int) -> None:
    thread.join()
    os.write(writing, b"!!")
