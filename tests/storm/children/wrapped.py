"""Runs a function of ``blendex.units``; what a source's name says happens while it is read.

``poison-memory``: takes memory until somebody ends it. ``poison-stall``: waits for ever. ``poison-crash``: reads at
address 0. ``poison-change``: grows while it is read. ``heavy``: takes 96 MiB for a moment, as a large one would.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import random
import time
from collections.abc import Callable
from typing import Any

HEAVY_BYTES = 96 * 2**20


def _grow() -> None:
    kept = []
    while True:
        kept.append(bytes(range(256)) * 4096)


def _befall(address: str) -> None:
    if "poison-memory" in address:
        _grow()
    elif "poison-stall" in address:
        time.sleep(100_000)
    elif "poison-crash" in address:
        ctypes.string_at(0)
    elif "poison-change" in address:
        with open(address, "ab") as file:
            file.write(b'{"text": "one more"}\n')
    elif "heavy" in address:
        kept = b"x" * HEAVY_BYTES
        time.sleep(0.1)
        del kept


def run(arguments: dict[str, Any], report: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Call ``function``; note in ``journal``, a line for each attempt that ended, how many sources it read."""
    if offset := arguments["clock"]:
        real, real_ns = time.time, time.time_ns
        time.time = lambda: real() + offset
        time.time_ns = lambda: real_ns() + int(offset * 1e9)
    from blendex.units import index

    module = importlib.import_module(arguments["function"].partition(":")[0])
    inner = arguments["arguments"]
    attempt = inner.get("attempt", "plan")
    read = 0
    build = index.build

    def poisoned(kind: str, source: Any, *rest: Any, **named: Any) -> Any:
        nonlocal read
        read += 1
        _befall(source.stat.address)
        return build(kind, source, *rest, **named)

    index.build = poisoned
    # Plans and publications of a small corpus take milliseconds: too short a time to be killed in.
    pause = 0.0 if arguments["function"].startswith("blendex.units.index") else arguments["pause"]
    time.sleep(pause * random.uniform(0.2, 1))
    try:
        result: dict[str, Any] = module.run(inner, report)
    finally:
        index.build = build
    time.sleep(pause * random.uniform(0.2, 1))
    with open(arguments["journal"], "ab") as journal:
        os.write(journal.fileno(), f"{attempt} {read}\n".encode())
    return result
