"""The access check: which tars are tried as training will fetch them, and what that says to training."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from typing import Any

import orjson
from sqlalchemy.orm import Session

from blendex.blend.world import World
from blendex.builds.places import Places
from blendex.builds.site import Site
from blendex.catalog import blobs, builds, sources
from blendex.catalog.models import Build
from blendex.storage.profiles import place_of

# Of each dataset so many shards, or one in fifty; of a whole build no more than so many.
SHARDS = 32
SHARE = 50
MOST = 256


def samples(site: Site, session: Session, build: Build, world: World) -> list[dict[str, Any]]:
    """The tars of a build that lie on AIStore, a few of each dataset, spread over it: what a child shall try.

    Each is {"dataset", "tars"}; a tar is [path, address, object, offset, length, records], the place of its sidecar in
    its bundle. Nothing where no endpoint is an AIStore.
    """
    clusters = {profile.name for profile in site.stores if profile.kind == "aistore"}
    if not clusters:
        return []
    places = Places(build.options["compat"], world, [])
    found = []
    datasets = builds.datasets(session, build.id)
    share = max(1, MOST // max(1, len(datasets)))
    for dataset in datasets:
        tars = []
        for kind, path in blobs.unpack_list(blobs.get(session, dataset.list_hash)):
            if kind in ("nemo_tar", "wds_tar"):
                recipe, address = places.of(kind, path)
                place = place_of(address)
                if place is not None and place.profile in clusters:
                    tars.append((path, recipe, address))
        count = min(share, max(SHARDS, len(tars) // SHARE), len(tars))
        chosen = [tars[number * len(tars) // count] for number in range(count)]
        items = []
        for path, recipe, address in chosen:
            known = next(sources.known(session, recipe, [address]), None)
            if known is not None and known.has_content and known.records:
                items.append([path, address, known.object, known.offset, known.length, known.records])
        if items:
            found.append({"dataset": dataset.name, "tars": items})
    return found


def report(site: Site, build: str) -> dict[str, Any] | None:
    """What was found when a build was published; None where nothing was tried."""
    try:
        with open(os.path.join(site.root.build(build), "access.json"), "rb") as file:
            value: dict[str, Any] = orjson.loads(file.read())
            return value
    except FileNotFoundError:
        return None


def of_mirror(site: Site, key: str) -> dict[str, Any] | None:
    """The newest that was found of the sources of a mirror, whichever build asked; None where nothing was tried."""
    folder, name = os.path.split(site.root.cross_checks(key, "*.access"))
    files = [entry for entry in os.scandir(folder) if fnmatchcase(entry.name, name)]
    if not files:
        return None
    newest = max(files, key=lambda entry: entry.stat().st_mtime_ns)
    with open(newest.path, "rb") as file:
        value: dict[str, Any] = orjson.loads(file.read())
    return value


def environment(site: Site, build: str) -> dict[str, str]:
    """The variables that training needs to fetch the audio of a build."""
    found = report(site, build)
    values: dict[str, str] = found["environment"] if found is not None else {}
    return values
