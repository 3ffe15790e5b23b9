"""From the options of a command to a submission."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from blendex.blend.world import World
from blendex.builds import labels
from blendex.builds.submission import Submission
from blendex.errors import BlendexError, Code


def pairs(items: list[str], option: str) -> dict[str, str]:
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


def read_world(
    base_dir: Path | None, data_blend_dir: str | None, var: list[str], env: list[str], view: list[str]
) -> World:
    """The world that options describe; the base is the current folder unless said otherwise."""
    variables = pairs(var, "--var")
    if data_blend_dir is not None:
        variables["data_blend_dir"] = data_blend_dir
    return World(
        base=os.path.abspath(base_dir or Path.cwd()),
        variables=variables,
        env=pairs(env, "--env"),
        view=tuple(pairs(view, "--view").items()),
    )


def read_submission(
    blend: Path,
    base_dir: Path | None,
    data_blend_dir: str | None,
    var: list[str],
    env: list[str],
    view: list[str],
    allow: list[str],
    compat: str,
    on_bad: str,
    name: str | None,
    packs: str = "auto",
    sidecars: str = "unpacked",
    notify: tuple[str, ...] = (),
    label: list[str] | None = None,
    tars: str = "offsets",
) -> Submission:
    """Read the blend and make the submission; the base is the current folder unless said otherwise."""
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
        world=read_world(base_dir, data_blend_dir, var, env, view),
        compat=compat,
        allow=tuple(part for item in allow for part in item.split(",") if part),
        on_bad=on_bad,
        name=name,
        packs=packs,
        sidecars=sidecars,
        notify=notify,
        labels=labels.parse(label or ()),
        tars=tars,
    )
