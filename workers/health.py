"""What can be said of a broker by asking it: latency, version, what it does when it is full, what waits in it."""

from __future__ import annotations

import time
from collections.abc import Iterator

from redis import Redis
from redis.exceptions import RedisError, ResponseError

from blendex.catalog.states import CLASSES
from blendex.observability.diagnosis import Diagnosis, median_ms
from workers.app import create_celery, queue_length

ROUNDS = 9
SLOW_MS = 20.0
OLDEST = 6
# A class has at most MOST_MESSAGES per relay in its queue; more than this means that nobody takes any.
MANY_MESSAGES = 200


def check(broker_url: str, catalog_id: str | None) -> Iterator[Diagnosis]:
    """Every check of a broker; queues are looked at when the catalog they belong to is known."""
    client = Redis.from_url(broker_url, socket_timeout=5, socket_connect_timeout=5)
    try:
        taken = []
        for _ in range(ROUNDS):
            begun = time.perf_counter()
            client.ping()
            taken.append(time.perf_counter() - begun)
        spent = median_ms(taken)
        slow = spent > SLOW_MS
        yield Diagnosis(
            "latency",
            "warning" if slow else "ok",
            f"a message takes {spent:.2f} ms.",
            "Run workers nearer to the broker." if slow else "",
        )
        yield _version(str(client.info("server")["redis_version"]))
        yield _policy(client)
        if catalog_id is not None:
            yield _queues(broker_url, catalog_id)
    except (RedisError, OSError) as error:
        yield Diagnosis(
            "connect",
            "wrong",
            f"it does not answer: {type(error).__name__}: {error}",
            "Look at BLENDEX_BROKER_URL, whether Redis runs, and whether a firewall or network policy is between. "
            "Builds go on without it, by polling.",
        )
    finally:
        client.close()


def _version(version: str) -> Diagnosis:
    if int(version.partition(".")[0]) < OLDEST:
        return Diagnosis("version", "warning", f"Redis {version} is not tested.", f"Use Redis {OLDEST} or newer.")
    return Diagnosis("version", "ok", f"Redis {version}.")


def _policy(client: Redis) -> Diagnosis:
    try:
        found = client.config_get("maxmemory-policy")["maxmemory-policy"]
    except ResponseError as error:  # managed ones do not tell
        return Diagnosis("policy", "skipped", f"it does not tell its policy ({error}).", "It should be noeviction.")
    policy = found.decode() if isinstance(found, bytes) else found
    if policy != "noeviction":
        return Diagnosis(
            "policy",
            "wrong",
            f"when it is full it drops what others wrote ({policy}).",
            "Set maxmemory-policy to noeviction: a wake-up that is dropped costs a poll, and nobody is told.",
        )
    return Diagnosis("policy", "ok", "when it is full it refuses, and drops nothing.")


def _queues(broker_url: str, catalog_id: str) -> Diagnosis:
    app = create_celery(broker_url, catalog_id, patient=False)
    lengths = {work: queue_length(app, work) for work in CLASSES}
    app.close()
    says = ", ".join(f"{work} {length}" for work, length in lengths.items()) + " messages wait."
    if crowded := [work for work, length in lengths.items() if length > MANY_MESSAGES]:
        return Diagnosis(
            "queues", "warning", says, f"Nobody takes those of {', '.join(crowded)}: start a worker of that class."
        )
    return Diagnosis("queues", "ok", says)
