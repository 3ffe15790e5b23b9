"""How the training section reads: indexed, stateful, iterable, seeded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from blendex.lint.context import Context
from blendex.lint.kinds import shown
from blendex.lint.model import Severity
from blendex.lint.rule import CODE, NOTES, OURS, Example, Hit, at, needs, rule
from blendex.lint.scopes import Section, dotted, once

_ENTRY = "    input_cfg: [{type: nemo, manifest_filepath: /d/a.json}]\n"
FALLBACK_SEED = 42


def section(text: str) -> str:
    """A training config around some lines of its training section."""
    return "data:\n  train_ds:\n" + text + _ENTRY


def _integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def flag(context: Context, key: str, wanted: bool, message: str, sections: list[Section]) -> Iterator[Hit]:
    """A field that must be true, or must not be; each place that says it is told once."""
    for setting in once(part.get(key) for part in sections):
        if not setting.known:
            context.unknown(f"{dotted(setting.pointer)}", "the value of its interpolation")
        elif wanted and setting.value is not True:
            yield needs(setting, True, message)
        elif not wanted and setting.value not in (False, None):
            yield needs(setting, False, message)


@dataclass(frozen=True, slots=True)
class _Flag:
    """A switch of training sections that has one right state."""

    id: str
    key: str
    wanted: bool
    title: str
    why: str
    otherwise: str
    message: str
    bad: str


_FLAGS = (
    _Flag(
        "IDX001", "indexed", True, "Training reads by index",
        "Only indexed readers can be put back to the example they were at.",
        "Readers stream: a resumed run replays or skips data.",
        "Training does not read by index.", "seed: 1",
    ),
    _Flag(
        "IDX002", "use_stateful_dataloader", True, "The dataloader keeps its state",
        "The state of the iterator has to be in the checkpoint.", "A resumed run begins its data anew.",
        "The dataloader does not keep its state in checkpoints.", "use_stateful_dataloader: false  # as before",
    ),
    _Flag(
        "IDX008", "force_finite", False, "Training has no end of its own",
        "Finite sources end one by one, and cap the mixture.",
        "The weights of the blend do not hold, or an epoch ends early.",
        "Training is made finite.", "force_finite: true",
    ),
)  # fmt: skip


def _enter(item: _Flag) -> None:
    right = f"{item.key}: {shown(item.wanted)}"
    _, there, comment = item.bad.partition("  #")
    fixed = f"{right}{there}{comment}" if item.bad.startswith(item.key) else f"{item.bad}\n    {right}"

    @rule(
        item.id, Severity.ERROR, title=item.title, where=f"train_ds.{item.key}", why=item.why,
        otherwise=item.otherwise, source=NOTES, patch=f"sets `{right}`",
        example=Example(
            bad=section(f"    {item.bad}\n"), good=section(f"    {right}\n"), fixed=section(f"    {fixed}\n")
        ),
    )  # fmt: skip
    def check(context: Context) -> Iterator[Hit]:
        yield from flag(context, item.key, item.wanted, item.message, context.training)


for _item in _FLAGS:
    _enter(_item)


@rule(
    "IDX003", Severity.ERROR,
    title="Training is iterable (today) or map-style (older notes)", where="train_ds.force_map_dataset",
    why="Map-style training keeps sampling and manifests in the main process; indexed sources part themselves by rank "
    "and worker. The notes that came with lhotse 2.0.0a7 asked for the contrary.",
    otherwise="Long starts and steps, worse with every node.",
    source=NOTES, patch="sets `force_map_dataset: false`, when no entry stands against it; true for the older profile",
    example=Example(bad=section("    force_map_dataset: true\n"), good=section("    force_map_dataset: false\n"),
                    fixed=section("    force_map_dataset: false\n")),
)  # fmt: skip
def map_style(context: Context) -> Iterator[Hit]:
    """``force_map_dataset`` is true where it should be false, or the contrary for older texts."""
    if context.profile.map_training:
        yield from flag(context, "force_map_dataset", True, "Training is not map-style.", context.training)
        return
    for hit in flag(context, "force_map_dataset", False, "Training is map-style.", context.training):
        if _stands_against(context):
            fix = "Mend the entries that cannot be read by index (IDX010 to IDX019), then set it to false."
            yield Hit(hit.document, hit.path, hit.pointer, hit.message, hit.value, hit.wanted, fix)
        else:
            yield hit


def _stands_against(context: Context) -> bool:
    """Whether an entry cannot be read in iterable training."""
    from blendex.lint.rule import RULES

    kept = context.rule, list(context.unchecked)
    try:
        return any(
            next(iter(RULES[name].check(context)), None) is not None
            for name in (f"IDX{number:03}" for number in range(10, 20))
            if name not in ("IDX016", "IDX018")
        ) or any(entry.training and entry.type in ("txt", "txt_pair", "multi_speaker_simulator")
                 for entry in context.entries)  # fmt: skip
    finally:
        context.rule, context.unchecked = kept


@rule(
    "IDX004", Severity.ERROR,
    title="One flavour of dataset", where="train_ds.force_map_dataset, force_iterable_dataset",
    why="Upstream asserts that not both are true.",
    otherwise="The run ends at its start.",
    source=f"{CODE}, determine_use_iterable_dataset",
    patch="sets the one that is not wanted to false: `force_map_dataset` in training, the other in validation",
    example=Example(
        bad=section("    force_map_dataset: true\n    force_iterable_dataset: true\n"),
        good=section("    force_iterable_dataset: true\n"),
        fixed=section("    force_map_dataset: false\n    force_iterable_dataset: true\n"),
    ),
)  # fmt: skip
def both(context: Context) -> Iterator[Hit]:
    """Both flavours are forced."""
    for part in context.training + context.evaluation:
        mapped, iterable = part.get("force_map_dataset"), part.get("force_iterable_dataset")
        if mapped.value is True and iterable.value is True:
            keep_map = part.role == "eval" or context.profile.map_training
            drop = iterable if keep_map else mapped
            yield needs(drop, False, "The dataset is forced to be map-style and iterable at once.")


@rule(
    "IDX005", Severity.ERROR,
    title="The shard seed is a number", where="train_ds.shard_seed",
    why="`trng` (the default) and `randomized` are drawn again at every start.",
    otherwise="Data comes in another order after a resume; with `randomized` and several partitions the multiplexer "
    "refuses to start.",
    source=NOTES, patch="copies `seed`, else 42",
    example=Example(bad=section("    seed: 7\n    shard_seed: randomized\n"),
                    good=section("    seed: 7\n    shard_seed: 7\n"),
                    fixed=section("    seed: 7\n    shard_seed: 7\n")),
)  # fmt: skip
def shard_seed(context: Context) -> Iterator[Hit]:
    """``shard_seed`` is no integer."""
    yield from _seed(context, "shard_seed", "The shard seed is drawn anew at every start.")


def _seed(context: Context, key: str, message: str) -> Iterator[Hit]:
    parts = {part.get(key).pointer: part for part in reversed(context.training)}
    for setting in once(part.get(key) for part in context.training):
        if not setting.known:
            context.unknown(dotted(setting.pointer), "the value of its interpolation")
        elif not setting.written or not _integer(setting.value):
            seed = parts[setting.pointer].get("seed")
            wanted = seed.value if key != "seed" and seed.written and _integer(seed.value) else FALLBACK_SEED
            yield needs(setting, wanted, message)


@rule(
    "IDX006", Severity.ERROR,
    title="The seed is a number that the config says", where="train_ds.seed",
    why="All chunks of a chain must share one seed; what is not written may differ with a version or a launcher.",
    otherwise="The generators of model and data differ between chunks.",
    source=NOTES, patch="sets 42",
    example=Example(bad=section("    seed: trng\n"), good=section("    seed: 1\n"), fixed=section("    seed: 42\n")),
)  # fmt: skip
def seed(context: Context) -> Iterator[Hit]:
    """``seed`` is not set, or no integer."""
    yield from _seed(context, "seed", "The seed is not a number that the config says.")


@rule(
    "IDX007", Severity.ERROR,
    title="No bucketing in the background", where="train_ds.concurrent_bucketing",
    why="A thread that fills buckets advances the source outside of the saved state; it is on by default.",
    otherwise="Data between the checkpoint and the thread is lost or doubled after a resume, in silence.",
    source=NOTES, patch="sets `concurrent_bucketing: false`",
    example=Example(bad=section("    use_bucketing: true\n"), good=section("    use_bucketing: false\n"),
                    fixed=section("    use_bucketing: true\n    concurrent_bucketing: false\n")),
)  # fmt: skip
def concurrent(context: Context) -> Iterator[Hit]:
    """``concurrent_bucketing`` is not false while bucketing is on."""
    for part in context.training:
        setting = part.get("concurrent_bucketing")
        if not setting.known:
            context.unknown(f"{part.name}.concurrent_bucketing", "the value of its interpolation")
        elif _bucketing(part) and setting.value is not False:
            yield needs(setting, False, "Buckets are filled by a thread whose progress no checkpoint knows.")


def _bucketing(part: Section) -> bool:
    return part.get("use_bucketing").value is True


@rule(
    "IDX009", Severity.WARNING,
    title="Indexes have a place of their own", where="train_ds.indexes_root",
    why="Without it sidecars lie beside the sources, which are often read-only, remote, or shared.",
    otherwise="Every rank builds what is missing at the start, racing the others.",
    source=NOTES,
    example=Example(bad=section("    indexed: true\n"), good=section("    indexes_root: /lustre/mirror/idx\n")),
)  # fmt: skip
def indexes_root(context: Context) -> Iterator[Hit]:
    """``indexes_root`` is not set and packs do not cover every entry."""
    parts = {part.get("indexes_root").pointer: part for part in reversed(context.training)}
    for setting in once(part.get("indexes_root") for part in context.training):
        if setting.value is not None or not setting.known:
            continue
        entries = parts[setting.pointer].entries
        if entries and all(
            entry.get("indexes_root").value is not None or entry.get("index_pack").value is not None
            for entry in entries
        ):
            continue
        yield at(
            setting,
            "No place for indexes is set.",
            wanted="the idx folder of a mirror",
            fix="Build a mirror and set indexes_root to its idx folder, or train the ready blend.",
        )


@rule(
    "IDX029", Severity.ERROR,
    title="No approximate multiplexer", where="train_ds.max_open_streams",
    why="The multiplexer that limits open streams cannot be checkpointed.",
    otherwise="No exact resume; with `force_finite` it asserts.",
    source=f"{OURS}; {CODE}, cutset.py", patch="sets `max_open_streams: null`, which is its default",
    example=Example(bad=section("    max_open_streams: 8\n"), good=section("    seed: 1\n"),
                    fixed=section("    max_open_streams: null\n")),
)  # fmt: skip
def open_streams(context: Context) -> Iterator[Hit]:
    """``max_open_streams`` is set."""
    entries = (entry for entry in context.entries if entry.training and not entry.classic)
    own = (entry.own("max_open_streams") for entry in entries)
    for setting in once((*(part.get("max_open_streams") for part in context.training), *own)):
        if setting.known and setting.value is not None:
            yield needs(
                setting, None, "The number of open streams is limited, which takes a multiplexer without a state."
            )  # fmt: skip


@rule(
    "IDX057", Severity.NOTE,
    title="Augmentation with a generator of its own", where="train_ds.rir_enabled, noise_path, perturb_speed",
    why="The order of data resumes; what augmentation draws may not.",
    otherwise="The same examples come with other noise after a resume.",
    source=OURS,
    example=Example(bad=section("    rir_enabled: true\n"), good=section("    rir_enabled: false\n")),
)  # fmt: skip
def augmentation(context: Context) -> Iterator[Hit]:
    """Some augmentation is on."""
    for part in context.training:
        for key in ("rir_enabled", "noise_path", "perturb_speed", "lowpass_enabled", "compression_enabled",
                    "clipping_enabled", "concatenate_samples"):  # fmt: skip
            setting = part.get(key)
            if setting.known and setting.value not in (None, False):
                yield at(
                    setting,
                    f"{key} draws from a generator of its own.",
                    value="set" if key == "noise_path" else None,
                    fix="Nothing, if the same order of data is enough; else switch it off.",
                )


@rule(
    "IDX113", Severity.ERROR,
    title="No ellipsis of a document", where="train_ds.bucket_duration_bins and other lists of numbers",
    why="`...` copied from a page is a text in YAML.",
    otherwise="The run ends while it makes its buckets.",
    source=OURS,
    example=Example(bad=section("    bucket_duration_bins: [2.0, 4.0, ..., 30.0]\n"),
                    good=section("    bucket_duration_bins: [2.0, 4.0, 30.0]\n")),
)  # fmt: skip
def ellipsis_in_list(context: Context) -> Iterator[Hit]:
    """A list of numbers holds the text ``...``."""
    for part in context.training + context.evaluation:
        for key, value in part.node.items():
            if isinstance(value, list) and any(item in ("...", "…") for item in value if isinstance(item, str)):
                setting = part.get(key) if isinstance(key, str) else None
                if setting is not None and any(isinstance(item, int | float) for item in value):
                    yield at(setting, f"{key} holds an ellipsis.", fix="Write the numbers out.")
