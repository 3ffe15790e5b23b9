"""What people and jobs do about what keeps a mirror: look, take, renew, release; and collecting what nothing keeps."""

from __future__ import annotations

from typing import Any

from blendex.builds.naming import not_found
from blendex.builds.site import Site
from blendex.catalog import audit, mirrors, waste
from blendex.catalog import holds as catalog
from blendex.catalog.holds import Held
from blendex.errors import BlendexError, Code
from blendex.mirrors import collect, holds
from blendex.mirrors.holds import DAY, Wish


def _gone(key: str) -> BlendexError:
    return BlendexError(
        Code.WRONG_STATE,
        f"mirror {key} was collected.",
        next_step="Post the blend again: it is made from what was indexed, unless sources changed.",
    )


def show(site: Site, key: str) -> dict[str, Any]:
    """What keeps a mirror, and what becomes of it: as JSON.

    Raises:
        BlendexError: not_found.
    """
    with site.work.read() as session:
        row = mirrors.get(session, key)
        if row is None and not holds.is_there(site.root, key):
            raise not_found("mirror", key)
        found = catalog.of_mirror(session, key, site.who.only)
        may_go = None
        if row is not None and row.condemned_at is not None:
            may_go = row.condemned_at + max(site.settings.condemned_days * DAY, waste.rests(session, _ages(site)))
    return {
        "mirror": key,
        "state": row.state if row is not None else "published",
        "used_at": row.used_at if row is not None else None,
        "may_go_at": may_go,
        "holds": [item.as_dict() for item in found],
    }


def _ages(site: Site) -> waste.Ages:
    return collect.ages(site.settings)


def take(site: Site, key: str, wish: Wish) -> Held:
    """Take a hold, or renew it.

    Raises:
        BlendexError: bad_request, not_found, wrong_state when the mirror was collected.
    """
    with site.work.write() as session:
        held = holds.take(session, site.root, site.settings, key, wish, site.who.team)
        if held is not None:
            audit.note(session, site.who, "hold.take", key)
        known = held is not None or mirrors.get(session, key) is not None
    if held is None:
        raise _gone(key) if known else not_found("mirror", key)
    return held


def release(site: Site, key: str, kind: str, holder: str) -> None:
    """Let a mirror go, as far as this holder is concerned.

    Raises:
        BlendexError: bad_request for what holds by itself; not_found when nothing is held.
    """
    if kind not in catalog.TAKEN:
        raise BlendexError(
            Code.BAD_REQUEST,
            f"a hold of the kind {kind[:40]!r} is not released.",
            next_step="Move the name, or cancel the build; pin, job and chain are released here.",
        )
    known = len(holder) <= holds.LONGEST_HOLDER and holder.isprintable()
    with site.work.write() as session:
        if not known or not catalog.release(session, key, kind, holder, site.who.only):
            raise not_found("hold", f"{kind} of {holder[:80]!r} on {key}")
        audit.note(session, site.who, "hold.release", key)


def collected(site: Site, *, dry: bool) -> dict[str, Any]:
    """Collect what nothing keeps, and empty the trash; or say what that would be."""
    if dry:
        return {"dry_run": True} | collect.preview(site.work, _ages(site))
    done = collect.run(site.work, site.root, _ages(site))
    done.files, done.bytes = collect.empty(site.root, rate=collect.RATE)
    return {"dry_run": False} | done.as_dict()


def collect_in_turn(site: Site, seconds: float) -> None:
    """Collect when it is time to, by the settings, and this process is the one that does."""
    if site.settings.collect_hours is None:
        return
    every = site.settings.collect_hours * 3600
    with site.work.read() as session:
        if not waste.is_time(session, every):
            return
    with site.work.write() as session:
        mine = waste.take_turn(session, every)
    if mine:
        collect.run(site.work, site.root, _ages(site), seconds=seconds)
