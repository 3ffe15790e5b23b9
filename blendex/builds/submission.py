"""A submission: what is posted. Knows no catalog, so a client of a service stays light."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from blendex.blend.world import World
from blendex.builds import labels
from blendex.errors import BlendexError, Code
from blendex.formats.findings import FINDINGS
from blendex.mirrors.names import NAME, check_name

# Higher ones first; not part of a request's identity: who asks again more urgently hurries the build that runs.
PRIORITIES = {"interactive": 1, "bulk": 0, "maintenance": -1}


def check_packing(packs: str, sidecars: str, tars: str = "offsets") -> None:
    """Refuse options of packs that mean nothing.

    Raises:
        BlendexError: bad_request.
    """
    if sidecars not in ("unpacked", "all"):
        raise BlendexError(Code.BAD_REQUEST, f"sidecars={sidecars!r} is unknown.", next_step="Say unpacked or all.")
    if tars not in ("offsets", "paths"):
        raise BlendexError(Code.BAD_REQUEST, f"tars={tars[:80]!r} is unknown.", next_step="Say offsets or paths.")
    if tars == "paths" and (sidecars == "all" or packs == "none"):
        raise BlendexError(
            Code.BAD_REQUEST,
            "tars=paths reads no tars: there is nothing to write for them beside a pack.",
            next_step="Leave out sidecars=all and packs=none, or say tars=offsets.",
        )
    if not packs or not all(NAME.fullmatch(item) for item in packs.split(",")):
        raise BlendexError(
            Code.BAD_REQUEST,
            f"packs={packs[:200]!r} is unknown.",
            next_step="Say auto, all, none, or the names of datasets with commas between.",
        )


def packing_options(packs: str, sidecars: str, tars: str = "offsets") -> dict[str, str]:
    """The options of packs, as they are stored and as they enter the identity."""
    options = {"packs": ",".join(sorted(set(packs.split(",")))), "sidecars": sidecars}
    return options | ({} if tars == "offsets" else {"tars": tars})


@dataclass(frozen=True, slots=True)
class Submission:
    """What was posted: the text, where it stood, its world, and the options that change the result."""

    text: bytes
    file: str
    world: World
    nested: Mapping[str, bytes] = field(default_factory=dict)  # texts that came along, by path
    compat: str = ""
    allow: tuple[str, ...] = ()
    on_bad: str = "fail"
    name: str | None = None
    packs: str = "auto"
    sidecars: str = "unpacked"
    tars: str = "offsets"
    priority: str = "bulk"
    notify: tuple[str, ...] = ()  # receivers that are told; not part of a request's identity
    labels: Mapping[str, str] = field(default_factory=dict)  # like the name, no part of the identity

    def check(self) -> None:
        """Refuse options that mean nothing.

        Raises:
            BlendexError: bad_request.
        """
        if self.compat not in ("", "upstream"):
            raise BlendexError(
                Code.BAD_REQUEST,
                f"compat={self.compat!r} is unknown.",
                next_step="Leave it out, or say upstream.",
            )
        if self.on_bad not in ("fail", "exclude"):
            raise BlendexError(
                Code.BAD_REQUEST, f"on_bad={self.on_bad!r} is unknown.", next_step="Say fail or exclude."
            )
        check_packing(self.packs, self.sidecars, self.tars)
        if self.priority not in PRIORITIES:
            raise BlendexError(
                Code.BAD_REQUEST,
                f"priority={self.priority[:80]!r} is unknown.",
                next_step=f"Say {', '.join(PRIORITIES)}.",
            )
        for item in self.allow:
            if item not in FINDINGS:
                raise BlendexError(
                    Code.BAD_REQUEST,
                    f"allow={item!r} names no finding.",
                    next_step=f"The findings are {', '.join(sorted(FINDINGS))}.",
                )
        if self.name is not None:
            check_name(self.name)
        labels.check(self.labels)

    @property
    def options(self) -> dict[str, Any]:
        """The options, as they are stored and as they enter the identity."""
        return {
            "compat": self.compat,
            "allow": sorted(set(self.allow)),
            "on_bad": self.on_bad,
        } | packing_options(self.packs, self.sidecars, self.tars)
