"""The environment that a run is started in."""

from __future__ import annotations

from collections.abc import Iterator

from blendex.errors import BlendexError
from blendex.lint.context import Context
from blendex.lint.facts import version_key
from blendex.lint.model import Severity
from blendex.lint.rule import CODE, NOTES, OURS, Example, Hit, in_launcher, on, rule

_CONFIG = "train_ds:\n  indexed: true\n  input_cfg: [{type: nemo, manifest_filepath: /d/a.json}]\n"
_FIRST_LHOTSE = version_key("2.0.0a1")
# The newest release; it knows none of the keys that training by index needs.
_LAST_UNFIT_NEMO = version_key("3.0.0")
# One map for each sidecar, by the readers of lhotse 2.0.0a7 and nemo-toolkit 3.0.0; the rest is for the process.
_MAPS_TO_SPARE = 5000
# What a worker of upstream's builder holds of a manifest: its lines' lengths as Python integers, and a buffer.
_BYTES_PER_MANIFEST_BYTE = 0.5
_BYTES_PER_WORKER = 300 * 2**20


@rule(
    "IDX050", Severity.ERROR,
    title="Nobody sets the signal of partitions", where="environment: LHOTSE_USE_WORKER_PARTITION",
    why="Workers set it for themselves; set from outside it parts data that is not to be parted.",
    otherwise="Each process reads a part of the data, in silence.",
    source=NOTES,
    example=Example(bad=_CONFIG, good=_CONFIG, launcher="export LHOTSE_USE_WORKER_PARTITION=1\nsrun python "
                                                        "train.py a=1\n",
                    good_launcher="srun python train.py a=1\n"),
)  # fmt: skip
def partition_signal(context: Context) -> Iterator[Hit]:
    """``LHOTSE_USE_WORKER_PARTITION`` is set."""
    name = "LHOTSE_USE_WORKER_PARTITION"
    launcher = context.launcher
    if launcher is not None and name in launcher.environment:
        said = launcher.environment[name]
        yield in_launcher(context, said.line, f"{name} is set by hand.", field=f"environment.{name}", value=said.value,
                          wanted="not set", fix="Remove the line.")  # fmt: skip
    elif context.facts.environment is not None and name in context.facts.environment:
        part = next(iter(context.training or context.sections), None)
        if part is not None:
            yield on(part, f"{name} is set in the environment.", value="set", wanted="not set", fix=f"unset {name}")
    elif context.facts.environment is None and context.is_config:
        context.unknown(f"whether {name} is set", "environment in the facts")


@rule(
    "IDX051", Severity.FATAL,
    title="The installed packages read by index", where="versions of lhotse and nemo-toolkit",
    why="lhotse before 2.0.0a1 has no indexed reader for this, and nemo-toolkit 3.0.0 takes the keys with "
        "a warning and "
    "ignores them.",
    otherwise="Training streams, and nothing resumes exactly.",
    source=f"{OURS}; nemo-toolkit 3.0.0, lhotse 2.0.0a7",
    example=Example(bad=_CONFIG, good=_CONFIG, facts={"versions": {"lhotse": "1.31.0", "nemo-toolkit": "3.1.0"}},
                    good_facts={"versions": {"lhotse": "2.0.0a7", "nemo-toolkit": "3.1.0rc0"}}),
)  # fmt: skip
def versions(context: Context) -> Iterator[Hit]:
    """An installed version cannot."""
    if not context.training:
        return
    installed = context.facts.versions
    if installed is None:
        context.unknown("the versions of lhotse and nemo-toolkit", "versions in the facts")
        return
    part = context.training[0]
    for name, least, strict in (("lhotse", _FIRST_LHOTSE, False), ("nemo-toolkit", _LAST_UNFIT_NEMO, True)):
        text = installed.get(name)
        key = version_key(text) if text is not None else None
        if text is None:
            yield on(part, f"{name} is not among the installed packages.", value="not installed", wanted="installed",
                     fix=f"Install a {name} that reads by index.")  # fmt: skip
        elif key is None:
            context.unknown(f"whether {name} {text[:80]} reads by index", "a version number")
        elif least is not None and (key <= least if strict else key < least):
            wanted = "newer than 3.0.0" if strict else "2.0.0a1 or newer"
            yield on(part, f"{name} {text[:80]} does not read by index.", value=text[:80], wanted=wanted,
                     fix=f"Install a {name} that does; of NeMo that is the main branch.")  # fmt: skip


@rule(
    "IDX052", Severity.NOTE,
    title="The builder's workers fit into memory", where="facts: build.workers, build.memory_bytes",
    why="Each worker of upstream's builder holds a manifest in hand.",
    otherwise="BrokenProcessPool after hours.",
    source=f"{NOTES}; {CODE}, build_indexes.py",
    example=Example(
        bad=_CONFIG, good=_CONFIG, nested={"/d/a.json": '{"a": 1}\n'},
        facts={"build": {"workers": 64, "memory_bytes": 4_000_000_000}},
        good_facts={"build": {"workers": 4, "memory_bytes": 4_000_000_000}},
    ),
)  # fmt: skip
def builder_memory(context: Context) -> Iterator[Hit]:
    """Workers times the largest manifest is more than there is."""
    workers, memory = context.facts.build.get("workers"), context.facts.build.get("memory_bytes")
    if workers is None or memory is None or not context.sections:
        return
    paths = [source.path for entry in context.entries for source in entry.of_kind("jsonl")]
    sizes = [
        stat.size
        for stat in context.lookups.stats(paths).values()
        if stat is not None and not isinstance(stat, BlendexError)
    ]
    if not sizes:
        context.unknown("the size of the manifests", "sources that can be read here")
        return
    need = int(workers * (_BYTES_PER_WORKER + _BYTES_PER_MANIFEST_BYTE * max(sizes)))
    if need > memory:
        yield on(
            context.sections[0], f"{workers} workers may need about {need / 2**30:.1f} GiB; there are "
                                 f"{memory / 2**30:.1f}.",
            value=f"{workers} workers", wanted=f"at most {max(1, int(workers * memory / need))} workers",
            fix="Use fewer workers, or Blendex, which admits work by its memory.",
        )  # fmt: skip


@rule(
    "IDX118", Severity.WARNING,
    title="The kernel allows a map for each index", where="facts: vm.max_map_count",
    why="Older readers map each sidecar into memory, and the kernel counts maps.",
    otherwise="Errno 12 at the start, with more than about 65,000 shards.",
    source=f"{NOTES}; lhotse 2.0.0a7 and nemo-toolkit 3.0.0",
    profiles=("main", "2.0.0a7"),
    example=Example(
        bad="train_ds:\n  indexed: true\n  input_cfg: [{type: nemo, manifest_filepath: \"/d/a_{0..69}.json\"}]\n",
        good=_CONFIG, facts={"vm.max_map_count": 5050}, good_facts={"vm.max_map_count": 65530},
    ),
)  # fmt: skip
def maps(context: Context) -> Iterator[Hit]:
    """There are more sources than maps."""
    allowed = context.facts.max_map_count
    if allowed is None:
        return
    for part in context.training:
        many = sum(len(entry.sources) for entry in part.entries if entry.get("index_pack").value is None)
        if many > allowed - _MAPS_TO_SPARE:
            yield on(part, f"{many:,} loose indexes, and vm.max_map_count is {allowed:,}.", value=f"{allowed:,}",
                     wanted=f"at least {many + _MAPS_TO_SPARE:,}",
                     fix="Raise vm.max_map_count, or use packs.")  # fmt: skip
