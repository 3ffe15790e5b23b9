"""Names are moved by people, too: to another build, or back. A name belongs to the team that made it first."""

from __future__ import annotations

from sqlalchemy.orm import Session

from blendex.builds.site import Site
from blendex.catalog import audit, builds, mirrors
from blendex.errors import BlendexError, Code
from blendex.mirrors.holds import want
from blendex.mirrors.names import check_name
from blendex.mirrors.pointers import write_pointer


def _taken(name: str) -> BlendexError:
    return BlendexError(Code.WRONG_STATE, f"the name {name} is taken.", next_step="Choose another one.")


def not_found(what: str, name: str) -> BlendexError:
    """There is no such thing, or none that the caller may know of."""
    return BlendexError(Code.NOT_FOUND, f"there is no {what} {name}.", next_step=f"List them: blendex {what}s.")


def check_free(session: Session, name: str, team: str) -> None:
    """Refuse a name that is another team's.

    Raises:
        BlendexError: wrong_state. That it is taken is all that is told.
    """
    row = mirrors.name(session, name)
    if row is not None and row.team != team:
        raise _taken(name)


def point(site: Site, name: str, build: str) -> None:
    """Let ``name`` point at a ready build; the files follow the transaction.

    Raises:
        BlendexError: bad_request, not_found, wrong_state.
    """
    check_name(name)
    who = site.who
    with site.work.write() as session:
        row = builds.get(session, build)
        if row is None or not who.sees(row.team):
            raise not_found("build", build)
        if row.state != "ready":
            raise BlendexError(
                Code.WRONG_STATE,
                f"build {build} is {row.state}; a name points at a ready one.",
                next_step="Wait until it is ready.",
            )
        if row.mirror is None or not want(session, site.root, row.mirror):
            raise BlendexError(
                Code.WRONG_STATE,
                f"the mirror of build {build} was collected.",
                next_step="Post the blend again, then point the name at that build.",
            )
        there = mirrors.name(session, name)
        team = who.team if there is None or not who.everything else there.team
        if mirrors.point(session, name, build, team) is None:
            raise _taken(name)
        audit.note(session, who, "name.set", name)
    write_pointer(site.work, site.root, name)
