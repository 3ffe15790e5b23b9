"""What is posted to be linted, and what a build is refused for."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, replace
from typing import Any

from blendex.blend.load import Limits
from blendex.builds.site import Site
from blendex.builds.submission import Submission
from blendex.errors import BlendexError, Code
from blendex.lint.engine import examine
from blendex.lint.ground import Nowhere
from blendex.lint.model import Report, Severity
from blendex.units.plan import FolderReader
from service.bodies import NOWHERE, POSTED, read_submission
from service.multipart import parts
from service.query import Options

MULTIPART = "multipart/form-data"


@dataclass(frozen=True, slots=True)
class Asked:
    """One request to lint."""

    submission: Submission
    launcher: tuple[str, bytes] | None = None
    facts: bytes | None = None
    baseline: bytes | None = None


def _bad(message: str, next_step: str) -> BlendexError:
    return BlendexError(Code.BAD_REQUEST, message, next_step=next_step)


def read_asked(site: Site, content_type: str, body: bytes, options: Options) -> Asked:
    """What a request asks: a multipart body, or one of the bodies of a submission.

    Raises:
        BlendexError: the body is not what its type says.
    """
    if content_type.partition(";")[0].strip().lower() != MULTIPART:
        return Asked(read_submission(site, content_type, body, options))
    options = replace(options, world=site.seen(options.world))
    if options.main is not None:
        raise _bad("main= names a file in a tar, and this is none.", "Send the config as the part config.")
    given: dict[str, tuple[str, bytes]] = {}
    nested: dict[str, bytes] = {}
    base = options.world.base or NOWHERE
    for name, file, content in parts(content_type, body):
        if name == "blend":
            path = posixpath.normpath(posixpath.join(base, _plain(file)))
            nested[options.world.address(path)] = content
        elif name in ("config", "launcher", "facts", "baseline"):
            if name in given:
                raise _bad(f"the part {name} is there twice.", "Send it once.")
            given[name] = file, content
        else:
            raise _bad(f"the part {name[:80]!r} is unknown.", "Known are: config, blend, launcher, facts, baseline.")
    if "config" not in given:
        raise _bad("there is no part config.", "Send it with curl -F config=@train.yaml.")
    file, text = given["config"]
    # With a base the config stands there; without one nothing stands anywhere but what came along.
    stands = posixpath.join(base, _plain(file) if file else POSTED)
    submission = Submission(text=text, file=stands, world=options.world, nested=nested)
    launcher = given.get("launcher")
    return Asked(
        submission,
        (launcher[0] or "launcher", launcher[1]) if launcher else None,
        given["facts"][1] if "facts" in given else None,
        given["baseline"][1] if "baseline" in given else None,
    )


def _plain(file: str) -> str:
    """A file name that came along, when it stays where it is put."""
    name = posixpath.normpath(file)
    if not file or name.startswith(("/", "..")) or "\\" in name or not name.isprintable():
        raise _bad(
            "the name of a part's file is empty, absolute, or leaves its folder.",
            "Send curl -F 'blend=@a.yaml;filename=a.yaml'.",
        )
    return name


def check_blend(site: Site, submission: Submission) -> Report:
    """What stands against a blend whatever is trained with it; no folder and no source is looked at."""
    limits = Limits(paths=site.settings.max_sources)
    reader = FolderReader(site.storage(), submission.nested, limits.bytes)
    world, ground = site.placed(submission.world), Nowhere(reader=reader)
    return examine(submission.text, submission.file, world, ground, limits=limits, blend_only=True)[1]


def refusal(report: Report) -> tuple[BlendexError, list[dict[str, Any]]] | None:
    """Why a blend is not built, with all that is fatal in it; None when nothing is."""
    fatal = [item for item in report.blockers if item.severity is Severity.FATAL]
    if not fatal:
        return None
    first = fatal[0]
    more = f" {len(fatal) - 1} more findings are fatal." if len(fatal) > 1 else ""
    error = BlendexError(
        Code.LINT_REFUSED,
        f"{first.rule}: {first.message}{more}",
        file=first.file,
        line=first.line,
        next_step=f"{first.fix} Or post it with lint=off.",
    )
    told = [
        {
            "rule": item.rule,
            "file": item.file,
            "line": item.line,
            "field": item.field,
            "message": item.message,
            "fix": item.fix,
        }
        for item in fatal
    ]
    return error, told
