"""Looking up builds for answers, with the wait that a caller asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from blendex.builds.answers import Answer
from blendex.builds.naming import not_found
from blendex.catalog import builds, mirrors
from blendex.catalog.models import Build
from blendex.errors import BlendexError
from blendex.mirrors.names import check_name
from blendex.storage.root import HEX
from service.house import House

ID_LENGTH = 26


def build_id(build: str) -> str:
    """``build``, if it may be the id of one.

    Raises:
        BlendexError: not_found.
    """
    if len(build) != ID_LENGTH or not build.isascii() or not build.isalnum():
        raise not_found("build", repr(build[:80]))
    return build


def name_of(name: str) -> str:
    """``name``, if it may be one.

    Raises:
        BlendexError: not_found.
    """
    try:
        return check_name(name)
    except BlendexError:
        raise not_found("name", repr(name[:80])) from None


def mirror_key(key: str) -> str:
    """``key``, if it may be one.

    Raises:
        BlendexError: not_found.
    """
    if len(key) != 64 or not HEX.issuperset(key):
        raise not_found("mirror", repr(key[:80]))
    return key


def get_build(house: House, session: Session, build: str) -> Build:
    """One build, if whoever asks may know of it.

    Raises:
        BlendexError: not_found.
    """
    row = builds.get(session, build_id(build))
    if row is None or not house.site.who.sees(row.team):
        raise not_found("build", build)
    return row


def get_name(house: House, session: Session, name: str) -> Any:
    """One name, if whoever asks may know of it.

    Raises:
        BlendexError: not_found.
    """
    row = mirrors.name(session, name_of(name))
    if row is None or not house.site.who.sees(row.team):
        raise not_found("name", name)
    return row


def mirror_after(house: House, session: Session, key: str) -> int:
    """The place of a mirror in lists, if whoever asks may know of it.

    Raises:
        BlendexError: not_found.
    """
    row = mirrors.get(session, mirror_key(key))
    if row is None or not house.resolver.verdicts.mirror(house.site, key):
        raise not_found("mirror", key)
    return row.id


async def answer(house: House, resolve: Callable[[], Answer], wait: float) -> Answer:
    """What ``resolve`` says, after at most ``wait`` seconds of waiting for a build that runs."""
    found = await run_in_threadpool(resolve)
    if found.state == "building" and wait > 0 and found.build is not None:
        await house.watch.until_ended(found.build, wait)
        found = await run_in_threadpool(resolve)
    return found
