"""Patience with one endpoint: how many requests at a time, how often and how long one is tried.

Tries belong to one request of ours, whatever answers it. A transient failure is tried five times with growing, jittered
waits; a megabyte of progress gives all tries back. Pressure (429, 503) halves what is under way and waits as long as
the store asks, or longer each time. Nothing is tried past the profile's patience: a slot is not held for a store that
is away.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from blendex.errors import BlendexError, Code
from blendex.storage.failures import DamagedError, StoreFailure, Trouble
from blendex.storage.profiles import Place, Profile

MOST_TRIES = 5
FIRST_WAIT = 0.1
LONGEST_WAIT = 8.0
LONGEST_ASKED = 30.0
# A connection that breaks after every few bytes makes no progress.
PROGRESS = 2**20
# After so many answers without pressure one more request at a time is dared.
CALM = 64

_WAITS = frozenset({Trouble.BROKEN, Trouble.BUSY, Trouble.CONFLICT, Trouble.DOWN})


class Gate:
    """At most so many requests at a time, halved under pressure and raised again one by one."""

    def __init__(self, most: int) -> None:
        self.most = self.limit = max(1, most)
        self._busy = 0
        self._calm = 0
        self._change = threading.Condition()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Waits for a place."""
        with self._change:
            self._change.wait_for(lambda: self._busy < self.limit)
            self._busy += 1
        try:
            yield
        finally:
            with self._change:
                self._busy -= 1
                self._change.notify()

    def pressure(self) -> None:
        """The store asked for patience."""
        with self._change:
            self.limit = max(1, self.limit // 2)
            self._calm = 0

    def calm(self) -> None:
        """It answered."""
        with self._change:
            self._calm += 1
            if self._calm >= CALM and self.limit < self.most:
                self._calm = 0
                self.limit += 1
                self._change.notify()


class Tries:
    """The tries of one request."""

    def __init__(self, profile: Profile, gate: Gate, sleep: Callable[[float], None] = time.sleep) -> None:
        self._profile = profile
        self._gate = gate
        self._sleep = sleep
        self._began = time.monotonic()
        self._failed = 0
        self._came = 0
        self.waited = 0

    def progress(self, count: int) -> None:
        """Bytes came: after enough of them, what failed before does not count any more."""
        self._came += count
        if self._came >= PROGRESS:
            self._came = self._failed = 0
            self._began = time.monotonic()

    def after(self, failure: StoreFailure, place: Place) -> None:
        """Returns when another try is due.

        Raises:
            BlendexError: none is.
        """
        trouble = failure.trouble
        self._failed += 1
        if trouble is Trouble.BUSY:
            self._gate.pressure()
        left = self._profile.patience_seconds - (time.monotonic() - self._began)
        more = MOST_TRIES if trouble is Trouble.BROKEN else 2 * MOST_TRIES
        wait = min(LONGEST_WAIT, FIRST_WAIT * 2 ** (self._failed - 1)) * random.uniform(0.5, 1.0)  # noqa: S311 -- jitter
        if failure.wait is not None:
            wait = max(wait, min(failure.wait, LONGEST_ASKED))
        if trouble not in _WAITS or self._failed > more or wait > left:
            raise told(failure, place, self._profile) from None
        self.waited += 1
        self._sleep(wait)


def damaged(place: Place, kind: str) -> DamagedError:
    """The bytes of an object are not those that its store means."""
    code, message, next_step = _TEXTS[Trouble.DAMAGED]
    return DamagedError(code, message.format(detail=f"its {kind}"), file=place.address, next_step=next_step)


def told(failure: StoreFailure, place: Place, profile: Profile) -> BlendexError:
    """What people are told of a failure that nobody tries again."""
    code, message, next_step = _TEXTS[failure.trouble]
    words = {"profile": profile.name, "detail": failure.detail, "bucket": place.bucket, "kind": profile.kind}
    return BlendexError(code, message.format(**words), file=place.address, next_step=next_step.format(**words))


_TEXTS: dict[Trouble, tuple[Code, str, str]] = {
    Trouble.MISSING: (
        Code.SOURCE_MISSING,
        "object not found at {profile} ({detail}).",
        "Check bucket and key, and which profile and view the build uses.",
    ),
    Trouble.DENIED: (
        Code.STORE_DENIED,
        "no permission for bucket {bucket} at {profile} ({detail}): credentials are missing, expired, or may not read.",
        "Give the profile {profile} credentials that may list and read the bucket; `blendex doctor` checks them.",
    ),
    Trouble.CHANGED: (
        Code.SOURCE_CHANGED,
        "the object changed while it was being indexed ({detail}).",
        "Retry when nobody writes to it any more.",
    ),
    Trouble.BROKEN: (
        Code.STORE_BROKEN,
        "the connection to {profile} kept breaking ({detail}).",
        "Retry the build; if it comes again, look after the store and the network between.",
    ),
    Trouble.BUSY: (
        Code.STORE_BUSY,
        "{profile} is busy ({detail}), and stayed so though it was asked less.",
        "Retry later, or lower `parallel` of the profile {profile}.",
    ),
    Trouble.CONFLICT: (
        Code.STORE_BUSY,
        "{profile} is still fetching the object from its backend ({detail}).",
        "Prefetch the objects into the cluster, then retry the build.",
    ),
    Trouble.DOWN: (
        Code.STORE_UNREACHABLE,
        "{profile} cannot be reached ({detail}).",
        "Check the endpoint of the profile {profile}, and that workers can reach it; `blendex doctor` does.",
    ),
    Trouble.SETTINGS: (
        Code.STORE_SETTINGS,
        "{profile} cannot be used as it is set up: {detail}.",
        "Run `blendex doctor` where the workers run: it says what to set.",
    ),
    Trouble.FULL: (
        Code.STORE_BROKEN,
        "{profile} has no space to fetch this remote object ({detail}).",
        "Free space in the cluster, then retry the build.",
    ),
    Trouble.WRONG: (
        Code.STORE_BROKEN,
        "{profile} answers something else than was asked: {detail}.",
        "Look for a proxy or a wrong address between the workers and the store; `blendex doctor` tests ranges.",
    ),
    Trouble.DAMAGED: (
        Code.STORE_BROKEN,
        "checksum mismatch, twice: {detail}.",
        "Have the store verify the object, or upload it again.",
    ),
    Trouble.UNABLE: (
        Code.STORE_BROKEN,
        "{profile} does not support what is needed ({detail}).",
        "Check that the endpoint is a store of kind {kind}.",
    ),
    Trouble.SDK: (
        Code.STORE_SDK,
        "{detail}",
        "Install the extra that the profile needs: pip install 'blendex[{kind}]' or 'blendex[all]'.",
    ),
}
