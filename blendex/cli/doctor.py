"""``blendex doctor``: is everything that a build needs fit for work, seen from here?"""

from __future__ import annotations

import json as jsons
import sys
from pathlib import Path

from blendex.blend.urls import parts
from blendex.builds.profiles import profiles_for
from blendex.cli.local import settings_for
from blendex.errors import BlendexError, Code
from blendex.storage.probe import Check, examine


def doctor(root: Path | None, urls: list[str], json: bool) -> int:
    """Check every endpoint profile; the exit status: 1 when something is wrong.

    Raises:
        BlendexError: bad_request for what is no URL of an object store; what the settings are wrong in.
    """
    wanted = []
    for url in urls:
        found = parts(url)
        if found is None:
            raise BlendexError(
                Code.BAD_REQUEST, f"{url} is no URL of an object store.", next_step="Write it like s3://bucket/prefix."
            )
        wanted.append(found)
    profiles = profiles_for(settings_for(root), own=True)
    checks: list[Check] = []
    for profile in profiles:
        mine = [item for item in wanted if item[0] in profile.schemes and profile.serves(item[0], item[1])]
        checks += examine(profile, mine)
    for scheme, bucket, _ in wanted:
        if not any(profile.serves(scheme, bucket) for profile in profiles):
            checks.append(
                Check(
                    "-", "auth", False, f"no endpoint profile serves {scheme}://{bucket}.",
                    "Add its bucket to a profile; see docs/stores.md.",
                )
            )  # fmt: skip
    if json:
        sys.stdout.write(jsons.dumps([check.as_dict() for check in checks]) + "\n")
    else:
        _print(checks)
    return 1 if any(check.ok is False for check in checks) else 0


def _print(checks: list[Check]) -> None:
    if not checks:
        sys.stdout.write("There are no endpoint profiles: sources are files. See docs/stores.md for object stores.\n")
    marks = {True: "ok", False: "WRONG", None: "?"}
    for check in checks:
        sys.stdout.write(f"{check.profile:<16} {check.name:<6} {marks[check.ok]:<6} {check.detail}\n")
        if check.next_step:
            sys.stdout.write(f"{'':<30} {check.next_step}\n")
