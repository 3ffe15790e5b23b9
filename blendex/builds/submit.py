"""Submit: a blend with its world becomes a build, or joins the one that is under way for the same request."""

from __future__ import annotations

import hashlib
from typing import Any

import orjson

from blendex.blend.discover import nested_files
from blendex.blend.load import Limits
from blendex.builds.site import Site
from blendex.builds.submission import Submission
from blendex.catalog import blobs, builds, units
from blendex.catalog.models import Build
from blendex.errors import BlendexError, Code
from blendex.observability import logs
from blendex.storage.local import LocalStorage
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
    storage = LocalStorage(site.roots)
    reader = FolderReader(storage, submission.nested, limits.bytes)
    nested = dict(submission.nested) | nested_files(submission.text, submission.file, submission.world, reader, limits)
    return {
        "text": _decode(submission.text, submission.file),
        "nested": {path: _decode(text, path) for path, text in nested.items()},
        "world": submission.world.as_dict(),
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


def identity(owner: str, gathered: dict[str, Any], file: str, options: dict[str, Any]) -> str:
    """The request identity: owner, blend and nested texts, world, and the options that change the result."""
    value = {"owner": owner, "file": file, "options": options} | gathered
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()


def submit(site: Site, submission: Submission) -> tuple[Build, bool]:
    """Take a submission; its build, and False when it joined one that runs already.

    One transaction writes the build, its plan unit and the outbox row.

    Raises:
        BlendexError: the text cannot be read at all, or an option is unknown.
    """
    gathered = gather(site, submission)
    owner = site.settings.owner
    with site.work.write() as session:
        build, made = builds.create(
            session,
            owner=owner,
            identity=identity(owner, gathered, submission.file, submission.options),
            submission=gathered,
            file=submission.file,
            options=submission.options,
        )
        if submission.name is not None and submission.name not in build.names:
            build.names = [*build.names, submission.name]
        if made:
            queue_plan(session, build.id)
        session.flush()
        session.expunge(build)
    logger.info("build_submitted", build=build.id, joined=not made)
    return build, made


def queue_plan(session: Any, build: str) -> None:
    """Ask for a build to be planned."""
    row = builds.get(session, build)
    priority = 0 if row is None else row.priority
    unit = units.create(session, "plan", build, {}, memory=PLAN_MEMORY, priority=priority)
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
