"""Names: movable labels on builds."""

from __future__ import annotations

import re

from blendex.errors import BlendexError, Code

# Never a path: no slash, no leading dot, short enough for a file name with a suffix.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def check_name(name: str) -> str:
    """``name``, if it may be one.

    Raises:
        BlendexError: bad_request.
    """
    if not NAME.fullmatch(name) or name.endswith(".json"):
        raise BlendexError(
            Code.BAD_REQUEST,
            f"{name!r} cannot be a name.",
            next_step="Use 1 to 100 letters, digits, dots, dashes and underscores, beginning with a letter or digit.",
        )
    return name
