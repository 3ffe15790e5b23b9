"""Versions of upstream's rules that differ: what each one asks of a training config."""

from __future__ import annotations

from dataclasses import dataclass

from blendex.errors import BlendexError, Code


@dataclass(frozen=True, slots=True)
class Profile:
    """One state of upstream.

    Args:
        name: what ``--upstream`` takes.
        about: which texts and packages it stands for.
        map_training: training shall run on a map-style dataset (``force_map_dataset: true``).
        gzip: indexed readers take gzipped JSON lines with a ``.gzidx`` beside the index.
    """

    name: str
    about: str
    map_training: bool
    gzip: bool


MAIN = Profile(
    "main",
    "NeMo Speech main at c03be830 with a lhotse newer than 2.0.0a7: iterable training, gzip with `.gzidx`",
    map_training=False,
    gzip=True,
)
OLDER = Profile(
    "2.0.0a7",
    "lhotse 2.0.0a7 and the first migration notes: map-style training, no gzip at all",
    map_training=True,
    gzip=False,
)
PROFILES = {profile.name: profile for profile in (MAIN, OLDER)}


def profile(name: str) -> Profile:
    """The profile of that name.

    Raises:
        BlendexError: bad_request.
    """
    if name not in PROFILES:
        raise BlendexError(
            Code.BAD_REQUEST,
            f"there is no profile of upstream named {name[:80]!r}.",
            next_step=f"Say one of {', '.join(PROFILES)}.",
        )
    return PROFILES[name]
