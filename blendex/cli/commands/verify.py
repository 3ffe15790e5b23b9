"""``blendex verify``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from blendex.cli.options import Json


def verify(
    mirror: Annotated[Path, typer.Argument(help="The folder of a mirror.")],
    sources: Annotated[bool, typer.Option(help="Also ask whether the sources are unchanged.")] = False,
    json: Json = False,
) -> None:
    """Read a mirror whole and compare it with its receipt."""
    from blendex.cli import output
    from blendex.units.verify import run

    with output.counter("verify", enabled=not json) as report:
        result = run({"mirror": str(mirror.absolute()), "sources": sources}, report)
    output.verify_result(result, json)
