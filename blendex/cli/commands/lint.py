"""``blendex lint``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from blendex.cli.options import Json, RootDir, WorldOptions, grouped
from blendex.errors import BlendexError, Code


@grouped
def lint(
    files: Annotated[list[Path], typer.Argument(help="Training configs and blends: YAML files.")],
    *,
    fix: Annotated[bool, typer.Option("--fix", help="Write the safe patches into the files.")] = False,
    launcher: Annotated[
        Path | None, typer.Option(help="The script that starts training: sbatch, sh, NeMo-Run.")
    ] = None,
    facts: Annotated[
        Path | None, typer.Option(help="JSON: environment, versions, mounts, checkpoint, walltime.")
    ] = None,
    baseline: Annotated[Path | None, typer.Option(help="JSON: findings that may stand, with reasons.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Short for --fail-on warning.")] = False,
    fail_on: Annotated[str | None, typer.Option(help="fatal, error, warning, note or never. Default: error.")] = None,
    upstream: Annotated[str, typer.Option(help="main, or 2.0.0a7 for the older texts.")] = "main",
    json: Json = False,
    sarif: Annotated[bool, typer.Option("--sarif", help="Print SARIF 2.1.0.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="A folder for the report, the patched files, checklist and build command.")
    ] = None,
    world: WorldOptions,
    root: RootDir = None,
    server: Annotated[
        str | None, typer.Option(help="Have a service lint, with what it knows: sources, catalog, mirrors.")
    ] = None,
) -> None:
    """Say what keeps a training config from resuming exactly, and patch what is safe to patch.

    Exit status: 0 nothing of that severity stands, 1 something does, 2 a file or an option cannot be used.
    """
    from blendex.cli import lint as command
    from blendex.cli import output
    from blendex.cli.submission import read_world

    try:
        if json and sarif:
            raise BlendexError(Code.BAD_REQUEST, "--json and --sarif exclude each other.", next_step="Say one.")
        status = command.run(
            files,
            read_world(world),
            fix=fix,
            launcher=launcher,
            facts=facts,
            baseline=baseline,
            upstream=upstream,
            fail_on=fail_on or ("warning" if strict else "error"),
            form="json" if json else "sarif" if sarif else "text",
            out=out,
            root=root,
            server=server,
        )
    except BlendexError as error:
        output.error(error)
        raise SystemExit(command.UNUSABLE) from None
    raise SystemExit(status)
