"""``blendex sample``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from blendex.cli.options import Json


def sample(
    folder: Annotated[Path, typer.Argument(help="A folder that does not exist or is empty.")],
    utterances: Annotated[int, typer.Option(help="How many short recordings.")] = 24,
    json: Json = False,
) -> None:
    """Make a small corpus of real WAV and FLAC in upstream's formats, with a blend over it."""
    from blendex.cli import output
    from blendex.sample import make

    path = make(folder, utterances=utterances)
    output.show({"blend": str(path), "data_blend_dir": str(folder.absolute())}, json, str(path))
