"""``blendex usage``."""

from __future__ import annotations

from blendex.cli.client import open_client
from blendex.cli.options import Json, RootDir, Server


def usage(json: Json = False, server: Server = None, root: RootDir = None) -> None:
    """Show what your team uses, and what it may."""
    from blendex.cli import output

    result = open_client(root, server).usage()
    lines = [f"{'of team ' + result['team']:24} {'used':>16} {'quota':>16}"]
    for name in dict.fromkeys([*result["usage"], *result["quota"]]):
        used, quota = result["usage"].get(name, "–"), result["quota"].get(name)
        lines.append(f"{name:24} {used:>16} {'any number' if quota is None else quota:>16}")
    output.show(result, json, "\n".join(lines))
