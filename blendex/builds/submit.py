"""Submit: a blend with its world becomes a build, or joins the one that is under way for the same request."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import orjson
from sqlalchemy.orm import Session

from blendex.blend.discover import nested_files
from blendex.blend.load import Limits
from blendex.builds import abilities, disk, labels, quotas
from blendex.builds.naming import check_free
from blendex.builds.site import Site
from blendex.builds.submission import PRIORITIES, Submission
from blendex.catalog import audit, blobs, builds, events, notices, states, units
from blendex.catalog.models import Build
from blendex.errors import BlendexError, Code
from blendex.observability import logs, metrics
from blendex.units.plan import FolderReader

logger = logs.get_logger("blendex.builds")

# What planning and publishing take in memory, measured: 400,000 sources stay under it.
PLAN_MEMORY = 400 * 2**20


def gather(site: Site, submission: Submission) -> dict[str, Any]:
    """Everything of a submission that a plan needs, with the nested blends read now: a build means what was posted.

    Raises:
        BlendexError: the posted text or a nested one cannot be read.
    """
    submission.check()
    limits = Limits(paths=site.settings.max_sources)
    world = site.placed(submission.world)
    storage = site.storage()
    try:
        reader = FolderReader(storage, submission.nested, limits.bytes)
        nested = dict(submission.nested) | nested_files(submission.text, submission.file, world, reader, limits)
    finally:
        storage.close()
    return {
        "text": _decode(submission.text, submission.file),
        "nested": {path: _decode(text, path) for path, text in nested.items()},
        "world": world.as_dict(),
    }


def _decode(text: bytes, file: str) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise BlendexError(
            Code.BLEND_SYNTAX,
            "the YAML is not UTF-8.",
            file=file,
            byte=error.start,
            next_step="Save it as UTF-8.",
        ) from error


def identity(owner: str, gathered: dict[str, Any], file: str, options: dict[str, Any], team: str = "") -> str:
    """The request identity: owner and team, blend and nested texts, world, and the options that change the result."""
    value = {"owner": owner, "file": file, "options": options} | gathered
    if team:
        value["team"] = team
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()


def check_receivers(site: Site, names: tuple[str, ...], team: str) -> None:
    """Refuse receivers that are not there for this team.

    Raises:
        BlendexError: bad_request.
    """
    known = sorted(name for name, item in site.settings.notify.items() if not item.teams or team in item.teams)
    for name in names:
        if name not in known:
            raise BlendexError(
                Code.BAD_REQUEST,
                f"notify={name[:64]!r} names no receiver.",
                next_step=f"Known are: {', '.join(known) or 'none; the operator adds them in BLENDEX_NOTIFY'}.",
            )


def submit(site: Site, submission: Submission, *, bounded: bool = False) -> tuple[Build, bool]:
    """Take a submission; its build, and False when it joined one that runs already.

    One transaction writes the build, its plan unit and the outbox row.

    Args:
        site: root and catalog, as whoever submits may use them.
        submission: what was posted.
        bounded: whether there may be too many builds already for another one; joining one is always possible.

    Raises:
        BlendexError: the text cannot be read at all, or an option is unknown; busy; no_space;
            quota_full; quota_exceeded.
    """
    priority = PRIORITIES[submission.priority]
    who = site.who
    check_receivers(site, submission.notify, who.team)
    gathered = gather(site, submission)
    with site.work.write() as session:
        build, made = begin(
            session, who.owner, gathered, submission.file, submission.options, priority, who.team, submission.labels
        )
        notices.ask(session, build, submission.notify)
        if submission.name is not None and submission.name not in build.names:
            check_free(session, submission.name, who.team)
            build.names = [*build.names, submission.name]
        if made:
            if bounded:
                _check_room(site, session)
            disk.check(site, session)
            quotas.check(site, session, build)
        elif priority > build.priority:
            build.priority = priority
            units.hurry(session, units.of_build(session, build.id), build.id, priority)
        audit.note(session, who, "build.submit" if made else "build.join", build.id)
        session.flush()
        session.expunge(build)
    logger.info("build_submitted", build=build.id, joined=not made)
    return build, made


def begin(
    session: Session,
    owner: str,
    gathered: dict[str, Any],
    file: str,
    options: dict[str, Any],
    priority: int,
    team: str,
    more_labels: Mapping[str, str],
) -> tuple[Build, bool]:
    """A build of what was gathered, asked to be planned, or the one that runs for the same request already.

    One that runs gets the labels that it has not.

    Raises:
        BlendexError: bad_request, when its labels would be too many.
    """
    build, made = builds.create(
        session,
        owner=owner,
        team=team,
        identity=identity(owner, gathered, file, options, team),
        submission=gathered,
        file=file,
        options=options,
        priority=priority,
        labels=dict(more_labels),
    )
    if made:
        events.note(session, build.id, "submitted", who=owner)
        queue_plan(session, build.id)
    else:
        build.labels = labels.joined(build.labels, more_labels)
        build.version += 1
        events.note(session, build.id, "joined", who=owner)
    return build, made


def _check_room(site: Site, session: Session) -> None:
    """Refuse one build more when there are too many, or too much waits.

    Raises:
        BlendexError: busy.
    """
    running, waiting = states.running_builds(session) - 1, units.waiting_up_to(session, site.settings.max_waiting_units)
    if running >= site.settings.max_running_builds or waiting >= site.settings.max_waiting_units:
        metrics.REFUSED.inc()
        raise BlendexError(
            Code.BUSY,
            f"the service is full: {running} builds run, and at least {waiting} units wait.",
            next_step="Ask again after the time in Retry-After; what is running can be joined.",
        )


def queue_plan(session: Any, build: str) -> None:
    """Ask for a build to be planned."""
    row = builds.get(session, build)
    priority = 0 if row is None else row.priority
    unit = units.create(
        session, "plan", build, {}, memory=PLAN_MEMORY, priority=priority, needs=abilities.needs()
    )
    units.subscribe(session, unit, build, 0)


def load_submission(session: Any, build: Build) -> dict[str, Any]:
    """What was gathered when the build was submitted.

    Raises:
        BlendexError: wrong_state, for a build that was adopted without it.
    """
    if build.submission is None:
        raise BlendexError(
            Code.WRONG_STATE,
            f"build {build.id} was adopted from its folder; what was posted is not known any more.",
            next_step="Post the blend again.",
        )
    value: dict[str, Any] = blobs.get_json(session, build.submission)
    return value
