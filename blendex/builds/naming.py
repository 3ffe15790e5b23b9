"""Names are moved by people, too: to another build, or back."""

from __future__ import annotations

from blendex.builds.control import not_found
from blendex.builds.site import Site
from blendex.catalog import builds, mirrors
from blendex.errors import BlendexError, Code
from blendex.mirrors.holds import want
from blendex.mirrors.names import check_name
from blendex.mirrors.pointers import write_pointer


def point(site: Site, name: str, build: str) -> None:
    """Let ``name`` point at a ready build; the files follow the transaction.

    Raises:
        BlendexError: bad_request, not_found, wrong_state.
    """
    check_name(name)
    with site.work.write() as session:
        row = builds.get(session, build)
        if row is None:
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
        mirrors.point(session, name, build)
    write_pointer(site.work, site.root, name)
