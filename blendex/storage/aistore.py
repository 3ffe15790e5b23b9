"""AIStore: its objects as sources, read one by one or in batches.

The token is version and checksum, which listing, HEAD and every GET tell alike. Of an object that lives in a cloud
bucket only the version or the cloud's ETag counts: the checksum is another one before and after the cluster fetched it.
There is no conditional GET, so it is every response's own token that is compared.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from itertools import islice
from typing import Any

from blendex.errors import BlendexError
from blendex.storage.ais_sdk import Sdk
from blendex.storage.batch import Batches
from blendex.storage.driver import Body, Listed, parse_range, token
from blendex.storage.endpoint import Endpoint
from blendex.storage.failures import StoreFailure, Trouble
from blendex.storage.interface import Stat
from blendex.storage.objects import ObjectStorage
from blendex.storage.profiles import Place, Profile
from blendex.storage.reader import OpenedObject

# Sources that are looked at together for batches: a unit has at most so many.
PART = 512
# What a checksum is by its length, where a listing does not say.
_BY_LENGTH = {8: "crc32c", 16: "xxhash2", 32: "md5", 64: "sha256", 128: "sha512"}


class AisDriver:
    """One cluster, by single requests."""

    lists = lists_from = True

    def __init__(self, profile: Profile) -> None:
        self.sdk = Sdk(profile)

    def head(self, place: Place) -> Stat:
        """One HEAD."""
        attributes = self.sdk.head(place.scheme, place.bucket, place.key)
        return _of_attributes(place, attributes.size, attributes, attributes.present)

    def get(self, place: Place, start: int, stop: int | None, expect: Stat | None) -> Body:
        """One GET, of a range where less than all is wanted."""
        wanted = None
        if start or stop is not None:
            wanted = f"bytes={start}-" if stop is None else f"bytes={start}-{stop - 1}"
        return _AisBody(place, *self.sdk.get(place.scheme, place.bucket, place.key, wanted))

    def page(self, place: Place, after: str, more: str | None, folders: bool) -> Listed:
        """One page of a listing below the key of ``place``."""
        if place.scheme != "ais":
            after = ""  # only listings of AIStore's own buckets begin anywhere
        answer = self.sdk.page(place.scheme, place.bucket, place.key, after, more, folders)
        stats: list[tuple[str, Stat | None]] = []
        names: list[str] = []
        for entry in answer.entries:
            if entry.name.endswith("/"):
                names.append(entry.name)
            else:
                stats.append((entry.name, _of_entry(place._replace(key=entry.name), entry)))
        continues = answer.continuation_token
        return Listed(stats, names, f"{answer.uuid} {continues}" if continues else None)

    def close(self) -> None:
        """End the connections."""
        self.sdk.close()


def _stat(place: Place, size: int, version: str, checksum: str, kind: str, etag: str, present: bool | None) -> Stat:
    remote = place.scheme != "ais"
    first = version or (etag if remote else "")
    second = "" if remote else checksum
    kind = kind or _BY_LENGTH.get(len(checksum), "")
    return Stat(
        address=place.address,
        size=size,
        token=token(size, "ais", first, second),
        mtime_ns=0,
        changed_ns=0,
        weak=not (first or second),
        checksum=(kind, checksum) if checksum and kind not in ("", "none") else None,
        present=present,
    )


def _of_attributes(place: Place, size: int, attributes: Any, present: bool | None) -> Stat:
    etag = str(attributes.custom_metadata.get("ETag", "")) if place.scheme != "ais" else ""
    kind, value = attributes.checksum_type, attributes.checksum_value
    return _stat(place, size, attributes.obj_version, value, kind, etag, present)


def _of_entry(place: Place, entry: Any) -> Stat | None:
    if not entry.is_ok():
        return None
    if place.scheme != "ais" and not entry.version:
        return None  # HEAD tells the ETag
    return _stat(place, entry.size, entry.version, entry.checksum, "", "", entry.is_cached())


class _AisBody:
    def __init__(self, place: Place, raw: Any, attributes: Any) -> None:
        self._raw = raw
        self.status = int(raw.status)
        self.content_range = raw.headers.get("Content-Range")
        length = raw.headers.get("Content-Length")
        self.length = int(length) if length is not None else None
        found = parse_range(self.content_range) if self.status == 206 else None
        self.total = found[2] if found else self.length or 0
        self.stat = _of_attributes(place, self.total, attributes, None)
        self._left = self.length

    def read(self, count: int) -> bytes:
        """Some bytes; raises StoreFailure when the body broke."""
        return read_raw(self._raw, count)

    def close(self) -> None:
        """Let the connection go; one whose body is not read to its end is of no further use."""
        self._raw.close()
        self._raw.release_conn()


def read_raw(raw: Any, count: int) -> bytes:
    """Some bytes of a raw body.

    Raises:
        StoreFailure: BROKEN.
    """
    from urllib3.exceptions import HTTPError

    try:
        data: bytes = raw.read(count)
    except (HTTPError, OSError) as error:
        raise StoreFailure(Trouble.BROKEN, type(error).__name__) from None
    return data


class AisStorage(ObjectStorage):
    """Sources of one cluster."""

    def __init__(self, endpoint: Endpoint, driver: AisDriver) -> None:
        super().__init__(endpoint)
        self.batches = Batches(endpoint, driver.sdk)

    def open_many(self, items: Iterable[tuple[str, bool]]) -> Iterator[OpenedObject | BlendexError]:
        """Each object in order: small ones that are wanted whole by batches, where these are quicker."""
        source = iter(items)
        while part := list(islice(source, PART)):
            wanted = [address for address, whole in part if whole]
            if self.batches.wanted(len(wanted)):
                yield from self._with_batches(part, wanted)
            else:
                yield from super().open_many(part)

    def _with_batches(self, part: list[tuple[str, bool]], wanted: list[str]) -> Iterator[OpenedObject | BlendexError]:
        stats = dict(zip(wanted, self.stat_many(wanted), strict=True))
        entries = [
            (self._place(address), stat)
            for address, stat in stats.items()
            if isinstance(stat, Stat) and self.batches.fits(stat)
        ]
        ready: dict[str, OpenedObject | BlendexError] = {}
        groups = self.batches.read(entries)
        inside = {place.address for place, _ in entries}
        pool = self.endpoint.pool()
        alone: dict[str, Future[OpenedObject]] = {}
        turns: deque[tuple[str, bool]] = deque(item for item in part if item[0] not in inside)
        for address, whole in part:
            while turns and len(alone) < 2 * self.endpoint.profile.parallel:
                next_address, next_whole = turns.popleft()
                alone[next_address] = pool.submit(self._open_ahead, next_address, next_whole)
            while address in inside and address not in ready and (group := next(groups, None)) is not None:
                again = {
                    place.address: pool.submit(self._open_ahead, place.address, True)
                    for (place, _), data in group
                    if data is None
                }
                for (place, stat), data in group:
                    if data is None:
                        ready[place.address] = _result(again[place.address])
                    else:
                        self._opens(place.address)
                        ready[place.address] = OpenedObject(self.endpoint, place, self._judged(stat), data=data)
            if address in ready:
                yield ready.pop(address)
            elif address in alone:
                yield _result(alone.pop(address))
            else:  # named twice
                yield self._again(address, whole)

    def _again(self, address: str, whole: bool) -> OpenedObject | BlendexError:
        try:
            return self.open(address, whole=whole)
        except BlendexError as error:
            return error


def _result(task: Future[OpenedObject]) -> OpenedObject | BlendexError:
    try:
        return task.result()
    except BlendexError as error:
        return error
