"""Batches: many whole objects in one answer of AIStore, taken apart and checked by ourselves.

A batch is a tar whose members come in the order of the request. The server says 200 before it knows whether it can
serve it all, so an answer proves nothing: it may be shorter and well-formed (the most common fault), hold markers for
what is missing, or empty files. Every entry is taken only if its name is the next one asked for, its length the one
that the store told before, and its checksum, where one was told, right; whatever is not taken is read by itself.

What goes wrong is remembered for the endpoint, in this process: a server without batches for ten minutes, one whose
batches broke twice in a row for five, one that answered something else than was asked for thirty.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from blendex.storage.ais_sdk import Sdk
from blendex.storage.checksums import matches
from blendex.storage.endpoint import Endpoint
from blendex.storage.failures import StoreFailure, Trouble
from blendex.storage.interface import Stat
from blendex.storage.profiles import Place

Entry = tuple[Place, Stat]
Group = list[tuple[Entry, bytes | None]]

MOST_ENTRIES = 256
MOST_BYTES = 32 * 2**20
LARGEST = 2**20  # what is larger gains nothing from company
FEWEST = 16
PROBE = 2  # objects of the first batch to an endpoint, and of the first one after a rest
IN_FLIGHT = 2
DEADLINE = 120.0
WAITS = (2.0, 30.0)  # seconds, after 429
UNABLE_SECONDS, BREAK_SECONDS, WRONG_SECONDS = 600.0, 300.0, 1800.0
BREAKS = 2
# Per entry on the server and on the wire, and the first byte of a batch before one was measured.
ENTRY_SECONDS = 50e-6
FIRST_BYTE = 0.1
BLOCK = 512
MARKER = "__404__/"


@dataclass(slots=True)
class _Memory:
    """What this process knows of the batches of one endpoint."""

    closed_until: float = 0.0
    broken: int = 0
    first_byte: float = FIRST_BYTE
    proved: bool = False
    entries: int = MOST_ENTRIES


_memories: dict[str, _Memory] = {}


def forget() -> None:
    """Forget what was learnt of all endpoints."""
    _memories.clear()


class WrongError(Exception):
    """The answer is to another question: other names, another order, other lengths."""


class Batches:
    """Batches to one endpoint.

    Args:
        endpoint: for its figures, threads and individual pace.
        sdk: sends them.
        sleep: waits.
    """

    def __init__(self, endpoint: Endpoint, sdk: Sdk, sleep: Callable[[float], None] = time.sleep) -> None:
        self._endpoint = endpoint
        self._sdk = sdk
        self._sleep = sleep
        profile = endpoint.profile
        self._memory = _memories.setdefault(f"{profile.name} {profile.endpoint}", _Memory())

    @property
    def open(self) -> bool:
        """Whether batches are sent at this time."""
        return time.monotonic() >= self._memory.closed_until

    def wanted(self, count: int, size: int = 50_000) -> bool:
        """Whether so many objects are better read by batches.

        Individual reads take a request each, ``parallel`` at a time; a batch takes one, and its server's time to
        begin. ``mode`` batch says yes to all that are more than one, as training would.
        """
        mode = self._endpoint.profile.mode
        if mode == "individual" or count < 2 or not self.open:
            return False
        if mode == "batch":
            return True
        meter = self._endpoint.meter
        parallel = self._endpoint.gate.limit
        alone = -(-count // parallel) * meter.latency
        together = meter.latency + self._memory.first_byte + count * ENTRY_SECONDS
        rate = max(meter.stream, 1.0)
        alone += count * size / (meter.together or rate * min(parallel, 4))
        together += count * (size + BLOCK) / rate
        return count >= FEWEST and together < alone

    def fits(self, stat: Stat) -> bool:
        """Whether an object goes into a batch: small, and in the cluster."""
        return 0 < stat.size <= LARGEST and stat.present is not False

    def _groups(self, entries: list[Entry]) -> Iterator[list[Entry]]:
        """Entries of one bucket each, in order, within the limits of a batch."""
        group: list[Entry] = []
        size = 0
        most = self._memory.entries if self._memory.proved else PROBE
        for entry in entries:
            place, stat = entry
            other = group and (place.bucket, place.scheme) != (group[0][0].bucket, group[0][0].scheme)
            if group and (other or len(group) >= most or size + stat.size > MOST_BYTES):
                yield group
                group, size = [], 0
                most = self._memory.entries
            group.append(entry)
            size += stat.size
        if group:
            yield group

    def read(self, entries: list[Entry]) -> Iterator[Group]:
        """Read objects, a batch at a time, in order; None for each that must be read by itself."""
        groups = self._groups(entries)
        flight: deque[Future[Group]] = deque()
        while True:
            while len(flight) < (IN_FLIGHT if self._memory.proved else 1):
                group = next(groups, None)
                if group is None:
                    break
                if not self.open:
                    done: Future[Group] = Future()
                    done.set_result([(entry, None) for entry in group])
                    flight.append(done)
                else:
                    flight.append(self._endpoint.pool().submit(self._one, group))
            if not flight:
                return
            yield flight.popleft().result()

    def _one(self, group: list[Entry]) -> Group:
        """One batch: what of it was proved right."""
        got: dict[int, bytes] = {}
        missing: list[int] = []
        place = group[0][0]
        name = self._endpoint.profile.name
        tries = 0
        while True:
            missing.clear()
            try:
                self._body(group, got, missing)
            except WrongError:
                got.clear()
                self._close(WRONG_SECONDS, f"GetBatch of {name} answered other objects than were asked for; not used.")
            except StoreFailure as failure:
                if failure.trouble is Trouble.BUSY and failure.status == 429 and tries < 2 and not got:
                    tries += 1
                    self._memory.entries = max(FEWEST, self._memory.entries // 2)
                    wait = max(failure.wait or 0.0, WAITS[0] * tries * random.uniform(1.0, 1.5))  # noqa: S311 -- jitter
                    wait = min(wait, WAITS[1], self._endpoint.profile.patience_seconds / 4)
                    self._sleep(wait)
                    continue
                if failure.status is not None and failure.status >= 500 and failure.status != 501 and tries < 1:
                    tries += 1
                    continue  # through the proxy, which may choose another target
                self._failed(failure, name, len(got), len(group))
            else:
                self._memory.broken = 0
                self._memory.proved = True
            break
        if missing:
            self._endpoint.figures.note(
                f"Objects at {name} ({place.scheme}://{place.bucket}) are readable one by one but not through "
                "GetBatch, usually because they are not yet in the cluster: prefetch them, or train with "
                "USE_AIS_INDIVIDUAL_GETS=true.",
                len(missing),
            )
        return [(entry, got.get(number)) for number, entry in enumerate(group)]

    def _failed(self, failure: StoreFailure, name: str, good: int, count: int) -> None:
        note = self._endpoint.figures.note
        if failure.trouble in (Trouble.UNABLE, Trouble.MISSING) or failure.status == 400:
            self._close(
                UNABLE_SECONDS, f"{name} has no usable GetBatch ({failure.detail}). Reading objects one by one."
            )
            return
        if failure.trouble is Trouble.BUSY and failure.status == 429:
            self._endpoint.gate.pressure()
            note(f"{name} is busy ({failure.detail}); slowed down.")
        elif good:
            note(f"A batch of {name} stopped early ({failure.detail}); the rest of it was read individually.")
        else:
            note(f"GetBatch of {name} failed ({failure.detail}); used individual reads.")
        self._memory.broken += 1
        if self._memory.broken >= BREAKS:
            self._close(BREAK_SECONDS, f"GetBatch of {name} failed twice in a row; not used for five minutes.")

    def _close(self, seconds: float, note: str) -> None:
        self._memory.closed_until = time.monotonic() + seconds
        self._memory.broken = 0
        self._memory.proved = False  # what went wrong once is tried with little first
        self._endpoint.figures.note(note)

    def _body(self, group: list[Entry], got: dict[int, bytes], missing: list[int]) -> None:
        """Send one batch and take its answer apart.

        Raises:
            StoreFailure: it failed, or ended early; ``got`` holds what came before.
            WrongError: it is another answer.
        """
        place = group[0][0]
        began = time.monotonic()
        with self._endpoint.gate.turn():
            self._endpoint.counted(requests=1)
            raw = self._sdk.batch(place.scheme, place.bucket, [(item.key, None) for item, _ in group])
            try:
                members = Members(raw, began + DEADLINE, self._endpoint)
                for number, (item, stat) in enumerate(group):
                    header = members.next()
                    if number == 0:
                        self._memory.first_byte += 0.3 * (time.monotonic() - began - self._memory.first_byte)
                    if header is None:
                        raise StoreFailure(Trouble.BROKEN, f"ended after {number} of {len(group)} objects")
                    name, size = header
                    expected = f"{item.bucket}/{item.key}"
                    if name == MARKER + expected:
                        members.data(size)
                        missing.append(number)
                        continue
                    if name != expected:
                        raise WrongError
                    data = members.data(size)
                    if size == 0:
                        missing.append(number)  # empty, though the store told a size
                    elif size != stat.size:
                        raise WrongError
                    elif stat.checksum is None or matches(data, *stat.checksum):
                        got[number] = data
                if members.next() is not None:
                    raise WrongError
            finally:
                raw.close()
                raw.release_conn()


class Members:
    """The members of a tar that is still coming: our own reader, which knows an end from a cut.

    Args:
        raw: the body.
        deadline: of all of it, monotonic.
        endpoint: counts the bytes.
    """

    def __init__(self, raw: Any, deadline: float, endpoint: Endpoint) -> None:
        self._raw = raw
        self._deadline = deadline
        self._endpoint = endpoint
        self._buffer = bytearray()

    def _take(self, count: int) -> bytes:
        from blendex.storage.aistore import read_raw

        while len(self._buffer) < count:
            if time.monotonic() > self._deadline:
                raise StoreFailure(Trouble.BROKEN, "a batch slower than its deadline")
            data = read_raw(self._raw, 256 * 1024)
            if not data:
                break
            self._endpoint.counted(bytes_read=len(data))
            self._buffer += data
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    def data(self, size: int) -> bytes:
        """The content of the member whose header was read last."""
        whole = self._take(size + -size % BLOCK)
        if len(whole) < size:
            raise StoreFailure(Trouble.BROKEN, "an archive that is cut off")
        return whole[:size]

    def next(self) -> tuple[str, int] | None:
        """Name and size of the next member; None at the end, with or without its mark."""
        long_name: str | None = None
        while True:
            header = self._take(BLOCK)
            if not header or header == bytes(BLOCK):
                return None
            if len(header) < BLOCK:
                raise StoreFailure(Trouble.BROKEN, "an archive that is cut off")
            kind, size = _header(header)
            if kind == b"x":
                long_name = _pax_path(self.data(size)) or long_name
            elif kind == b"L":
                long_name = self.data(size).rstrip(b"\0").decode("utf-8", "surrogateescape")
            elif kind == b"g":
                self.data(size)
            else:
                return (long_name if long_name is not None else _name(header)), size


def _header(header: bytes) -> tuple[bytes, int]:
    if sum(header[:148]) + sum(header[156:]) + 8 * 32 != _octal(header[148:156]):
        raise WrongError
    return header[156:157], _octal(header[124:136])


def _octal(field: bytes) -> int:
    if field[:1] == b"\x80":
        return int.from_bytes(field[1:], "big")
    try:
        return int(field.rstrip(b" \0").lstrip() or b"0", 8)
    except ValueError:
        raise WrongError from None


def _name(header: bytes) -> str:
    name = header[:100].rstrip(b"\0")
    prefix = header[345:500].rstrip(b"\0")
    if header[257:263] == b"ustar\0" and prefix:
        name = prefix + b"/" + name
    return name.decode("utf-8", "surrogateescape")


def _pax_path(payload: bytes) -> str | None:
    found = None
    at = 0
    while at < len(payload):
        length, _, _ = payload[at : at + 20].partition(b" ")
        if not length.isdigit() or int(length) <= len(length):
            return found
        record = payload[at + len(length) + 1 : at + int(length)]
        key, _, value = record.rstrip(b"\n").partition(b"=")
        if key == b"path":
            found = value.decode("utf-8", "surrogateescape")
        at += int(length)
    return found
