"""``blendex serve``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from blendex.cli.options import RootDir


def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8765,
    allow_root: Annotated[
        list[Path] | None, typer.Option(help="A folder in which sources may be read. May be repeated.")
    ] = None,
    root: RootDir = None,
) -> None:
    """Serve the API on this machine, with workers in the same process."""
    from blendex.cli.serve import serve as run

    run(host, port, allow_root or [], root)
