"""``blendex build``."""

from __future__ import annotations

from typing import Annotated

import typer

from blendex.cli.client import open_client
from blendex.cli.options import BlendOptions, Json, RootDir, Server, grouped


@grouped
def build(
    asked: BlendOptions,
    name: Annotated[str | None, typer.Option(help="A name that shall point at this build.")] = None,
    notify: Annotated[
        list[str] | None, typer.Option(help="A receiver of the settings that is told of the end. Repeatable.")
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(help="KEY=VALUE: to find the build by; changes nothing. May be repeated.")
    ] = None,
    store_patience: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="How long to wait for a store that is away (here).")
    ] = None,
    json: Json = False,
    server: Server = None,
    root: RootDir = None,
) -> None:
    """Build the mirror of a blend; prints its path last."""
    from blendex.cli import output
    from blendex.cli.submission import read_submission

    submission = read_submission(asked, name, notify or (), label or ())
    with output.progress(enabled=not json) as watch:
        result = open_client(root, server, store_patience).build(submission, watch)
    output.build_result(result, json)
