"""Facts of the run that no YAML tells: environment, versions, the machine, the checkpoint that is resumed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from blendex.errors import BlendexError, Code

LARGEST = 4 * 2**20
_KNOWN = ("environment", "versions", "vm.max_map_count", "mounts", "checkpoint", "walltime", "build")
_CHECKPOINT = ("world_size", "num_workers", "devices", "num_nodes", "max_steps", "seed")
_BUILD = ("workers", "memory_bytes")


@dataclass(frozen=True)
class Facts:
    """What is known of the run; None means that nobody has said.

    Args:
        environment: every variable of the training process, or None.
        versions: installed packages by name, or None; a package that is not named is not installed.
        max_map_count: ``vm.max_map_count`` of the nodes.
        mounts: folder → kind of filesystem (``node-local`` marks one that each node has for itself).
        checkpoint: what the checkpoint that shall be resumed was saved with.
        walltime: seconds that a chunk may take.
        build: ``workers`` and ``memory_bytes`` of the job that builds indexes with upstream's scripts.
    """

    environment: Mapping[str, str] | None = None
    versions: Mapping[str, str] | None = None
    max_map_count: int | None = None
    mounts: Mapping[str, str] = field(default_factory=dict)
    checkpoint: Mapping[str, Any] = field(default_factory=dict)
    walltime: float | None = None
    build: Mapping[str, int] = field(default_factory=dict)


def _bad(message: str, next_step: str) -> BlendexError:
    return BlendexError(Code.BAD_REQUEST, message, next_step=next_step)


def _texts(value: Any, name: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise _bad(f"{name} of the facts is no object of texts.", f'Write {{"{name}": {{"NAME": "value"}}}}.')
    return dict(value)


def _numbers(value: Any, name: str, known: tuple[str, ...]) -> dict[str, int]:
    if not isinstance(value, dict):
        raise _bad(f"{name} of the facts is no object.", f"Give it some of {', '.join(known)}.")
    for key, item in value.items():
        if key not in known or isinstance(item, bool) or not isinstance(item, int):
            raise _bad(
                f"{name}.{str(key)[:80]} of the facts is unknown, or no whole number.",
                f"Known are {', '.join(known)}.",
            )
    return dict(value)


def read_facts(text: bytes) -> Facts:
    """The facts in a JSON text.

    Raises:
        BlendexError: bad_request, naming what is wrong.
    """
    if len(text) > LARGEST:
        raise _bad(f"the facts have more than {LARGEST:,} bytes.", "Say only what the page of rules names.")
    try:
        data = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise _bad("the facts are no JSON.", "Send one JSON object.") from None
    if not isinstance(data, dict):
        raise _bad("the facts are no JSON object.", "Send one JSON object.")
    for key in data:
        if key not in _KNOWN:
            raise _bad(f"the fact {str(key)[:80]!r} is unknown.", f"Known are {', '.join(_KNOWN)}.")
    maps = data.get("vm.max_map_count")
    if maps is not None and (isinstance(maps, bool) or not isinstance(maps, int)):
        raise _bad("vm.max_map_count of the facts is no whole number.", "Give what sysctl prints.")
    walltime = data.get("walltime")
    return Facts(
        environment=_texts(data["environment"], "environment") if "environment" in data else None,
        versions=_versions(data["versions"]) if "versions" in data else None,
        max_map_count=maps,
        mounts=_texts(data.get("mounts", {}), "mounts"),
        checkpoint=_numbers(data.get("checkpoint", {}), "checkpoint", _CHECKPOINT),
        walltime=None if walltime is None else _walltime(walltime),
        build=_numbers(data.get("build", {}), "build", _BUILD),
    )


def _versions(value: Any) -> dict[str, str]:
    return {name.lower().replace("_", "-"): version for name, version in _texts(value, "versions").items()}


def _walltime(value: Any) -> float:
    seconds = seconds_of(value) if isinstance(value, str) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise _bad("walltime of the facts is no time.", 'Write "04:00:00", "1-00:00:00", or seconds.')
    return float(seconds)


def seconds_of(text: str) -> float | None:
    """Seconds of a time as SLURM (``D-HH:MM:SS``, ``MM``) and NeMo (``DD:HH:MM:SS``) write it; None when it is none.

    With one colon, SLURM means minutes and seconds.
    """
    match = re.fullmatch(r"(?:(\d{1,4})[-:])?(\d{1,4}):(\d{1,2}):(\d{1,2})", text.strip())
    if match:
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
    match = re.fullmatch(r"(?:(\d{1,4})-(\d{1,4})(?::(\d{1,2}))?)", text.strip())
    if match:
        days, hours, minutes = (int(part or 0) for part in match.groups())
        return float(((days * 24 + hours) * 60 + minutes) * 60)
    match = re.fullmatch(r"(\d{1,6})(?::(\d{1,2}))?", text.strip())
    if match:
        minutes, seconds = (int(part or 0) for part in match.groups())
        return float(minutes * 60 + seconds)
    return None


_VERSION = re.compile(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?(?:\.?(a|b|rc|dev)(\d+))?")
_STAGE = {"dev": 0, "a": 1, "b": 2, "rc": 3, "": 4}


def version_key(text: str) -> tuple[int, int, int, int, int] | None:
    """A version as something to compare; None when it is none. Local parts (``+git``) do not count."""
    match = _VERSION.match(text)
    if match is None:
        return None
    major, minor, patch, stage, number = match.groups()
    return int(major), int(minor or 0), int(patch or 0), _STAGE[stage or ""], int(number or 0)
