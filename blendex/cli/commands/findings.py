"""``blendex findings``."""

from __future__ import annotations

from typing import Annotated

import typer

from blendex.cli.client import open_client
from blendex.cli.options import Json, RootDir, Server


def findings(
    build: Annotated[str, typer.Argument(help="The id of a build.")],
    json: Json = False,
    server: Server = None,
    root: RootDir = None,
) -> None:
    """Say what was found in the sources of a build, what it does to training, and what mends it."""
    from blendex.cli import output

    output.findings(open_client(root, server).findings(build), json)
