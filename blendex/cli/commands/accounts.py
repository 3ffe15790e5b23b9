"""``blendex token``, ``team``, ``audit``: on the database itself, so that there can be a first token."""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blendex.cli.options import Json, RootDir
from blendex.errors import BlendexError, Code

if TYPE_CHECKING:
    from blendex.builds.site import Site

token_app = typer.Typer(help="Make, list and revoke tokens.", no_args_is_help=True)
team_app = typer.Typer(help="Say what teams may read.", no_args_is_help=True)


@contextmanager
def _site(root: Path | None) -> Iterator[Site]:
    """The site, as whoever sits at this shell uses it."""
    from blendex.builds.site import open_site
    from blendex.catalog.audit import Actor
    from blendex.cli.local import EVERYWHERE
    from blendex.settings import settings_for

    site = open_site(settings_for(root), EVERYWHERE, own=True)
    try:
        yield replace(site, actor=Actor(getpass.getuser(), everything=True, address="command line"))
    finally:
        site.work.engine.dispose()


@token_app.command("create")
def create(
    owner: Annotated[str, typer.Argument(help="Whose it is.")],
    team: Annotated[str, typer.Option(help="Their team.")],
    scope: Annotated[str, typer.Option(help="lookup, read, build or admin; each includes those before it.")] = "build",
    days: Annotated[float, typer.Option(help="How long it is good.")] = 90.0,
    label: Annotated[str, typer.Option(help="What it is for.")] = "",
    json: Json = False,
    root: RootDir = None,
) -> None:
    """Make a token and print it, this once."""
    from blendex.builds import tokens
    from blendex.cli import output

    with _site(root) as site:
        secret, row = tokens.issue(site, owner=owner, team=team, scope=scope, days=days, label=label)
    output.show(tokens.summary(row) | {"token": secret}, json, secret)


@token_app.command("list")
def listed(json: Json = False, root: RootDir = None) -> None:
    """Tokens, newest first; what lets anybody in is not kept."""
    from blendex.builds import tokens
    from blendex.catalog import tokens as rows
    from blendex.cli import output

    with _site(root) as site, site.work.read() as session:
        found = [tokens.summary(row) for row in rows.page(session, limit=10_000)]
    output.tokens(found, json)


@token_app.command("revoke")
def revoke(token: Annotated[int, typer.Argument(help="Its id.")], json: Json = False, root: RootDir = None) -> None:
    """Make a token worth nothing, with every session that was opened with it; a service knows within seconds."""
    from blendex.builds import tokens
    from blendex.cli import output

    with _site(root) as site:
        found = tokens.summary(tokens.revoke(site, token))
    output.show(found, json, f"token {token} is worth nothing")


def _pairs(items: list[str], form: str) -> list[tuple[str, str]]:
    found = []
    for item in items:
        left, sign, right = item.partition("=")
        if not sign or not left or not right:
            raise BlendexError(Code.BAD_REQUEST, f"{item[:80]!r} is not {form}.", next_step=f"Write {form}.")
        found.append((left, right))
    return found


@team_app.command("set")
def set_team(
    name: str,
    roots: Annotated[list[str] | None, typer.Option("--allow-root", help="A folder it may read. Repeatable.")] = None,
    stores: Annotated[
        list[str] | None, typer.Option("--store", help="PROFILE=BUCKETS it may read, as lab=speech-*. Repeatable.")
    ] = None,
    views: Annotated[
        list[str] | None, typer.Option("--view", help="FROM=TO of every submission of the team. Repeatable.")
    ] = None,
    json: Json = False,
    root: RootDir = None,
) -> None:
    """Say all that a team may read, instead of what it might before."""
    from blendex.builds import teams
    from blendex.cli import output

    buckets: dict[str, list[str]] = {}
    for profile, pattern in _pairs(stores or [], "PROFILE=BUCKETS"):
        buckets.setdefault(profile, []).append(pattern)
    with _site(root) as site:
        row = teams.set_team(site, name, roots=roots or [], stores=buckets, views=_pairs(views or [], "FROM=TO"))
    found = teams.summary(row)
    output.pairs(found, json)


@team_app.command("list")
def list_teams(json: Json = False, root: RootDir = None) -> None:
    """Teams, with what they may read."""
    from blendex.builds import teams
    from blendex.catalog import teams as rows
    from blendex.cli import output

    with _site(root) as site, site.work.read() as session:
        found = [teams.summary(row) for row in rows.page(session)]
    output.teams(found, json)


def audit(
    limit: Annotated[int, typer.Option(min=1, max=10_000)] = 50,
    owner: Annotated[str | None, typer.Option(help="Only what they did.")] = None,
    thing: Annotated[str | None, typer.Option("--object", help="Only what was done to it.")] = None,
    json: Json = False,
    root: RootDir = None,
) -> None:
    """Who changed what, newest first."""
    from blendex.builds.teams import deed
    from blendex.catalog import audit as rows
    from blendex.cli import output

    with _site(root) as site, site.work.read() as session:
        found: list[dict[str, Any]] = [
            deed(row) for row in rows.page(session, limit=limit, owner=owner, thing=thing)
        ]
    output.deeds(found, json)
