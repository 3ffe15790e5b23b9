"""Who acts, and the record of what they changed. Rows are only ever added, each in the transaction of its change."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from blendex.catalog import dialect
from blendex.catalog.models import Deed


@dataclass(frozen=True, slots=True)
class Actor:
    """Somebody who asks for something.

    Args:
        owner: a person or program.
        team: theirs; empty for whoever works without accounts.
        everything: sees what is any team's.
        token: id of the token that was shown.
        request: number of the request.
        address: where it came from.
        nameless: nobody in particular, who is told where mirrors are and nothing else.
    """

    owner: str
    team: str = ""
    everything: bool = False
    token: int | None = None
    request: str = ""
    address: str = ""
    nameless: bool = False

    def sees(self, team: str) -> bool:
        """Whether they may know of what is a team's."""
        return self.everything or team == self.team

    @property
    def only(self) -> str | None:
        """The one team whose things they may know of; None: of all."""
        return None if self.everything else self.team


def note(session: Session, who: Actor, action: str, thing: str) -> None:
    """Record a change beside the change itself: both are committed, or none.

    Args:
        session: the transaction of the change.
        who: did it.
        action: two words, as ``build.cancel``.
        thing: the id or name of what was changed; never a text of a record or a secret.
    """
    session.execute(
        dialect.table(Deed)
        .insert()
        .values(
            at=dialect.now(session),
            owner=who.owner[:128],
            team=who.team[:128],
            token=who.token,
            action=action,
            object=thing[:128],
            request=who.request[:64],
            address=who.address[:64],
        )
    )


def page(
    session: Session, *, before: int | None = None, limit: int = 50, owner: str | None = None, thing: str | None = None
) -> list[Deed]:
    """What was done, newest first: before an id, by somebody, to something."""
    statement = select(Deed).order_by(Deed.id.desc()).limit(limit)
    if before is not None:
        statement = statement.where(Deed.id < before)
    if owner is not None:
        statement = statement.where(Deed.owner == owner)
    if thing is not None:
        statement = statement.where(Deed.object == thing)
    return list(session.execute(statement).scalars())
