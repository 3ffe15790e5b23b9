"""``blendex builds``."""

from __future__ import annotations

from typing import Annotated

import typer

from blendex.cli.client import open_client
from blendex.cli.options import Json, Packs, RootDir, Server, Sidecars, Tars

app = typer.Typer(help="List builds, look at one, cancel, retry, accept or pack it.", invoke_without_command=True)


@app.callback()
def list_builds(
    context: typer.Context,
    state: Annotated[str | None, typer.Option(help="Only builds in this state.")] = None,
    label: Annotated[
        list[str] | None, typer.Option(help="KEY=VALUE: only builds that have it. May be repeated.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=200)] = 20,
    json: Json = False,
    server: Server = None,
    root: RootDir = None,
) -> None:
    """Newest first."""
    from blendex.cli import output

    if context.invoked_subcommand is None:
        output.builds(open_client(root, server).builds(state, label or [], limit), json)


@app.command("show")
def show_build(build: str, json: Json = False, server: Server = None, root: RootDir = None) -> None:
    """One build, with its problems."""
    from blendex.cli import output

    output.build_detail(open_client(root, server).show_build(build), json)


@app.command("log")
def log_of_build(build: str, json: Json = False, server: Server = None, root: RootDir = None) -> None:
    """What happened to a build, the newest last."""
    from blendex.cli import output

    output.log(open_client(root, server).log(build), json)


@app.command("cancel")
def cancel_build(build: str, json: Json = False, server: Server = None, root: RootDir = None) -> None:
    """Withdraw a build; what others wait for goes on."""
    from blendex.cli import output

    output.show(open_client(root, server).cancel(build), json, f"{build} cancelled")


@app.command("retry")
def retry_build(build: str, json: Json = False, server: Server = None, root: RootDir = None) -> None:
    """Do a failed or cancelled build again."""
    from blendex.cli import output

    with output.progress(enabled=not json) as watch:
        result = open_client(root, server).retry(build, watch)
    output.build_result(result, json)


@app.command("accept")
def accept_build(
    build: str,
    why: Annotated[str, typer.Option(help="Why the bad entries may be missing; kept in the receipt.")],
    who: Annotated[str | None, typer.Option(help="Who says so. Default: the user of this shell.")] = None,
    json: Json = False,
    server: Server = None,
    root: RootDir = None,
) -> None:
    """Publish a failed build without its bad entries."""
    import getpass

    from blendex.cli import output

    with output.progress(enabled=not json) as watch:
        result = open_client(root, server).accept(build, who or getpass.getuser(), why, watch)
    output.build_result(result, json)


@app.command("pack")
def pack_build(
    build: str,
    packs: Packs = "all",
    sidecars: Sidecars = "unpacked",
    tars: Tars = "offsets",
    json: Json = False,
    server: Server = None,
    root: RootDir = None,
) -> None:
    """Pack what a ready build has: a build of its own, of the same blend."""
    from blendex.cli import output

    with output.progress(enabled=not json) as watch:
        result = open_client(root, server).pack(build, {"packs": packs, "sidecars": sidecars, "tars": tars}, watch)
    output.build_result(result, json)


@app.command("rebind")
def rebind_build(
    build: str,
    map: Annotated[list[str], typer.Option(help="OLD=NEW: a prefix as it was, and as it is. May be repeated.")],  # noqa: A002
    json: Json = False,
    server: Server = None,
    root: RootDir = None,
) -> None:
    """Let a ready build follow paths that moved: a build of its own, proven against the old mirror."""
    from blendex.cli import output
    from blendex.cli.submission import pairs

    moves = tuple(pairs(map, "--map").items())
    with output.progress(enabled=not json) as watch:
        result = open_client(root, server).rebind(build, moves, watch)
    output.build_result(result, json)
