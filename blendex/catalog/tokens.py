"""Tokens and sessions, by the hash of their secret: what is kept here lets nobody in."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import and_, delete, or_, select, update
from sqlalchemy.orm import Session, aliased

from blendex.catalog import dialect
from blendex.catalog.models import Team, Token

# A use is written down so often at most: thousands of nodes show one token at once.
USE_SECONDS = 60.0


class Shown(NamedTuple):
    """What a secret proves. ``valid`` is told by the database's clock."""

    id: int
    token: int  # of a session: the token it was opened with
    owner: str
    team: str
    scope: str
    valid: bool
    noted: bool  # its use was written down not long ago
    rules: Team | None


def add(
    session: Session,
    *,
    digest: str,
    label: str,
    owner: str,
    team: str,
    scope: str,
    seconds: float,
    parent: int | None = None,
) -> Token:
    """A token, or with ``parent`` a session of one, that is good for so many seconds."""
    made = session.execute(
        dialect.insert(session, Token)
        .values(
            hash=digest, parent=parent, label=label, owner=owner, team=team, scope=scope,
            created_at=dialect.now(session), expires_at=dialect.now(session) + seconds,
        )
        .returning(Token.id)
    ).scalar_one()  # fmt: skip
    return session.get_one(Token, made)


def find(session: Session, digest: str) -> Shown | None:
    """What the secret with this hash proves; None for one that was never given out.

    Found by the hash, in an index: how long that takes tells nothing of the secret.
    """
    parent = aliased(Token)
    now = dialect.now(session)
    alive = and_(
        Token.revoked_at.is_(None),
        Token.expires_at > now,
        or_(Token.parent.is_(None), and_(parent.revoked_at.is_(None), parent.expires_at > now)),
    )
    noted = and_(Token.used_at.is_not(None), Token.used_at > now - USE_SECONDS)
    row = session.execute(
        select(
            Token.id, Token.parent, Token.owner, Token.team, Token.scope, alive.label("alive"), noted.label("noted"),
            Team,
        )
        .outerjoin(parent, parent.id == Token.parent)
        .outerjoin(Team, Team.name == Token.team)
        .where(Token.hash == digest)
    ).one_or_none()  # fmt: skip
    if row is None:
        return None
    number, above, owner, team, scope, is_alive, is_noted, rules = row
    return Shown(number, above or number, owner, team, scope, bool(is_alive), bool(is_noted), rules)


def note_use(session: Session, token: int) -> None:
    """Write down that a token was used now, unless that was done within the last minute."""
    now = dialect.now(session)
    session.execute(
        update(Token)
        .where(Token.id == token, or_(Token.used_at.is_(None), Token.used_at <= now - USE_SECONDS))
        .values(used_at=now)
        .execution_options(synchronize_session=False)
    )


def get(session: Session, token: int) -> Token | None:
    """One token; no session."""
    row = session.get(Token, token)
    return row if row is not None and row.parent is None else None


def page(session: Session, *, before: int | None = None, limit: int = 200) -> list[Token]:
    """Tokens, newest first; no sessions."""
    statement = select(Token).where(Token.parent.is_(None)).order_by(Token.id.desc()).limit(limit)
    if before is not None:
        statement = statement.where(Token.id < before)
    return list(session.execute(statement).scalars())


def revoke(session: Session, token: int) -> bool:
    """Make a token worth nothing, with its sessions; False when it was so already."""
    done = session.execute(
        update(Token)
        .where(Token.id == token, Token.revoked_at.is_(None))
        .values(revoked_at=dialect.now(session))
        .returning(Token.id)
        .execution_options(synchronize_session=False)
    ).scalar_one_or_none()
    session.execute(delete(Token).where(Token.parent == token).execution_options(synchronize_session=False))
    return done is not None


def end_session(session: Session, digest: str) -> int | None:
    """Forget a session; the id that it had."""
    return session.execute(
        delete(Token).where(Token.hash == digest, Token.parent.is_not(None)).returning(Token.id)
    ).scalar_one_or_none()


def forget_sessions(session: Session) -> None:
    """Forget sessions that are over."""
    over = and_(Token.parent.is_not(None), Token.expires_at <= dialect.now(session))
    session.execute(delete(Token).where(over).execution_options(synchronize_session=False))
