"""What a user may do to a build: cancel, retry, accept, have it packed, let it follow paths that moved."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from blendex.blend.world import World
from blendex.builds import quotas, rebinding
from blendex.builds.naming import not_found
from blendex.builds.planning import OF_WORK
from blendex.builds.site import Site
from blendex.builds.submission import check_packing, packing_options
from blendex.builds.submit import begin, identity, load_submission, queue_plan
from blendex.catalog import audit, blobs, builds, events, sources, states, units
from blendex.catalog.models import Build
from blendex.errors import BlendexError, Code
from blendex.formats.kinds import KINDS, recipe


def _get(site: Site, session: Session, build: str) -> Build:
    row = builds.get(session, build)
    if row is None or not site.who.sees(row.team):
        raise not_found("build", build)
    return row


def _wrong_state(build: Build, wish: str) -> BlendexError:
    return BlendexError(
        Code.WRONG_STATE,
        f"build {build.id} is {build.state}; it cannot be {wish}.",
        next_step="Look at it again: somebody may have been faster.",
    )


def cancel(site: Site, build: str) -> None:
    """Withdraw a build. Units that others wait for go on; the rest stops.

    Raises:
        BlendexError: not_found, wrong_state.
    """
    with site.work.write() as session:
        row = _get(site, session, build)
        if row.state == "cancelled":
            return
        error = BlendexError(Code.CANCELLED, "the build was cancelled.", next_step="Retry it, or post it again.")
        if not states.move_build(session, build, "cancelled", row.fence, error=error.as_dict()):
            raise _wrong_state(row, "cancelled")
        audit.note(session, site.who, "build.cancel", build)
        units.unsubscribe(session, build)


def _requeue(site: Site, build: str, wish: str, options: dict[str, str], source: str | None = None) -> None:
    try:
        with site.work.write() as session:
            row = _get(site, session, build)
            gathered = load_submission(session, row)
            if source is not None and not any(item.get("path") == source for item in _problems(session, row)):
                raise BlendexError(
                    Code.BAD_REQUEST,
                    f"{source[:200]} is no source that failed in build {build}.",
                    next_step=f"See the problems of the build: GET /v1/builds/{build}/problems.",
                )
            _forget_failures(session, row, source)
            wanted = row.options | options
            if not states.move_build(
                session,
                build,
                "queued",
                row.fence,
                error=None,
                problems=None,
                again=None if source is None else [source],
                replans=0,
                options=wanted,
                # Another result is another request: nobody who posts the plain blend may join this one.
                identity=identity(row.owner, gathered, row.file, wanted, row.team),
            ):
                raise _wrong_state(row, wish)
            who, why = options.get("accepted_by"), options.get("accepted_why")
            events.note(session, build, wish, source=source, who=who, why=None if why is None else why[:400])
            audit.note(session, site.who, "build.accept" if wish == "accepted" else "build.retry", build)
            queue_plan(session, build)
            builds.wake(session, "plan")
    except IntegrityError as error:
        raise BlendexError(
            Code.WRONG_STATE,
            f"another build of the same request runs already; {build} cannot be {wish} beside it.",
            next_step="Use the running one, or wait for it.",
        ) from error


def _problems(session: Session, build: Build) -> list[dict[str, Any]]:
    problems: list[dict[str, Any]] = blobs.get_json(session, build.problems) if build.problems else []
    return problems


def retry(site: Site, build: str, source: str | None = None) -> None:
    """Do a failed or cancelled build again; what was done is found, not done twice.

    Args:
        site: root and catalog.
        build: the build.
        source: the path of one source that failed: of those that could not be indexed only this one is read again.

    Raises:
        BlendexError: not_found, wrong_state, bad_request when the source is none of those that failed.
    """
    _requeue(site, build, "retried", {}, source)


def _forget_failures(session: Session, build: Build, source: str | None) -> None:
    """Sources that work on them failed of, not their bytes, are read again: whoever says retry has mended something.

    With ``source`` only that one.
    """
    failed = [
        item["path"]
        for item in _problems(session, build)
        if item["scope"] == "source" and item["code"] in OF_WORK and source in (None, item["path"])
    ]
    if not failed:
        return
    world = World.from_dict(load_submission(session, build)["world"])
    addresses = [world.address(path) for path in failed]
    for kind in KINDS:
        sources.forget_failures(session, recipe(kind, build.options["compat"]), addresses)


def accept(site: Site, build: str, *, who: str, why: str) -> None:
    """Publish a failed build without its bad entries. Everything else is done, so this takes seconds.

    Args:
        build: a failed build.
        who: the person who takes the responsibility; named in receipt and answers.
        why: their reason.

    Raises:
        BlendexError: not_found, wrong_state, bad_request without a reason.
    """
    if not why.strip():
        raise BlendexError(
            Code.BAD_REQUEST,
            "excluding data needs a reason.",
            next_step="Say why; it is kept in the receipt.",
        )
    with site.work.read() as session:
        row = _get(site, session, build)
        if row.state != "failed":
            raise _wrong_state(row, "accepted")
    _requeue(site, build, "accepted", {"on_bad": "exclude", "accepted_by": who, "accepted_why": why})


def pack(site: Site, build: str, *, packs: str, sidecars: str, tars: str = "offsets") -> str:
    """Pack what a build has: a build of its own, of the same blend in the same world, with other packs.

    Keys of collections come from the blend, and the ready blend names the packs, so the build that was asked for
    stays as it is. Nothing is read but manifests whose rows were not decoded when they were indexed.

    Args:
        site: root and catalog.
        build: a ready build.
        packs: which datasets, as for a submission.
        sidecars: as for a submission.
        tars: as for a submission.

    Returns:
        The id of the new build, or of one that runs for the same request already.

    Raises:
        BlendexError: bad_request, not_found, wrong_state.
    """
    check_packing(packs, sidecars, tars)
    with site.work.write() as session:
        row = _get(site, session, build)
        if row.state != "ready":
            raise _wrong_state(row, "packed")
        gathered = load_submission(session, row)
        kept = {name: value for name, value in row.options.items() if name != "tars"}
        options = kept | packing_options(packs, sidecars, tars)
        new, made = begin(session, row.owner, gathered, row.file, options, row.priority, row.team, row.labels)
        if made:
            quotas.check(site, session, new)
        audit.note(session, site.who, "build.pack", build)
        return new.id


def rebind(site: Site, build: str, moves: Iterable[tuple[str, str]]) -> str:
    """Let a build follow its paths: a build of its own, of the same blend with other prefixes of paths.

    Every source must be what the mirror of the old build was made from; one that is not is a problem of the new build.
    The same files are known by their tokens, others are read once.

    Args:
        site: root and catalog.
        build: a ready build whose mirror is there.
        moves: prefixes of paths as they were, and as they are.

    Returns:
        The id of the new build, or of one that runs for the same request already.

    Raises:
        BlendexError: bad_request, not_found, wrong_state.
    """
    pairs = rebinding.checked(moves)
    with site.work.write() as session:
        row = _get(site, session, build)
        if row.state != "ready" or row.mirror is None or not os.path.isdir(site.root.mirror(row.mirror)):
            raise _wrong_state(row, "rebound, which takes the mirror that it had")
        gathered = load_submission(session, row)
        new = rebinding.moved_submission(gathered, pairs)
        if new == gathered:
            raise BlendexError(
                Code.BAD_REQUEST,
                f"no path of build {build} begins with {pairs[0][0][:200]}.",
                next_step="Name the prefix as the blend, its base or its variables spell it.",
            )
        options = row.options | {"rebind": {"from": row.id, "mirror": row.mirror, "moves": pairs}}
        file = rebinding.moved(row.file, pairs)
        made, begun = begin(session, row.owner, new, file, options, row.priority, row.team, row.labels)
        if begun:
            quotas.check(site, session, made)
        audit.note(session, site.who, "build.rebind", build)
        return made.id
