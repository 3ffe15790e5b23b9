"""``blendex mirrors``."""

from __future__ import annotations

from typing import Annotated

import typer

from blendex.cli.client import open_client
from blendex.cli.options import Json, RootDir, Server

app = typer.Typer(help="List mirrors, look at one.", invoke_without_command=True)


@app.callback()
def list_mirrors(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=200)] = 20,
    json: Json = False,
    server: Server = None,
    root: RootDir = None,
) -> None:
    """Newest first."""
    from blendex.cli import output

    if context.invoked_subcommand is None:
        output.mirrors(open_client(root, server).mirrors(limit), json)


@app.command("show")
def show_mirror(key: str, json: Json = False, server: Server = None, root: RootDir = None) -> None:
    """One mirror, with its receipt."""
    from blendex.cli import output

    output.pairs(open_client(root, server).show_mirror(key), json)


@app.command("verify")
def verify_mirror(
    key: str,
    sources: Annotated[bool, typer.Option(help="Also ask whether the sources are unchanged.")] = False,
    json: Json = False,
    server: Server = None,
    root: RootDir = None,
) -> None:
    """Read a mirror whole, compare it with its receipt, and keep the outcome for whoever looks at it."""
    from blendex.cli import output

    with output.counter("verify", enabled=not json) as report:
        output.verification(open_client(root, server).verify_mirror(key, sources, report), json)
