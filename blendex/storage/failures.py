"""What can go wrong with a store, as drivers tell it: by what to do next, not by whose exception it was.

A failure holds nothing that a server or an SDK said in words: their texts carry URLs, signatures and tokens.
"""

from __future__ import annotations

from enum import Enum, auto

from blendex.errors import BlendexError


class Trouble(Enum):
    """What a failure asks for."""

    MISSING = auto()  # there is no such object, or bucket: final
    DENIED = auto()  # final
    CHANGED = auto()  # the object is another one than was asked for: start over, once
    BROKEN = auto()  # a connection broke, a body ended early, a server failed: resume
    BUSY = auto()  # the store asks for patience
    CONFLICT = auto()  # the store fetches the object from its backend at this moment
    DOWN = auto()  # nobody answers at the endpoint
    SETTINGS = auto()  # no try will ever succeed: certificate, redirects
    FULL = auto()  # a cache has no room to fetch the object
    WRONG = auto()  # an answer to another question: ranges ignored, a page instead of an object
    DAMAGED = auto()  # bytes that are not what their checksum says
    UNABLE = auto()  # the endpoint lacks the ability, such as GetBatch
    SDK = auto()  # the SDK has a shape that its driver does not know


class StoreFailure(Exception):  # noqa: N818 -- the word for what drivers raise
    """One try came to nothing.

    Args:
        trouble: what it asks for.
        detail: a few words of our own for people, such as ``HTTP 503``.
        status: the HTTP status, where there was one.
        wait: seconds the store asked for.
    """

    def __init__(self, trouble: Trouble, detail: str, *, status: int | None = None, wait: float | None = None) -> None:
        super().__init__(detail)
        self.trouble = trouble
        self.detail = detail
        self.status = status
        self.wait = wait


class DamagedError(BlendexError):
    """The checksum of a whole object that was read in pieces is another one than its store tells: read it again."""


def of_status(status: int, wait: float | None = None) -> StoreFailure:
    """The failure that an HTTP status stands for, the same for all stores."""
    detail = f"HTTP {status}"
    known = {
        404: Trouble.MISSING,
        410: Trouble.CHANGED,
        412: Trouble.CHANGED,
        416: Trouble.CHANGED,
        401: Trouble.DENIED,
        403: Trouble.DENIED,
        409: Trouble.CONFLICT,
        429: Trouble.BUSY,
        503: Trouble.BUSY,
        507: Trouble.FULL,
        501: Trouble.UNABLE,
        405: Trouble.UNABLE,
    }
    trouble = known.get(status, Trouble.BROKEN if status >= 500 or status == 408 else Trouble.WRONG)
    return StoreFailure(trouble, detail, status=status, wait=wait)
