"""``blendex``: which commands there are. Each has its module in ``commands``."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from blendex.cli.commands import (
    accounts,
    build,
    builds,
    db,
    doctor,
    findings,
    holds,
    inspect,
    lint,
    mirrors,
    names,
    plan,
    sample,
    serve,
    usage,
    verify,
    worker,
)
from blendex.errors import BlendexError

app = typer.Typer(
    name="blendex",
    help="Build, keep and find the indexes that make speech training data randomly accessible.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
for name, group in (
    ("db", db.app), ("builds", builds.app), ("mirrors", mirrors.app), ("names", names.app),
    ("token", accounts.token_app), ("team", accounts.team_app),
):  # fmt: skip
    app.add_typer(group, name=name)
for command in (
    accounts.audit, build.build, plan.plan, findings.findings, lint.lint, usage.usage, serve.serve, worker.worker,
    db.migrate, doctor.doctor, verify.verify, inspect.inspect, sample.sample,
    holds.hold, holds.holds, holds.release, holds.collect,
):  # fmt: skip
    app.command()(command)


@app.callback()
def main(
    token: Annotated[
        str | None,
        typer.Option(help="For --server. Better: BLENDEX_TOKEN, or BLENDEX_TOKEN_FILE, which ps does not show."),
    ] = None,
) -> None:
    """Build, keep and find the indexes that make speech training data randomly accessible."""
    if token is not None:
        os.environ["BLENDEX_TOKEN"] = token


def run() -> None:
    """Run the command line; an error a person can act on ends it with status 1 and no traceback."""
    try:
        app()
    except BlendexError as error:
        from blendex.cli import output

        raise SystemExit(output.error(error)) from None
