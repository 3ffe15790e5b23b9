"""``blendex plan``."""

from __future__ import annotations

from blendex.cli.client import open_client
from blendex.cli.options import BlendOptions, Json, RootDir, Server, grouped


@grouped
def plan(asked: BlendOptions, json: Json = False, server: Server = None, root: RootDir = None) -> None:
    """Say what a build would read and make, without building."""
    from blendex.cli import output
    from blendex.cli.submission import read_submission

    output.plan_result(open_client(root, server).plan(read_submission(asked)), json)
