"""The Celery app: its settings, each with its reason, and one wake-up task per class of work.

A message says "there is work in class C" and nothing else. It may be lost, late, doubled or reordered: whoever gets it
asks the catalog, and whoever gets none asks the catalog anyway, a second later. So there are no results, chords,
countdowns, revocations and no remote control; a task takes microseconds and can neither be killed nor time out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery import Celery
from kombu import Exchange, Queue

from blendex.catalog.states import CLASSES
from blendex.observability import metrics

# One message needs milliseconds; one that its receiver took with it into death is delivered again after this.
VISIBILITY_SECONDS = 900


def task_name(work: str) -> str:
    """The name of the wake-up task, and of the queue, of a class of work."""
    return f"blendex.{work}"


def create_celery(broker_url: str, catalog_id: str, *, patient: bool) -> Celery:
    """The app on a broker.

    Args:
        broker_url: redis://…
        catalog_id: whose messages these are: several catalogs may share one Redis.
        patient: a consumer waits for a broker that is away; a sender gives up at once, and sends later.
    """
    app = Celery("blendex", broker=broker_url, backend=None, set_as_current=False)
    options: dict[str, Any] = {
        "global_keyprefix": f"blendex:{catalog_id[:12]}:",
        "visibility_timeout": VISIBILITY_SECONDS,
        "unacked_restore_interval": 10,
        "unacked_restore_throttle": 1,
        # Without a timeout a publish waits for ever on a connection that died without saying so.
        "socket_timeout": 10 if patient else 3,
        "socket_connect_timeout": 3,
        "socket_keepalive": True,
        "health_check_interval": 25,
    }
    if not patient:
        options |= {"max_retries": 0, "interval_start": 0, "interval_step": 0, "interval_max": 0}
    app.conf.update(
        broker_transport_options=options,
        broker_connection_timeout=3,
        broker_connection_retry=True,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        task_queues=[Queue(task_name(work), Exchange(task_name(work)), task_name(work)) for work in CLASSES],
        task_default_queue=task_name("index"),
        task_create_missing_queues=False,
        task_ignore_result=True,
        task_store_errors_even_if_ignored=False,
        task_acks_late=True,
        task_reject_on_worker_lost=False,  # with True, a task that kills its worker does so again and again
        task_serializer="json",
        result_serializer="json",
        accept_content=["json"],
        task_publish_retry=False,
        worker_prefetch_multiplier=1,
        worker_disable_prefetch=True,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        worker_detect_quorum_queues=False,
    )
    return app


def install_tasks(app: Celery, wake: Callable[[], None]) -> None:
    """Give an app its tasks: each calls ``wake``."""

    def install(work: str) -> None:
        @app.task(name=task_name(work))  # type: ignore[untyped-decorator]
        def woken() -> None:
            metrics.WAKES_RECEIVED.labels(work).inc()
            wake()

    for work in CLASSES:
        install(work)
    app.finalize()


def queue_length(app: Celery, work: str) -> int:
    """Messages that wait in the queue of a class."""
    with app.connection_for_write() as connection:
        channel = connection.default_channel
        return int(channel._size(task_name(work)))  # what a passive declaration answers, without its 404


def send_wake(app: Celery, work: str) -> None:
    """Tell that there is work in a class."""
    app.send_task(task_name(work), queue=task_name(work), retry=False, ignore_result=True)
    metrics.WAKES_SENT.labels(work).inc()
