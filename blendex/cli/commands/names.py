"""``blendex names``."""

from __future__ import annotations

import typer

from blendex.cli.client import open_client
from blendex.cli.options import Json, RootDir, Server

app = typer.Typer(help="List names, look at one, move one.", invoke_without_command=True)


@app.callback()
def list_names(context: typer.Context, json: Json = False, server: Server = None, root: RootDir = None) -> None:
    """All names."""
    from blendex.cli import output

    if context.invoked_subcommand is None:
        output.names(open_client(root, server).names(), json)


@app.command("show")
def show_name(name: str, json: Json = False, server: Server = None, root: RootDir = None) -> None:
    """Where a name points, and pointed."""
    from blendex.cli import output

    output.pairs(open_client(root, server).show_name(name), json)


@app.command("set")
def set_name(name: str, build: str, json: Json = False, server: Server = None, root: RootDir = None) -> None:
    """Let a name point at a ready build."""
    from blendex.cli import output

    output.pairs(open_client(root, server).set_name(name, build), json)
