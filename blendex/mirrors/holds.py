"""Taking, renewing and releasing holds, and the one way in which a mirror is wanted.

Whoever wants a mirror to stay (a look-up, a hold, a name, a build that publishes it or finds it there) calls ``want``
in the transaction that makes it so. It locks the row of the mirror, as the collector does before it decides, so one of
the two comes first: either the collector sees the hold, or ``want`` sees that the mirror goes.

A collector that died, or is stopped, after it decided has left the name of a folder, its *grave*, in the row, and a
mirror is renamed nowhere else. ``want`` takes that folder away first: from then on that collector moves nothing,
however late it wakes up, and whether the mirror is still there does not change any more.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from blendex.catalog import holds, mirrors, states
from blendex.catalog.holds import Held
from blendex.errors import BlendexError, Code
from blendex.settings import Settings
from blendex.storage.root import Root

DAY = 24 * 3600.0
# As schedulers write them: 4711, 4711_3 (of an array), 4711+1 (of a heterogeneous job), 4711.batch, pool:4711.
JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+:-]{0,99}")
CHAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
LONGEST_HOLDER, LONGEST_REASON = 128, 500
# A clock may be that much behind: a job that ends now still gets its answer.
GRACE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Wish:
    """A hold that somebody asks for; ``until`` None: for as long as one of its kind may last."""

    kind: str
    holder: str
    until: float | None = None
    reason: str | None = None


def _bad(message: str, next_step: str) -> BlendexError:
    return BlendexError(Code.BAD_REQUEST, message, next_step=next_step)


def moment(text: str, name: str) -> float:
    """A time as people and schedulers write it, in seconds since the epoch.

    Raises:
        BlendexError: bad_request.
    """
    if re.fullmatch(r"[0-9]{1,11}(\.[0-9]{1,6})?", text):
        return float(text)
    with contextlib.suppress(ValueError, OverflowError):
        found = datetime.fromisoformat(text.strip())
        if found.tzinfo is not None:
            return found.timestamp()
    raise _bad(
        f"{name}={text[:60]!r} is no time.",
        "Give seconds since the epoch, as SLURM_JOB_END_TIME has them, or ISO 8601 with an offset: 2030-01-31T18:00Z.",
    )


def job(job: str, end: str | None) -> Wish:
    """The hold of a job of the scheduler.

    Raises:
        BlendexError: bad_request.
    """
    if not JOB.fullmatch(job):
        raise _bad(f"job={job[:60]!r} is no id of a job.", "Give it as the scheduler does: 4711, 4711_3, 4711+1.")
    return Wish("job", job, None if end is None else moment(end, "end"))


def chain(name: str) -> Wish:
    """The hold of a chain of jobs: as long as one may last, from every renewal on.

    Raises:
        BlendexError: bad_request.
    """
    if not CHAIN.fullmatch(name):
        raise _bad(
            f"{name[:60]!r} is no name of a chain.",
            "Use 1 to 100 letters, digits, dots, dashes and underscores, beginning with a letter or digit.",
        )
    return Wish("chain", name)


def pin(holder: str, reason: str, until: str | None = None) -> Wish:
    """The hold of a person, until it is released unless it has an end.

    Raises:
        BlendexError: bad_request.
    """
    for name, text, most in (("holder", holder, LONGEST_HOLDER), ("reason", reason, LONGEST_REASON)):
        if not text.strip() or len(text) > most or not text.isprintable():
            raise _bad(f"a pin has no {name} on one line of at most {most} characters.", "Say who holds it, and why.")
    return Wish("pin", holder.strip(), None if until is None else moment(until, "until"), reason.strip())


def longest(settings: Settings, kind: str) -> float | None:
    """Seconds that a hold may last from now on; None: for ever."""
    days = {"job": settings.job_hold_days, "chain": settings.chain_hold_days}.get(kind)
    return None if days is None else days * DAY


def _end(settings: Settings, wish: Wish, now: float) -> float | None:
    """When a wish that is granted now ends.

    Raises:
        BlendexError: bad_request for one that ends before it begins, or too late.
    """
    if wish.reason is not None and (len(wish.reason) > LONGEST_REASON or not wish.reason.isprintable()):
        raise _bad(f"a reason is one line of at most {LONGEST_REASON} characters.", "Say it shorter.")
    most = longest(settings, wish.kind)
    if wish.until is None:
        return None if most is None else now + most
    if wish.until < now - GRACE_SECONDS:
        raise _bad(
            f"the end of this {wish.kind} lies {now - wish.until:.0f} s in the past.",
            "Give an end that is to come; SLURM_JOB_END_TIME is in seconds since the epoch.",
        )
    if most is not None and wish.until > now + most + GRACE_SECONDS:
        raise _bad(
            f"a {wish.kind} holds a mirror for at most {most / DAY:g} days, and this one ends in "
            f"{(wish.until - now) / DAY:.1f}.",
            "Give an earlier end and renew it, use holder=chain:NAME, or raise BLENDEX_JOB_HOLD_DAYS.",
        )
    return max(wish.until, now + GRACE_SECONDS)


def is_there(root: Root, key: str) -> bool:
    """Whether a whole mirror stands under its key: it came by one rename, so READY is enough."""
    return os.path.exists(os.path.join(root.mirror(key), "READY"))


def want(session: Session, root: Root, key: str) -> bool:
    """Lock a mirror, keep it from being collected before it is looked at again, and say whether it is there.

    Args:
        session: the transaction that will hold it; it writes.
        root: where it lies.
        key: of the mirror.
    """
    row = mirrors.lock(session, key)
    if row is None or row.state == "collected":
        return is_there(root, key)  # one that is just being published is there before its row
    if row.state == "collecting":
        if row.grave is not None:
            root.close_grave(row.grave)
        if not is_there(root, key):
            mirrors.note_gone(session, key)
            return False
        os.chmod(root.mirror(key), 0o555)
    mirrors.note_use(session, key)
    return is_there(root, key)


def take(session: Session, root: Root, settings: Settings, key: str, wish: Wish, team: str = "") -> Held | None:
    """Take a hold, or renew it; None when the mirror is not there.

    Raises:
        BlendexError: bad_request.
    """
    until = _end(settings, wish, states.now(session))
    if not want(session, root, key):
        return None
    holds.take(session, key, wish.kind, wish.holder, until, wish.reason, team)
    return holds.get(session, key, wish.kind, wish.holder, team)


def keep_for_build(session: Session, root: Root, key: str, build: str) -> None:
    """Keep a mirror, there or about to be, for a build that publishes it: while that runs."""
    want(session, root, key)
    holds.take(session, key, "build", build, None)
