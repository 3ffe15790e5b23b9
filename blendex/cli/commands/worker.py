"""``blendex worker``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from blendex.cli.options import RootDir


def worker(
    classes: Annotated[
        list[str] | None, typer.Option(help="plan, index or publish: the work to claim. May be repeated. Default: all.")
    ] = None,
    slots: Annotated[int | None, typer.Option(min=1, max=256, help="Child processes that work at one time.")] = None,
    budget: Annotated[
        int | None, typer.Option(min=64, help="Memory of all children together, in MiB. Default: what there is.")
    ] = None,
    allow_root: Annotated[
        list[Path] | None, typer.Option(help="A folder in which sources may be read. May be repeated.")
    ] = None,
    healthcheck: Annotated[
        bool, typer.Option("--healthcheck", help="Only say whether the workers of this host consume; 1 when not.")
    ] = False,
    root: RootDir = None,
) -> None:
    """Claim and do units of a shared catalog, woken through BLENDEX_BROKER_URL, until SIGTERM."""
    from blendex.cli.worker import healthy, work

    if healthcheck:
        raise typer.Exit(0 if healthy() else 1)
    work(root, allow_root or [], classes or [], slots, budget)
