"""Does a second machine see what the first one does under a root, and how soon?

The first machine makes ``staging/doctor-<code>/`` with ``ask`` (who it is) and ``pointer`` (``old``), and waits. The
second one reads both, so that it holds them in its caches, and writes ``answer`` (who it is, its clock). The first then
renames a new file onto ``pointer``, which is how names move; the second looks until it reads ``new`` and writes
``seen``. From the rename to the sight of ``seen`` is one way for each of the two caches: no clock of another machine is
needed to time it.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from blendex.errors import BlendexError, Code
from blendex.observability.diagnosis import Diagnosis
from blendex.storage.root import create, flush_folder, remove_tree

EVERY_SECONDS = 0.05
SLOW_SECONDS = 5.0
SKEW_SECONDS = 2.0
CODE_LENGTH = 12
T = TypeVar("T")


def ask(root: str, seconds: float, tell: Callable[[str], None]) -> Iterator[Diagnosis]:
    """The first machine's part.

    Args:
        root: an absolute path.
        seconds: how long to wait for the second machine at each step.
        tell: is given the code, for whoever starts the other part.
    """
    code = os.urandom(CODE_LENGTH // 2).hex()
    place = _place(root, code)
    os.makedirs(place)
    try:
        pointer = os.path.join(place, "pointer")
        create(pointer, b"old")
        _put(place, "ask", _self())
        tell(code)
        answer = _wait(lambda: _get(place, "answer"), seconds)
        if answer is None:
            yield Diagnosis(
                "visible",
                "wrong",
                f"no second machine answered within {seconds:.0f} s.",
                f"Run blendex doctor --from-node {code} there in time; if it was, the two do not share this folder.",
            )
            return
        arrived = time.time()
        if answer["machine"] == _self()["machine"]:
            yield Diagnosis(
                "visible", "warning", f"{answer['host']} is this machine.", "Run --from-node on another one."
            )
        else:
            yield Diagnosis("visible", "ok", f"{answer['host']} sees what is written here, and the other way round.")
        create(os.path.join(place, "next"), b"new")
        begun = time.monotonic()
        os.rename(os.path.join(place, "next"), pointer)
        flush_folder(place)
        seen = _wait(lambda: _get(place, "seen"), seconds)
        yield _moved(answer["host"], None if seen is None else time.monotonic() - begun, seconds)
        yield _skew(answer["host"], arrived - answer["clock"])
    finally:
        remove_tree(place)


def answer(root: str, code: str, seconds: float) -> Iterator[Diagnosis]:
    """The second machine's part.

    Raises:
        BlendexError: bad_request, when the code has another form.
    """
    if len(code) != CODE_LENGTH or not set(code) <= set("0123456789abcdef"):
        raise BlendexError(
            Code.BAD_REQUEST,
            f"{code!r} is no code.",
            next_step="Take the one that blendex doctor --second-host prints.",
        )
    place = _place(root, code)
    asked = _wait(lambda: _get(place, "ask"), seconds)
    if asked is None:
        yield Diagnosis(
            "visible",
            "wrong",
            f"{place} is not to be seen within {seconds:.0f} s.",
            "Let blendex doctor --second-host run meanwhile, on a machine that mounts the same root at this path.",
        )
        return
    pointer = Path(place, "pointer")
    pointer.read_bytes()
    _put(place, "answer", _self())
    try:
        moved = _wait(lambda: pointer.read_bytes() == b"new" or None, seconds)
        if moved is not None:
            _put(place, "seen", _self())
    except FileNotFoundError:  # the other one was told enough, or went away
        moved = None
    if moved is None:
        yield _moved(asked["host"], None, seconds)
    else:
        yield Diagnosis("visible", "ok", f"what {asked['host']} writes and renames is seen here.")


def _moved(host: str, spent: float | None, seconds: float) -> Diagnosis:
    if spent is None:
        return Diagnosis(
            "moved",
            "wrong",
            f"a renamed file was not seen by the other of the two ({host}) within {seconds:.0f} s.",
            "Jobs would read stale names. Mount with a shorter cache of attributes (NFS: actimeo=3).",
        )
    if spent > SLOW_SECONDS:
        return Diagnosis(
            "moved",
            "warning",
            f"a name that moves is seen by {host} and answered after {spent:.1f} s.",
            "Jobs may read an old name for that long. Mount with a shorter cache of attributes (NFS: actimeo=3).",
        )
    return Diagnosis("moved", "ok", f"a name that moves is seen by {host} and answered after {spent:.2f} s.")


def _skew(host: str, skew: float) -> Diagnosis:
    if abs(skew) > SKEW_SECONDS + SLOW_SECONDS:
        return Diagnosis(
            "clocks", "warning", f"the clock of {host} is about {abs(skew):.0f} s off.", "Run NTP on both."
        )
    return Diagnosis("clocks", "ok", f"the clock of {host} agrees to {abs(skew):.1f} s.")


def _place(root: str, code: str) -> str:
    return os.path.join(root, "staging", f"doctor-{code}")


def _self() -> dict[str, Any]:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return {"host": socket.gethostname(), "machine": file.read().strip(), "clock": time.time()}


def _put(place: str, name: str, value: dict[str, Any]) -> None:
    private = os.path.join(place, f".{name}")
    create(private, json.dumps(value).encode())
    os.rename(private, os.path.join(place, name))
    flush_folder(place)


def _get(place: str, name: str) -> dict[str, Any] | None:
    try:
        os.listdir(place)  # asks the server again where a look-up may be answered from a cache
        with open(os.path.join(place, name)) as file:
            value: dict[str, Any] = json.load(file)
            return value
    except FileNotFoundError:
        return None


def _wait(what: Callable[[], T | None], seconds: float) -> T | None:
    deadline = time.monotonic() + seconds
    while (found := what()) is None and time.monotonic() < deadline:
        time.sleep(EVERY_SECONDS)
    return found
