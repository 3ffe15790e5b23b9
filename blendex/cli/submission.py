"""From the options of a command to a submission."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from blendex.blend.world import World
from blendex.builds import labels
from blendex.builds.submission import Submission
from blendex.cli.options import BlendOptions, WorldOptions
from blendex.errors import BlendexError, Code


def pairs(items: Sequence[str], option: str) -> dict[str, str]:
    """``NAME=VALUE`` items as a mapping.

    Raises:
        BlendexError: bad_request, naming the item.
    """
    result = {}
    for item in items:
        name, sign, value = item.partition("=")
        if not sign or not name:
            raise BlendexError(Code.BAD_REQUEST, f"{option} {item!r} is not NAME=VALUE.", next_step="Add the =VALUE.")
        result[name] = value
    return result


def read_world(options: WorldOptions) -> World:
    """The world that options describe; the base is the current folder unless said otherwise."""
    variables = pairs(options.var or (), "--var")
    if options.data_blend_dir is not None:
        variables["data_blend_dir"] = options.data_blend_dir
    return World(
        base=os.path.abspath(options.base_dir or Path.cwd()),
        variables=variables,
        env=pairs(options.env or (), "--env"),
        view=tuple(pairs(options.view or (), "--view").items()),
    )


def read_submission(
    options: BlendOptions, name: str | None = None, notify: Sequence[str] = (), label: Sequence[str] = ()
) -> Submission:
    """Read the blend and make the submission."""
    blend = options.blend
    if str(blend) == "-":
        text, file = sys.stdin.buffer.read(), "standard input"
    else:
        try:
            text = blend.read_bytes()
        except OSError as error:
            raise BlendexError(
                Code.NESTED_MISSING,
                f"the blend cannot be read ({error.strerror}).",
                file=str(blend),
                next_step="Check the path.",
            ) from error
        file = os.path.abspath(blend)
    return Submission(
        text=text,
        file=file,
        world=read_world(options),
        compat=options.compat,
        allow=tuple(part for item in options.allow or () for part in item.split(",") if part),
        on_bad=options.on_bad,
        name=name,
        packs=options.packs,
        sidecars=options.sidecars,
        notify=tuple(notify),
        labels=labels.parse(label),
        tars=options.tars,
    )
