"""A round: builds, a storm over them, and every check."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blendex.catalog import holds
from tests.storm import checks
from tests.storm.collecting import Collecting
from tests.storm.corpus import POISONS, make
from tests.storm.plant import CHILDREN
from tests.storm.storm import BUDGET_MB, MIB, SETTINGS, Storm, calm, reads
from tests.support.corpus import corpus, wait_until_calm

# Seconds for a build to end when the storm is over: a few on a machine that has nothing else to do.
PATIENCE = 900
# Of all that befalls, what can cost a worker the units in its slots.
LOSING = ("SIGKILL child", "SIGKILL worker", "SIGSTOP longer than a lease", "PostgreSQL restarted", "disk filled")


@dataclass(frozen=True)
class Ground:
    """What storms blow over: blends with poisons, and what becomes of them where nothing happens."""

    data: Path
    blends: list[str]
    calm: list[dict[str, Any]]
    reads: int  # sources that the calm builds read, and those of the unheld mirrors


def prepare(folder: Path, *, shards: int, variants: int) -> Ground:
    """A blend of every kind of source, variants of it, and their calm builds.

    Args:
        folder: empty; it has to stay as long as storms blow.
        shards: of the bulk: each is a manifest and a tar.
        variants: builds beside the first one, each of the same sources and a few of its own.
    """
    data = folder / "data"
    blend = make(data, shards, heavy=12, poisons=True)
    unheld = Collecting.make(data)
    blends = [blend] + [blend + corpus(data, shards=2, name=f"own{number}") for number in range(variants)]
    wait_until_calm()
    built = [calm(folder, text, data) for text in blends]
    return Ground(data, blends, built, reads(folder / "calm-journal")[0] + unheld)


def one(folder: Path, ground: Ground, seed: int, *, each: int, seconds: float, bug: str | None = None) -> Storm:
    """Build all blends of a ground in a storm; ``ViolationError`` if anything is wrong after.

    Args:
        folder: empty.
        ground: the blends.
        seed: of all that happens.
        each: kills wanted in every place.
        seconds: for how long it may blow.
        bug: a mistake that is planted into every worker.
    """
    storm = Storm(folder, seed, bug=bug)
    try:
        storm.start()
        began = time.monotonic()
        storm.collecting = collecting = Collecting(storm, ground.data)
        with storm.cluster.site.work.write() as session:  # held before they are there: a key says what will be
            for build in ground.calm:
                holds.take(session, str(build["mirror"]), "pin", "storm", None, "these builds are checked")
        ids = [storm.post(text, ground.data) for text in ground.blends]
        storm.blow(ids, each=each, most=seconds)
        ended = [storm.ended(build, PATIENCE) for build in ids]
        storm.seconds = time.monotonic() - began
        collecting.end()
        checks.ends_well(storm.cluster.site)
        root = storm.cluster.root
        for build, wanted in zip(ended, ground.calm, strict=True):
            checks.build_as_calm(root, build, wanted)
            checks.poisons_named(build["excluded"], POISONS)
        checks.whole(root, {str(build["mirror"]) for build in ended} | collecting.standing(root))
        checks.answers(storm.cluster.site, [build["id"] for build in collecting.built.values()])
        checks.at_rest(storm.cluster.site, root)
        checks.budget_kept(storm.most_used, BUDGET_MB * MIB)
        killed = sum(storm.events[what] for what in LOSING) * int(SETTINGS["slots"]) * int(SETTINGS["unit_sources"])
        checks.work_bounded(reads(storm.journal)[0], ground.reads, killed)
        assert not storm.broken, storm.broken
    finally:
        storm.close()
    checks.no_child_left(CHILDREN)
    return storm


def table(storms: list[Storm]) -> str:
    """Kills by place and all that happened, over some storms."""
    kills = sum((storm.kills for storm in storms), start=type(storms[0].kills)())
    events = sum((storm.events for storm in storms), start=type(storms[0].events)())
    lines = ["kills on a leased unit, by what the unit was, and of collectors in the middle of a mirror"]
    lines += [f"{count:6} {place}" for place, count in sorted(kills.items())]
    lines += [f"{sum(kills.values()):6} in all", "what else happened"]
    lines += [f"{count:6} {what}" for what, count in sorted(events.items())]
    collected = [storm.collecting for storm in storms if storm.collecting is not None]
    lines.append(f"{sum(one.kept for one in collected):6} looked up with a hold while collectors ran, and kept")
    lines.append(f"{sum(one.gone for one in collected):6} told that they were collected")
    most = max(storm.most_used for storm in storms)
    lines.append(
        f"{most / MIB:6.0f} MiB at most in {sum(storm.samples for storm in storms)} samples, budget {BUDGET_MB} MiB"
    )
    return "\n".join(lines)
