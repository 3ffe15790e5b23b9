"""What must be true after a storm, whatever happened in it. A check raises ``ViolationError``, naming what it saw."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import text

from blendex.builds.resolve import Resolver
from blendex.builds.site import Site
from blendex.catalog import states
from blendex.units.receipt import read_receipt
from tests.support.corpus import sidecars

BUDGET_SLACK = 1.05
WORK_SLACK = 1.3


class ViolationError(AssertionError):
    """Something that must hold did not."""


def must(true: bool, what: str) -> None:
    if not true:
        raise ViolationError(what)


def packs(mirror: str) -> dict[str, bytes]:
    """Every pack of a mirror."""
    return {path.name: path.read_bytes() for path in Path(mirror, "packs").glob("*")}


def build_as_calm(root: Path, build: dict[str, Any], calm: dict[str, Any]) -> None:
    """Ready, under the same key, with the same bytes; its pointer leads there."""
    must(build["state"] == "ready", f"build {build['id']} is {build['state']}: {build.get('error')}")
    must(build["mirror"] == calm["mirror"], f"key {build['mirror']} instead of {calm['mirror']}")
    must(sidecars(build["path"]) == sidecars(calm["path"]), "sidecars differ from those of the calm build")
    must(packs(build["path"]) == packs(calm["path"]), "packs differ from those of the calm build")
    pointer = root / "builds" / build["id"] / "path"
    must(pointer.read_text() == build["path"] + "\n", f"{pointer} leads elsewhere")


def poisons_named(excluded: list[dict[str, Any]], wanted: dict[str, str]) -> None:
    """Every poison, and nothing else, is left out, for its own reason."""
    seen = {}
    for item in excluded:
        name = os.path.basename(str(item["problem"]["file"])).removesuffix(".json")
        seen[name] = item["problem"]["code"]
    must(seen == wanted, f"left out: {seen}, should be {wanted}")


def whole(root: Path, keys: set[str]) -> None:
    """One whole mirror per key, nothing partial, nothing private."""
    found = set(os.listdir(root / "mirrors"))
    must(found == keys, f"mirrors: {found ^ keys} are too many or missing")
    for key in keys:
        mirror = root / "mirrors" / key
        receipt = read_receipt(str(mirror), key)
        must((mirror / "READY").exists(), f"{key} has no READY")
        must(stat.S_IMODE(mirror.stat().st_mode) == 0o555, f"{key} can be written to")
        files = sum(len(names) for _, _, names in os.walk(mirror / "idx"))
        counts = receipt["counts"]
        must(files + counts.get("packed", 0) >= counts["sources"], f"{key} holds {files} files for {counts}")
    for folder in ("names", "builds", "objects", "receipts"):
        for place, _, names in os.walk(root / folder):
            odd = [name for name in names if name.startswith(".") or ".tmp" in name]
            must(not odd, f"temporary files in {place}: {odd}")


def ends_well(site: Site, seconds: float = 120.0) -> None:
    """Every build ends, also those that nobody waits for."""
    deadline = time.monotonic() + seconds
    while True:
        with site.work.read() as session:
            running = states.running_builds(session)
        if not running:
            return
        must(time.monotonic() < deadline, f"{running} builds do not end")
        time.sleep(0.2)


def answers(site: Site, ids: list[str]) -> None:
    """Whoever asks for a build is led to a whole mirror, or told that it was collected."""
    resolver = Resolver(site)
    for build in ids:
        answer = resolver.build(build)
        if answer.state == "ready":
            assert answer.path is not None
            read_receipt(answer.path, answer.key)
        else:
            must(answer.state == "collected", f"build {build} is {answer.state}")


def at_rest(site: Site, root: Path, seconds: float = 40.0) -> None:
    """No unit, lease, promise, wake-up or private file is left, nor will be."""
    deadline = time.monotonic() + seconds
    while True:
        with site.work.read() as session:
            left: dict[str, int] = {
                table: session.execute(text(f"SELECT count(*) FROM {table}")).scalar_one()
                for table in ("units", "pending", "subscriptions", "outbox")
            }
        left["staging"] = len(os.listdir(root / "staging"))
        left["trash"] = len(os.listdir(root / "trash"))
        left = {name: count for name, count in left.items() if count}
        if not left:
            return
        must(time.monotonic() < deadline, f"left over: {left}")
        time.sleep(0.2)


def no_child_left(package: str, seconds: float = 10.0) -> None:
    """When all workers have ended, so have all children, whoever their parents were."""
    deadline = time.monotonic() + seconds
    while True:
        left = []
        for process in psutil.process_iter(["cmdline"]):
            command = process.info["cmdline"] or []
            if package in command and process.status() != psutil.STATUS_ZOMBIE:
                left.append(process.pid)
        if not left:
            return
        must(time.monotonic() < deadline, f"children are left: {left}")
        time.sleep(0.1)


def budget_kept(most: int, budget: int) -> None:
    """The children of all workers together never had more than the budget, by more than 5 %."""
    must(most <= budget * BUDGET_SLACK, f"{most / 2**20:.0f} MiB were used, {budget / 2**20:.0f} are the budget")


def work_bounded(read: int, calm: int, killed: int) -> None:
    """No more was read than in the calm build, but for a share and what was killed."""
    must(
        read <= calm * WORK_SLACK + killed,
        f"{read} sources were read by attempts that ended; {calm} calmly, {killed} may have been killed",
    )
