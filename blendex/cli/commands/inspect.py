"""``blendex inspect``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from blendex.cli.options import BaseDir, DataBlendDir, Env, Json, Var, WorldOptions


def inspect(
    file: Annotated[Path, typer.Argument(help="A .idx, .idxpack or .sgroute.")],
    source: Annotated[Path | None, typer.Option(help="The source of a .idx, to compare sizes.")] = None,
    blend: Annotated[
        Path | None,
        typer.Option(help="The ready blend of a .idxpack, to compare keys, sources and layout hash."),
    ] = None,
    base_dir: BaseDir = None,
    data_blend_dir: DataBlendDir = None,
    var: Var = None,
    env: Env = None,
    json: Json = False,
) -> None:
    """Describe an index file, and prove what it says: checksums, ascending offsets, layout hash, sizes."""
    from blendex.cli import output
    from blendex.formats.inspection import inspect as run

    found = run(str(file), None if source is None else str(source))
    if blend is not None and found["format"] == "idxpack" and "collections" in found:
        from blendex.cli.submission import read_world
        from blendex.units.against import against

        world = read_world(WorldOptions(base_dir=base_dir, data_blend_dir=data_blend_dir, var=var, env=env))
        told = against(str(file), str(blend), world)
        found |= {"dataset": told["dataset"], "faults": [*found["faults"], *told["faults"]]}
    output.inspection(found, json)
