"""Is an endpoint profile fit for work, from where this process stands? What ``blendex doctor`` asks and says.

Each check says what it found and what to set. The checks send the requests that reading sends, through the same code.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import partial
from urllib.parse import urlsplit

from blendex.errors import BlendexError
from blendex.storage import hosts
from blendex.storage.endpoints import open_profile
from blendex.storage.failures import StoreFailure, Trouble
from blendex.storage.interface import Figures, Stat
from blendex.storage.objects import ObjectStorage
from blendex.storage.patience import told
from blendex.storage.profiles import Place, Profile

# Signatures of S3 are refused from 15 minutes on; a minute is what a clock that is looked after stays below.
SKEW_SECONDS = 60.0
# Objects of a listing that are looked at to find a few that can be read.
LOOKED_AT = 64


@dataclass(frozen=True, slots=True)
class Check:
    """What one check found. ``ok`` None: it could not be made."""

    profile: str
    name: str
    ok: bool | None
    detail: str
    next_step: str = ""

    def as_dict(self) -> dict[str, object]:
        """The JSON form."""
        return {
            "profile": self.profile, "check": self.name, "ok": self.ok, "detail": self.detail,
            "next_step": self.next_step,
        }  # fmt: skip


@dataclass
class _Findings:
    profile: Profile
    checks: list[Check] = field(default_factory=list)

    def add(self, name: str, ok: bool | None, detail: str, next_step: str = "") -> None:
        self.checks.append(Check(self.profile.name, name, ok, detail, next_step))

    def failed(self, name: str, error: BlendexError) -> None:
        self.add(name, False, error.message, error.next_step)

    def attempt(self, name: str, call: Callable[[], str]) -> bool:
        try:
            self.add(name, True, call())
        except BlendexError as error:
            self.failed(name, error)
            return False
        return True


def examine(profile: Profile, urls: Iterable[tuple[str, str, str]] = ()) -> list[Check]:
    """Check one profile: the SDK, reachability, clock, and for each bucket listing, reading, ranges and batches.

    Args:
        profile: it.
        urls: (scheme, bucket, prefix) to look at besides the buckets that the profile names without a pattern.
    """
    found = _Findings(profile)
    here = Place(profile.name, profile.schemes[0], "", "")
    try:
        store = open_profile(profile, Figures())
    except StoreFailure as failure:
        found.failed("sdk", told(failure, here, profile))
        return found.checks
    if profile.kind == "http":
        try:
            _web(found, store, [Place(profile.name, *url) for url in urls])
        finally:
            store.close()
        return found.checks
    found.add("sdk", True, _sdk(store))
    try:
        if _reach(found):
            named = [
                (profile.schemes[0], bucket, "")
                for bucket in profile.buckets
                if not any(mark in bucket for mark in "*?[")
            ]
            places = dict.fromkeys([*urls, *named])
            for scheme, bucket, prefix in places:
                _bucket(found, store, Place(profile.name, scheme, bucket, prefix))
            if not places:
                found.add(
                    "read", None, "the profile names buckets by patterns only.",
                    f"Name one: blendex doctor {profile.schemes[0]}://BUCKET/PREFIX",
                )  # fmt: skip
    finally:
        store.close()
    return found.checks


def _web(found: _Findings, store: ObjectStorage, places: list[Place]) -> None:
    """Whether the hosts of a profile may be connected to, and whether files there can be read in ranges."""
    profile = found.profile
    for scheme, start, _ in profile.routes():
        host, _, key = start.partition("/")
        try:
            hosts.reached(profile, scheme, host)
        except StoreFailure as failure:
            found.failed("reach", told(failure, Place(profile.name, scheme, host, key), profile))
        else:
            found.add("reach", True, f"{host} answers")
    for place in places:
        try:
            stat = store.endpoint.head(place)
        except BlendexError as error:
            found.failed("read", error)
            continue
        found.add("read", True, f"{place.url} has {stat.size} bytes")
        if stat.weak:
            found.add(
                "token", False, "the server tells no strong ETag: nothing proves that a file did not change.",
                "Have it send strong ETags, or set `trust_size` of the profile: Last-Modified and size count then.",
            )  # fmt: skip
        if stat.size > 1:
            found.attempt("range", partial(_range, store, place, stat))
    if not places:
        found.add(
            "read", None, "a web server has no listing to find a file by.",
            f"Name one: blendex doctor {profile.prefixes[0]}FILE",
        )  # fmt: skip


def _sdk(store: ObjectStorage) -> str:
    sdk = getattr(store.endpoint.driver, "sdk", None)
    if sdk is not None:
        return f"AIStore SDK {sdk.version}"
    import boto3

    return f"boto3 {boto3.__version__}"


def _reach(found: _Findings) -> bool:
    """Whether somebody speaks HTTP at the endpoint, and what time it is there."""
    import ssl

    import httpx

    profile = found.profile
    endpoint = profile.endpoint or f"https://s3.{profile.region or 'us-east-1'}.amazonaws.com"
    url = endpoint.rstrip("/") + ("/v1/health" if profile.kind == "aistore" else "/")
    headers = {"Authorization": f"Bearer {profile.token}"} if profile.token else {}
    verify: bool | ssl.SSLContext = profile.verify
    try:
        if profile.ca and profile.verify:
            verify = ssl.create_default_context(cafile=profile.ca)
        before = time.time()
        answer = httpx.get(
            url, headers=headers, verify=verify, timeout=profile.connect_seconds + profile.read_seconds, trust_env=False
        )
        after = time.time()
    except (httpx.ConnectError, OSError) as error:
        if "CERTIFICATE" in str(error).upper():
            found.add(
                "reach", False, "the certificate of the endpoint is not trusted.",
                "Set `ca` of the profile to the file of its issuer (AIS_CLIENT_CA).",
            )  # fmt: skip
        else:
            found.add(
                "reach", False, f"nobody answers at {urlsplit(endpoint).netloc} ({type(error).__name__}).",
                "Check `endpoint`, and that this machine may connect to it.",
            )  # fmt: skip
        return False
    except httpx.HTTPError as error:
        found.add(
            "reach", False, f"{urlsplit(endpoint).netloc} does not answer as HTTP ({type(error).__name__}).",
            "Check `endpoint`: scheme and port.",
        )  # fmt: skip
        return False
    found.add("reach", True, f"{urlsplit(endpoint).netloc} answers in {(after - before) * 1000:.0f} ms")
    _clock(found, answer.headers.get("Date"), (before + after) / 2)
    return True


def _clock(found: _Findings, date: str | None, now: float) -> None:
    try:
        there = parsedate_to_datetime(date or "").timestamp()
    except (TypeError, ValueError):
        found.add("clock", None, "the endpoint does not tell its time.")
        return
    skew = now - there
    if abs(skew) <= SKEW_SECONDS:
        found.add("clock", True, "the clocks agree")
        return
    found.add(
        "clock", False, f"this machine is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the store.",
        "Set the clock (NTP): signatures and tokens expire by it.",
    )  # fmt: skip


def _bucket(found: _Findings, store: ObjectStorage, place: Place) -> None:
    endpoint = store.endpoint
    where = f"{place.scheme}://{place.bucket}/{place.key}"
    if not found.profile.serves(place.scheme, place.bucket, place.key):
        found.add(
            "auth", False, f"the profile may not read {where}.", "Add the bucket to `buckets` of the profile.",
        )  # fmt: skip
        return
    try:
        page = endpoint.request(lambda: endpoint.driver.page(place, "", None, False), place)
    except BlendexError as error:
        found.failed("auth", error)
        return
    found.add("auth", True, f"{where} can be listed")
    some = [
        (place._replace(key=key), stat)
        for key, stat in page.stats[:LOOKED_AT]
        if stat is not None and 1 < stat.size < 64 * 2**20
    ]
    if not some:
        found.add("read", None, f"{where} holds no object to try.", "Name a prefix with objects: blendex doctor URL")
        return
    target, stat = some[0]
    if any(item.weak for _, item in some):
        found.add(
            "token", False, "objects have neither version nor checksum: only their size tells whether they changed.",
            "Turn on versioning or checksums of the bucket, or set `trust_size` of the profile.",
        )  # fmt: skip
    found.attempt("read", lambda: _read(store, target, stat))
    found.attempt("range", lambda: _range(store, target, stat))
    batches = getattr(store, "batches", None)
    if batches is not None:
        _batch(found, store, some)


def _read(store: ObjectStorage, place: Place, stat: Stat) -> str:
    answer = store.endpoint.whole(place, stat)
    checksum = answer[0].checksum or stat.checksum if isinstance(answer, tuple) else None
    verified = store.endpoint.compares(checksum)
    return f"{stat.size} bytes, as listed" + (f", {checksum[0]} verified" if checksum and verified else "")


def _range(store: ObjectStorage, place: Place, stat: Stat) -> str:
    with store.endpoint.stream(place, 1, min(stat.size, 5), stat) as stream:
        stream.take(4)
        if stream.cut:
            failure = StoreFailure(Trouble.WRONG, "the endpoint ignores byte ranges")
            raise told(failure, place, store.endpoint.profile)
    return "ranges are honoured"


def _batch(found: _Findings, store: ObjectStorage, some: list[tuple[Place, Stat]]) -> None:
    batches = getattr(store, "batches")  # noqa: B009 -- only AIStore has them
    fit = [entry for entry in some if batches.fits(entry[1])][:2]
    if len(fit) < 2:
        found.add("batch", None, "fewer than two objects lie in the cluster.", "Prefetch a few, or name another URL.")
        return
    before = dict(store.figures.notes)
    good = sum(data is not None for group in batches.read(fit) for _, data in group)
    if good == len(fit):
        found.add("batch", True, "GetBatch serves this bucket: USE_AIS_GET_BATCH=true works")
        return
    notes = [note for note in store.figures.notes if note not in before]
    found.add(
        "batch", False, " ".join(notes) or "GetBatch answers wrongly.",
        "Set `mode` of the profile to individual, and train with USE_AIS_GET_BATCH=true and "
        "USE_AIS_INDIVIDUAL_GETS=true, or with neither.",
    )  # fmt: skip
