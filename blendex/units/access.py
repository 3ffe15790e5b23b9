"""The access check: members of a few tars, fetched from AIStore as training will fetch them.

Training asks for the members of a minibatch by one streaming batch of (tar, name), or by one GET for each. Whether a
cluster serves the one or the other is no matter of the index, and shows late: objects that are not yet in the cluster
answer a GET and no batch. So a few members that the index knows are asked for both ways, and their lengths compared.
A check that cannot be made says so and hinders nothing.
"""

from __future__ import annotations

import hashlib
import io
import os
import time
from typing import Any

import orjson

from blendex.errors import BlendexError, Code
from blendex.storage.endpoint import Endpoint
from blendex.storage.failures import StoreFailure
from blendex.storage.objects import ObjectStorage
from blendex.storage.profiles import Place, place_of
from blendex.storage.root import Root, replace
from blendex.storage.stores import Stores

# Clusters warm up and forget: what was found counts for so long.
KEPT_SECONDS = 3600.0
SECONDS = 120.0
PER_TAR = 2
HEADER = 8192
LARGEST = 64 * 2**20


def check(root: Root, arguments: dict[str, Any], storage: Stores) -> dict[str, Any] | None:
    """What the access check of a build finds, made now or found from within the hour.

    Args:
        root: where bundles and receipts are.
        arguments: of staging: key, and access (what shall be tried).
        storage: the stores.

    Returns:
        datasets ([{dataset, verdict, members, batch, individual, detail, next_step}, …]) and environment (variables
        for training); a verdict is batch, individual, neither or unknown. None: there is nothing to try.
    """
    wanted = arguments.get("access") or []
    if not wanted:
        return None
    digest = hashlib.sha256(orjson.dumps(wanted)).hexdigest()[:16]
    kept = root.cross_checks(arguments["key"], f"{digest}.access")
    try:
        if time.time() - os.stat(kept).st_mtime < KEPT_SECONDS:
            with open(kept, "rb") as file:
                known: dict[str, Any] = orjson.loads(file.read())
                return known
    except (FileNotFoundError, orjson.JSONDecodeError):
        pass
    until = time.monotonic() + SECONDS
    datasets = [_dataset(root, item, storage, until) for item in wanted]
    found = {"datasets": datasets, "environment": _environment(datasets)}
    replace(kept, orjson.dumps(found))
    return found


def _environment(datasets: list[dict[str, Any]]) -> dict[str, str]:
    """What training needs; nothing of the switches where some dataset cannot be served either way."""
    endpoints = {item["endpoint"] for item in datasets if item["endpoint"]}
    values = {"AIS_ENDPOINT": endpoints.pop()} if len(endpoints) == 1 else {}
    verdicts = {item["verdict"] for item in datasets}
    if verdicts <= {"batch", "individual"}:
        values["USE_AIS_GET_BATCH"] = "true"
        values["USE_AIS_INDIVIDUAL_GETS"] = "true" if "individual" in verdicts else "false"
    return values


def _dataset(root: Root, item: dict[str, Any], storage: Stores, until: float) -> dict[str, Any]:
    found: dict[str, Any] = {
        "dataset": item["dataset"], "verdict": "unknown", "members": 0, "batch": 0, "individual": 0,
        "endpoint": None, "detail": "", "next_step": "",
    }  # fmt: skip
    try:
        members, clusters = _members(root, item["tars"], storage, until)
        if not members:
            found["detail"] = "No member could be chosen in time."
            return found
        if len(clusters) > 1:
            return found | {
                "verdict": "neither", "members": len(members),
                "detail": f"Its tars lie on {len(clusters)} clusters, and training reads from one (AIS_ENDPOINT).",
                "next_step": "Have one cluster serve them all, or make a dataset of those of each.",
            }  # fmt: skip
        store = next(iter(clusters.values()))
        endpoint = store.endpoint
        found["endpoint"] = endpoint.profile.endpoint
        found["members"] = len(members)
        served = _batch(store, members)
        found["batch"] = len(served)
        found["individual"] = sum(_individual(endpoint, store, *member) for member in members)
    except BlendexError as error:
        found["detail"], found["next_step"] = error.message, error.next_step
        return found
    return found | _verdict(found, members, served)


Member = tuple[Place, str, int]
"""A tar, the name of one of its members, and that member's length."""


def _verdict(found: dict[str, Any], members: list[Member], served: set[int]) -> dict[str, str]:
    count = found["members"]
    if found["individual"] < count:
        return {
            "verdict": "neither",
            "detail": f"{count - found['individual']} of {count} members cannot be fetched by a GET with archpath.",
            "next_step": "Check that the cluster holds these tars whole, and that names in them are unique.",
        }
    if found["batch"] == count:
        return {"verdict": "batch", "detail": f"{count} members came by GetBatch as they will in training."}
    cold = next(place for number, (place, _, _) in enumerate(members) if number not in served)
    folder = cold.key.rpartition("/")[0]
    return {
        "verdict": "individual",
        "detail": f"{count - found['batch']} of {count} members came one by one but not through GetBatch.",
        "next_step": f"Train with USE_AIS_INDIVIDUAL_GETS=true, or prefetch the tars: ais prefetch "
        f"{cold.scheme}://{cold.bucket} --prefix '{folder}/'",
    }


def _members(
    root: Root, tars: list[list[Any]], storage: Stores, until: float
) -> tuple[list[Member], dict[str, ObjectStorage]]:
    """A few members that the index knows, by their headers, and the clusters that they lie on, by endpoint."""
    members: list[Member] = []
    clusters: dict[str, ObjectStorage] = {}
    for _, address, name, offset, _, records in tars:
        if time.monotonic() > until:
            break
        found = storage.of(address)
        store = getattr(found, "store", found)
        if not isinstance(store, ObjectStorage):
            continue
        clusters[str(store.endpoint.profile.endpoint)] = store
        place = place_of(address)
        assert place is not None
        with open(root.object(name), "rb") as file, store.open(address) as source:
            for record in sorted({0, records // 2})[:PER_TAR]:
                file.seek(offset + 8 * record)
                at = int.from_bytes(file.read(8), "little")
                header = _header(source.pread(HEADER, at), store.endpoint)
                if header is not None and 0 < header[1] <= LARGEST:
                    members.append((place, *header))
    return members, clusters


def _header(data: bytes, endpoint: Endpoint) -> tuple[str, int] | None:
    from blendex.storage.batch import Members, WrongError

    try:
        return Members(io.BytesIO(data), time.monotonic() + 1, endpoint).next()
    except (StoreFailure, WrongError):
        return None


def _batch(store: ObjectStorage, members: list[Member]) -> set[int]:
    """Numbers of the members that one streaming batch per bucket serves, in the order and with the names asked for."""
    from blendex.storage.batch import MARKER, Members, WrongError

    sdk = store.endpoint.driver.sdk  # type: ignore[attr-defined]
    served: set[int] = set()
    buckets: dict[tuple[str, str], list[int]] = {}
    for number, (place, _, _) in enumerate(members):
        buckets.setdefault((place.scheme, place.bucket), []).append(number)
    for (scheme, bucket), numbers in buckets.items():
        raw = None
        try:
            raw = sdk.batch(scheme, bucket, [(members[number][0].key, members[number][1]) for number in numbers])
            answer = Members(raw, time.monotonic() + SECONDS, store.endpoint)
            for number in numbers:
                place, name, size = members[number]
                header = answer.next()
                if header is None:
                    break
                answer.data(header[1])
                expected = f"{bucket}/{place.key}/{name}"
                if header == (expected, size):
                    served.add(number)
                elif header[0] != MARKER + expected and header[0] != expected:
                    break
        except (StoreFailure, WrongError):
            pass  # what did not come counts as not served
        finally:
            if raw is not None:
                raw.close()
                raw.release_conn()
    return served


def _individual(endpoint: Endpoint, store: ObjectStorage, place: Place, name: str, size: int) -> bool:
    """Whether a GET with archpath brings a member."""
    sdk = store.endpoint.driver.sdk  # type: ignore[attr-defined]
    try:
        data = endpoint.request(lambda: sdk.member(place.scheme, place.bucket, place.key, name, size + 1), place)
    except BlendexError as error:
        if error.code in _AWAY:
            raise
        return False
    return len(data) == size


_AWAY = (Code.STORE_UNREACHABLE, Code.STORE_DENIED, Code.STORE_SETTINGS, Code.STORE_SDK)
