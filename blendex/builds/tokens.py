"""Tokens: made, shown once, revoked."""

from __future__ import annotations

import hashlib
import re
import secrets
import zlib
from dataclasses import replace
from typing import Any

from sqlalchemy.orm import Session

from blendex.builds.site import Site
from blendex.catalog import audit, teams, tokens
from blendex.catalog.models import Token
from blendex.errors import BlendexError, Code

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
# 43 of 62 letters are 256 bits of chance; six more are their checksum, so that a scanner of leaked secrets can tell one
# from any other text, and a service refuses one that was cut off without asking its database.
RANDOM, CHECK = 43, 6
TOKEN, SESSION = "bx_", "bxs_"
FORM = re.compile(rf"bxs?_[0-9A-Za-z]{{{RANDOM + CHECK}}}")
#: each may do what those before it may
SCOPES = ("lookup", "read", "build", "admin")
LONGEST_DAYS = 3_650
OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9@._+-]{0,127}")
LONGEST_LABEL = 128


def _checksum(body: str) -> str:
    number = zlib.crc32(body.encode())
    letters = ""
    for _ in range(CHECK):
        number, digit = divmod(number, len(ALPHABET))
        letters = ALPHABET[digit] + letters
    return letters


def mint(prefix: str = TOKEN) -> str:
    """A new secret."""
    body = prefix + "".join(secrets.choice(ALPHABET) for _ in range(RANDOM))
    return body + _checksum(body)


def well_formed(secret: str) -> bool:
    """Whether a text may be a secret of ours at all."""
    return FORM.fullmatch(secret) is not None and _checksum(secret[:-CHECK]) == secret[-CHECK:]


def digest(secret: str) -> str:
    """What is kept of a secret. It is chance alone, so no slow hash is needed."""
    return hashlib.sha256(secret.encode()).hexdigest()


def included(scope: str) -> frozenset[str]:
    """A scope, with what it includes."""
    return frozenset(SCOPES[: SCOPES.index(scope) + 1])


def check_owner(owner: str) -> str:
    """``owner``, if somebody may be called so.

    Raises:
        BlendexError: bad_request.
    """
    if not OWNER.fullmatch(owner):
        raise BlendexError(
            Code.BAD_REQUEST, f"{owner[:80]!r} cannot be an owner.", next_step="Use letters, digits and @._+-."
        )
    return owner


def issue(site: Site, *, owner: str, team: str, scope: str, days: float, label: str = "") -> tuple[str, Token]:
    """Make a token. Its secret is returned here and nowhere else.

    Args:
        site: root and catalog.
        owner: whose it is.
        team: theirs; it must exist.
        scope: what it may be used for.
        days: how long it is good.
        label: what it is for.

    Raises:
        BlendexError: bad_request, not_found.
    """
    check_owner(owner)
    if scope not in SCOPES:
        raise BlendexError(
            Code.BAD_REQUEST, f"the scope {scope[:80]!r} is unknown.", next_step=f"Say one of {', '.join(SCOPES)}."
        )
    if not 0 < days <= LONGEST_DAYS:
        raise BlendexError(
            Code.BAD_REQUEST,
            "a token is good for more than 0 days, and not for ever.",
            next_step=f"Say at most {LONGEST_DAYS} days.",
        )
    if len(label) > LONGEST_LABEL or not label.isprintable():
        raise BlendexError(
            Code.BAD_REQUEST, "the label is long, or no plain text.", next_step=f"Use {LONGEST_LABEL} characters."
        )
    secret = mint()
    with site.work.write() as session:
        if teams.get(session, team) is None:
            raise BlendexError(
                Code.NOT_FOUND, f"there is no team {team[:80]!r}.", next_step="Make it first: blendex team set."
            )
        made = tokens.add(
            session, digest=digest(secret), label=label, owner=owner, team=team, scope=scope, seconds=days * 86_400
        )
        audit.note(session, site.who, "token.create", str(made.id))
        session.expunge(made)
    return secret, made


def revoke(site: Site, token: int) -> Token:
    """Make a token worth nothing.

    Raises:
        BlendexError: not_found.
    """
    with site.work.write() as session:
        row = tokens.get(session, token)
        if row is None:
            raise BlendexError(Code.NOT_FOUND, f"there is no token {token}.", next_step="See blendex token list.")
        if tokens.revoke(session, token):
            audit.note(session, site.who, "token.revoke", str(token))
        session.refresh(row)
        session.expunge(row)
        return row


def open_session(session: Session, who: audit.Actor, shown: tokens.Shown, seconds: float) -> str:
    """A session of a browser that showed a token; its secret."""
    secret = mint(SESSION)
    tokens.forget_sessions(session)
    tokens.add(
        session, digest=digest(secret), label="", owner=shown.owner, team=shown.team, scope=shown.scope,
        seconds=seconds, parent=shown.token,
    )  # fmt: skip
    audit.note(session, who, "session.open", str(shown.token))
    return secret


def close_session(site: Site, secret: str) -> None:
    """End a session; nothing when it is over already."""
    with site.work.write() as session:
        shown = tokens.find(session, digest(secret))
        if shown is not None and tokens.end_session(session, digest(secret)) is not None:
            who = replace(site.who, owner=shown.owner, team=shown.team, token=shown.token)
            audit.note(session, who, "session.close", str(shown.token))


def summary(row: Token) -> dict[str, Any]:
    """A token as it is listed: nothing that lets anybody in."""
    return {
        "id": row.id, "label": row.label, "owner": row.owner, "team": row.team, "scope": row.scope,
        "created_at": row.created_at, "expires_at": row.expires_at, "revoked_at": row.revoked_at,
        "used_at": row.used_at,
    }  # fmt: skip
