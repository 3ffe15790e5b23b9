"""``blendex doctor``."""

from __future__ import annotations

from typing import Annotated

import typer

from blendex.cli.options import Json, RootDir
from blendex.errors import BlendexError, Code


def doctor(
    urls: Annotated[list[str] | None, typer.Argument(help="Objects or prefixes to look at, such as s3://b/p.")] = None,
    second_host: Annotated[
        bool, typer.Option("--second-host", help="Wait for another machine, and time how soon it sees the root.")
    ] = False,
    from_node: Annotated[str | None, typer.Option(help="On that machine: the code that --second-host printed.")] = None,
    json: Json = False,
    root: RootDir = None,
) -> None:
    """Look at root, database, queue, clock and stores, and say of each what to do. Status 1 when something is wrong."""
    from blendex.cli import doctor as command
    from blendex.cli import output

    if second_host and from_node is not None:
        raise BlendexError(Code.BAD_REQUEST, "--second-host and --from-node exclude each other.", next_step="Say one.")
    found = command.examine(root, from_node, second_host, urls or ())
    output.show(command.as_dict(found), json, "\n".join(command.lines(found)))
    raise SystemExit(0 if command.as_dict(found)["healthy"] else 1)
