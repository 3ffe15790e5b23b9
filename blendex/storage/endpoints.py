"""The stores of endpoint profiles. An SDK is imported when the first object of its kind is asked for."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import replace
from typing import Any

from blendex.storage.driver import Driver
from blendex.storage.endpoint import Endpoint
from blendex.storage.failures import StoreFailure
from blendex.storage.interface import Figures, Storage
from blendex.storage.objects import ObjectStorage
from blendex.storage.patience import told
from blendex.storage.profiles import Place, Profile

# Drivers hold connections, and making one takes half a second: a process keeps a few, by all that a profile says.
KEPT_DRIVERS = 8
_drivers: OrderedDict[Profile, Driver] = OrderedDict()
_drivers_lock = threading.Lock()


def _driver(profile: Profile) -> Driver:
    key = replace(profile, pace=Frozen(), environment=Frozen(profile.environment))
    with _drivers_lock:
        if key in _drivers:
            _drivers.move_to_end(key)
            return _drivers[key]
        if profile.kind == "s3":
            from blendex.storage.s3 import S3Driver

            made: Driver = S3Driver(profile)
        elif profile.kind == "http":
            from blendex.storage.web import WebDriver

            made = WebDriver(profile)
        else:
            from blendex.storage.aistore import AisDriver

            made = AisDriver(profile)
        _drivers[key] = made
        if len(_drivers) > KEPT_DRIVERS:
            _drivers.popitem(last=False)[1].close()
        return made


class Frozen(dict[str, Any]):
    """A dict that never changes, and can be looked for."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


def open_profile(profile: Profile, figures: Figures) -> ObjectStorage:
    """The store of a profile.

    Raises:
        StoreFailure: its SDK is missing or unknown, or refuses the settings.
    """
    driver = _driver(profile)
    endpoint = Endpoint(profile, driver, figures)
    if profile.kind != "aistore":
        return ObjectStorage(endpoint)
    from blendex.storage.aistore import AisDriver, AisStorage

    assert isinstance(driver, AisDriver)
    return AisStorage(endpoint, driver)


def open_for(place: Place, profile: Profile, figures: Figures) -> Storage:
    """The store of a profile, opened to read what lies at a place, which people are told if it cannot be.

    Raises:
        BlendexError: store_sdk, store_settings.
    """
    try:
        store = open_profile(profile, figures)
    except StoreFailure as failure:
        raise told(failure, place, profile) from None
    if profile.local_mirrors:
        from blendex.storage.mirrored import Mirrored

        return Mirrored(store, profile, figures)
    return store
