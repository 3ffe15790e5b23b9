"""Teams: what binds each of them, wherever something is read for it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from blendex.builds.site import Site
from blendex.catalog import audit, teams
from blendex.catalog.models import Deed, Team
from blendex.errors import BlendexError, Code
from blendex.storage.profiles import Profile

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


def _bad(message: str, next_step: str) -> BlendexError:
    return BlendexError(Code.BAD_REQUEST, message, next_step=next_step)


def set_team(
    site: Site,
    name: str,
    *,
    roots: Sequence[str],
    stores: Mapping[str, Sequence[str]],
    views: Sequence[tuple[str, str]],
) -> Team:
    """Say what a team may read, instead of what it might before.

    Args:
        site: root and catalog.
        name: of the team, made if there is none.
        roots: folders; what of them the service itself may not read, the team may not either.
        stores: of each endpoint profile the patterns of buckets; of a web server what URLs begin with.
        views: (prefix as its jobs see it, prefix as workers see it), for every submission of the team.

    Raises:
        BlendexError: bad_request.
    """
    if not NAME.fullmatch(name):
        raise _bad(f"{name[:80]!r} cannot be a team.", "Use 1 to 64 lower-case letters, digits, dots, dashes.")
    for root in roots:
        if not root.startswith("/") or "\0" in root or len(root) > 4096:
            raise _bad(f"the root {root[:80]!r} is not absolute.", "Name the folder from / on.")
    for profile, patterns in stores.items():
        if not patterns or not all(patterns):
            raise _bad(f"the profile {profile[:80]!r} has no buckets.", "Name them, as lab=speech-*.")
    for seen, real in views:
        if not seen or not real or "\0" in seen + real:
            raise _bad("a view has an empty side.", "Write FROM=TO with two absolute paths or URLs.")
    with site.work.write() as session:
        row = teams.put(session, name, roots=[os.path.normpath(root) for root in roots], stores=stores, views=views)
        audit.note(session, site.who, "team.set", name)
        session.expunge(row)
    return row


def summary(team: Team) -> dict[str, Any]:
    """A team as it is listed."""
    return {
        "name": team.name, "roots": team.roots, "stores": team.stores, "views": team.views, "version": team.version,
        "updated_at": team.updated_at,
    }  # fmt: skip


def _inside(path: str, folder: str) -> bool:
    return folder in ("/", path) or path.startswith(folder + "/")


def common_roots(ours: Iterable[str], theirs: Iterable[str]) -> tuple[str, ...]:
    """The folders below both: of two that lie in each other, the inner one. Symbolic links are followed first."""
    both = set()
    for one in map(os.path.realpath, ours):
        for other in map(os.path.realpath, theirs):
            if _inside(other, one):
                both.add(other)
            elif _inside(one, other):
                both.add(one)
    return tuple(sorted(both))


def _covers(wide: str, narrow: str) -> bool:
    """Whether every bucket that ``narrow`` means is one that ``wide`` means, as far as that can be told."""
    return wide == narrow or (not set(wide) & set("?[") and fnmatchcase(narrow, wide))


def common_buckets(ours: Iterable[str], theirs: Iterable[str]) -> tuple[str, ...]:
    """The patterns of buckets that both mean: of two of which one means less, that one; else neither."""
    both = set()
    for one in ours:
        for other in theirs:
            if _covers(one, other):
                both.add(other)
            elif _covers(other, one):
                both.add(one)
    return tuple(sorted(both))


def common_prefixes(ours: Iterable[str], theirs: Iterable[str]) -> tuple[str, ...]:
    """What URLs begin with that both mean: of two of which one begins with the other, the longer one."""
    both = set()
    for one in ours:
        for other in theirs:
            if other.startswith(one):
                both.add(other)
            elif one.startswith(other):
                both.add(one)
    return tuple(sorted(both))


def _profiles(site: Site, stores: Mapping[str, Sequence[str]]) -> Iterable[Profile]:
    for profile in site.stores:
        patterns = stores.get(profile.name, ())
        if profile.kind == "http":
            ending = [item if item.endswith("/") else f"{item}/" for item in patterns]
            if prefixes := common_prefixes(profile.prefixes, ending):
                yield replace(profile, prefixes=prefixes)
            continue
        buckets = common_buckets(profile.buckets, patterns)
        if buckets:
            yield replace(profile, buckets=buckets)


def narrowed(site: Site, team: Team | None) -> Site:
    """A site as a team may use it: never more than the site itself may. A team that is not known may read nothing."""
    if team is None:
        return replace(site, roots=(), stores=(), views=())
    return replace(
        site,
        roots=common_roots(site.roots, team.roots),
        stores=tuple(_profiles(site, team.stores)),
        views=tuple((str(seen), str(real)) for seen, real in team.views),
    )


def site_of(site: Site, team: str) -> Site:
    """A site as it is used for the builds of a team; as it is for those of none."""
    if not team:
        return site
    with site.work.read() as session:
        return narrowed(site, teams.get(session, team))


def deed(row: Deed) -> dict[str, Any]:
    """A row of the record of changes."""
    return {
        "id": row.id, "at": row.at, "owner": row.owner, "team": row.team, "token": row.token, "action": row.action,
        "object": row.object, "request": row.request, "address": row.address,
    }  # fmt: skip
