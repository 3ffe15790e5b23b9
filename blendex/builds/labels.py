"""Labels: what people call their builds by, to find them again. They change nothing about a build.

A label belongs to whoever posted it first: posting the same blend while it runs adds labels, and leaves those that are
there as they are, so that nobody's filter loses a build.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from blendex.errors import BlendexError, Code

MOST = 16
# Letters, digits and what project names, commits, versions and job ids are written with; nothing that needs a quote.
KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,62}")
VALUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@+-]{0,127}")


def _bad(message: str, next_step: str) -> BlendexError:
    return BlendexError(Code.BAD_REQUEST, message, next_step=next_step)


def check(labels: Mapping[str, str]) -> None:
    """Refuse labels that are too many, or written with other characters.

    Raises:
        BlendexError: bad_request.
    """
    if len(labels) > MOST:
        raise _bad(f"there are {len(labels)} labels.", f"Give at most {MOST}.")
    for key, value in labels.items():
        if not KEY.fullmatch(key):
            raise _bad(
                f"the label {key[:80]!r} is no key.",
                "Use up to 63 letters, digits and . _ / -, a letter or digit first.",
            )
        if not VALUE.fullmatch(value):
            raise _bad(
                f"the label {key} has the value {value[:80]!r}.",
                "Use up to 128 letters, digits and . _ / : @ + -, a letter or digit first.",
            )


def parse(items: Iterable[str]) -> dict[str, str]:
    """``KEY=VALUE`` items as labels.

    Raises:
        BlendexError: bad_request, also for a key that comes twice.
    """
    found: dict[str, str] = {}
    for item in items:
        key, sign, value = item.partition("=")
        if not sign:
            raise _bad(f"the label {item[:80]!r} is not KEY=VALUE.", "Write label=KEY=VALUE.")
        if found.setdefault(key, value) != value:
            raise _bad(f"the label {key[:80]} is given twice.", "Give it once.")
    check(found)
    return found


def joined(known: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """The labels of a build that somebody joins with more of them.

    Raises:
        BlendexError: bad_request, when they would be too many.
    """
    together = {**more, **known}
    check(together)
    return together
