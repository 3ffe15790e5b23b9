"""The chain of chunks: topology, seeds, checkpoints, steps, and what the launcher does before each."""

from __future__ import annotations

import re
from collections.abc import Iterator

from blendex.lint.context import Context
from blendex.lint.facts import seconds_of
from blendex.lint.launcher import Said
from blendex.lint.model import Severity
from blendex.lint.rule import CODE, NOTES, OURS, Example, Hit, at, in_launcher, on, rule
from blendex.lint.scopes import Scope, Setting, dotted

_TRAIN = "train_ds:\n  num_workers: 4\n  input_cfg: [{type: nemo, manifest_filepath: /d/a.json}]\n"
_TOPOLOGY = ("num_workers", "devices", "num_nodes", "world_size")
_PARALLEL = re.compile(r"(?:^|[._])(?:tensor|pipeline|context|data|expert|dp|tp|pp|cp)\w*(?:parallel\w*|size)$")
_SLACK = 60.0
_NOT_YAML = ("$", "`")


def scope(context: Context, *names: str) -> Scope | None:
    """The first of some mappings of the config that is there."""
    root = context.root
    if root is None or not context.is_config:
        return None
    return next((found for found in (root.inner(name) for name in names) if found is not None), None)


def _literal(said: Said) -> str | None:
    """What a launcher gives, where that is a plain value."""
    return None if any(mark in said.value for mark in _NOT_YAML) else said.value.strip("'\"")


@rule(
    "IDX037", Severity.ERROR,
    title="Workers and ranks stay the same", where="num_workers, devices, num_nodes, world size, in "
                                                   "config, launcher, checkpoint",
    why="The state of the dataloader is one part for each rank and worker.",
    otherwise="Restoring raises: another number of workers, another world.",
    source=f"{NOTES}; lhotse 2.0.0a7, PartitionedIndexedIterator",
    example=Example(
        bad="trainer: {devices: 8, num_nodes: 2}\n" + _TRAIN, good="trainer: {devices: 8, num_nodes: 2}\n" + _TRAIN,
        facts={"checkpoint": {"world_size": 8, "num_workers": 4}},
        good_facts={"checkpoint": {"world_size": 16, "num_workers": 4}},
    ),
)  # fmt: skip
def topology(context: Context) -> Iterator[Hit]:
    """Config, launcher and checkpoint disagree, or the launcher varies."""
    if not context.training:
        return
    trainer = scope(context, "trainer")
    workers = context.training[0].get("num_workers")
    devices = trainer.get("devices") if trainer is not None else None
    nodes = trainer.get("num_nodes", 1) if trainer is not None else None
    yield from _against_checkpoint(context, workers, devices, nodes)
    yield from _against_launcher(context, workers, devices, nodes)
    if context.launcher is None:
        context.unknown("whether every chunk has the same workers and ranks", "the launcher")
    if not context.facts.checkpoint:
        context.unknown(
            "whether a checkpoint to resume has these workers and ranks", "checkpoint in the facts, or none to resume"
        )


def _whole(setting: Setting | None) -> int | None:
    if setting is None or not setting.known or isinstance(setting.value, bool):
        return None
    return setting.value if isinstance(setting.value, int) else None


def _now(context: Context, setting: Setting | None) -> int | None:
    """What a field is when the run starts: what the launcher makes it, else what the config says."""
    if setting is None or context.launcher is None:
        return _whole(setting)
    said = context.launcher.overrides.get(dotted(setting.pointer))
    if said is None:
        return _whole(setting)
    values = {_literal(item) for item in said if not item.varies}
    value = values.pop() if len(values) == 1 else None
    return int(value) if value is not None and value.isdigit() else None


def _against_checkpoint(
    context: Context, workers: Setting, devices: Setting | None, nodes: Setting | None
) -> Iterator[Hit]:
    saved = context.facts.checkpoint
    for setting, key in ((workers, "num_workers"), (devices, "devices"), (nodes, "num_nodes")):
        now = _now(context, setting)
        if setting is not None and key in saved and now is not None and saved[key] != now:
            yield at(setting, f"The checkpoint was saved with {key} {saved[key]}.", wanted=str(saved[key]),
                     fix="Use the same, or begin a new chain without the state of the dataloader.")  # fmt: skip
    many, each = _now(context, nodes), _now(context, devices)
    if devices is None or many is None or each is None or saved.get("world_size", many * each) == many * each:
        return
    yield at(
        devices, f"The checkpoint was saved by {saved['world_size']} ranks; this config makes {many * each}.",
        wanted=f"{saved['world_size']} ranks", value=f"{many} × {each}",
        fix="Use as many, or begin a new chain without the state of the dataloader.",
    )  # fmt: skip


def _against_launcher(
    context: Context, workers: Setting, devices: Setting | None, nodes: Setting | None
) -> Iterator[Hit]:
    launcher = context.launcher
    if launcher is None:
        return
    for name, values in launcher.overrides.items():
        last = name.rpartition(".")[2]
        if last not in _TOPOLOGY and not _PARALLEL.search(name):
            continue
        if last == "num_workers" and not re.search(r"train_ds", name):
            continue
        different = {said.value for said in values}
        varying = next((said for said in values if said.varies), None)
        if varying is not None or len(different) > 1:
            said = varying or values[-1]
            yield in_launcher(context, said.line, f"{name} differs between chunks.", field=name, value=said.value,
                              wanted="one value for the whole chain", fix="Pin it.")  # fmt: skip
    for key, setting in (("nodes", nodes), ("nnodes", nodes), ("ntasks-per-node", devices), ("nproc-per-node", devices),
                         ("nproc_per_node", devices)):  # fmt: skip
        option = launcher.options.get(key)
        now = _now(context, setting)
        given = _literal(option) if option is not None else None
        if option is None or now is None or given is None or not given.isdigit() or setting is None:
            continue
        told = setting.written or dotted(setting.pointer) in launcher.overrides
        if told and int(given) != now:
            yield in_launcher(context, option.line, f"The launcher asks for {key} {given}; the training gets "
                                                    f"{setting.key} {now}.",
                              field=key, value=given, wanted=str(now), fix="Let both say the same.")  # fmt: skip


@rule(
    "IDX038", Severity.ERROR,
    title="One seed for the whole chain", where="launcher: seeds",
    why="Every chunk seeds the generators of Python, NumPy and Torch anew.",
    otherwise="Dropout and augmentation differ from a run without a break, in silence.",
    source=NOTES,
    example=Example(bad=_TRAIN, good=_TRAIN, launcher="srun python train.py data.train_ds.seed=$SLURM_JOB_ID\n",
                    good_launcher="srun python train.py data.train_ds.seed=42\n"),
)  # fmt: skip
def one_seed(context: Context) -> Iterator[Hit]:
    """A seed varies with the chunk."""
    if context.launcher is None:
        if context.training:
            context.unknown("whether the launcher gives every chunk the same seed", "the launcher")
        return
    seeds = list(context.launcher.seeds)
    for name, values in context.launcher.overrides.items():
        if re.search(r"(?:^|[._])seed$", name):
            seeds += [(name, said) for said in values]
    told: set[int] = set()
    first: dict[str, Said] = {}
    for name, said in seeds:
        known = first.setdefault(name, said)
        if (said.varies or known.value != said.value) and said.line not in told:
            told.add(said.line)
            yield in_launcher(context, said.line, f"{name} differs between chunks.", field=name, value=said.value,
                              wanted="one number for the whole chain", fix="Pin it.")  # fmt: skip


def _manager(context: Context) -> tuple[Scope | None, str]:
    return scope(context, "exp_manager"), "exp_manager"


def _switch(context: Context, key: str, message: str, fix: str) -> Iterator[Hit]:
    manager, _ = _manager(context)
    if manager is None or not context.training:
        return
    setting = manager.get(key, False)
    if not setting.known:
        context.unknown(f"exp_manager.{key}", "the value of its interpolation")
    elif setting.value is not True:
        yield at(setting, message, wanted="true", fix=fix)


@rule(
    "IDX042",
    Severity.WARNING,
    title="A chain resumes",
    where="exp_manager.resume_if_exists",
    why="Without it every chunk begins anew.",
    otherwise="The chain trains its first hours again and again.",
    source=NOTES,
    example=Example(
        bad="exp_manager: {resume_if_exists: false}\n" + _TRAIN, good="exp_manager: {resume_if_exists: true}\n" + _TRAIN
    ),
)
def resumes(context: Context) -> Iterator[Hit]:
    """``resume_if_exists`` is not true."""
    yield from _switch(
        context, "resume_if_exists", "A following chunk would not resume.", "Set resume_if_exists: true."
    )


@rule(
    "IDX043", Severity.WARNING,
    title="The first chunk needs no checkpoint", where="exp_manager.resume_ignore_no_checkpoint",
    why="The first chunk of a chain finds none.",
    otherwise="It ends at its start.",
    source=NOTES,
    example=Example(bad="exp_manager: {resume_if_exists: true}\n" + _TRAIN,
                    good="exp_manager: {resume_ignore_no_checkpoint: true}\n" + _TRAIN),
)  # fmt: skip
def first_chunk(context: Context) -> Iterator[Hit]:
    """``resume_ignore_no_checkpoint`` is not true."""
    yield from _switch(
        context, "resume_ignore_no_checkpoint", "The first chunk would miss a checkpoint.",
        "Set resume_ignore_no_checkpoint: true.",
    )  # fmt: skip


_STEP_TRIGGERS = ("every_n_train_steps", "train_time_interval")


def _on(setting: Setting) -> bool:
    return setting.known and setting.value not in (None, 0, False)


@rule(
    "IDX044", Severity.WARNING,
    title="Checkpoints come by step or time", where="exp_manager.checkpoint_callback_params",
    why="A killed job saves nothing; epochs of an endless blend never end.",
    otherwise="All work since the last epoch is lost.",
    source=NOTES,
    example=Example(
        bad="exp_manager: {checkpoint_callback_params: {every_n_epochs: 1}}\n" + _TRAIN,
        good="exp_manager: {checkpoint_callback_params: {every_n_train_steps: 1000, every_n_epochs: null}}\n" + _TRAIN,
    ),
)  # fmt: skip
def triggers(context: Context) -> Iterator[Hit]:
    """Neither ``every_n_train_steps`` nor ``train_time_interval`` is set."""
    manager, _ = _manager(context)
    if manager is None or not context.training:
        return
    params = manager.inner("checkpoint_callback_params")
    if params is None or not any(_on(params.get(key)) for key in _STEP_TRIGGERS):
        if params is not None and any(not params.get(key).known for key in _STEP_TRIGGERS):
            context.unknown("the triggers of checkpoints", "the value of their interpolation")
            return
        yield on(
            manager, "No checkpoint is saved by step or by time.", key="checkpoint_callback_params",
            value="set" if params is not None else "not set", wanted="every_n_train_steps, or train_time_interval",
            fix="Set every_n_train_steps (and every_n_epochs: null), so often that a lost chunk costs little.",
        )  # fmt: skip


@rule(
    "IDX045", Severity.WARNING,
    title="A chunk stops before it is stopped", where="exp_manager.max_time_per_run",
    why="To stop in good order takes minutes that the scheduler does not give.",
    otherwise="The last checkpoint of a chunk is not written.",
    source=NOTES,
    example=Example(
        bad='exp_manager: {max_time_per_run: '
            '"00:04:00:00"}\n' + _TRAIN, good='exp_manager: {max_time_per_run: "00:03:45:00"}\n' + _TRAIN,
        facts={"walltime": "04:00:00"}, good_facts={"walltime": "04:00:00"},
    ),
)  # fmt: skip
def time_guard(context: Context) -> Iterator[Hit]:
    """``max_time_per_run`` is not set, or leaves no time."""
    manager, _ = _manager(context)
    if manager is None or not context.training:
        return
    setting = manager.get("max_time_per_run")
    if not setting.known:
        context.unknown("exp_manager.max_time_per_run", "the value of its interpolation")
        return
    if setting.value is None:
        yield at(setting, "A chunk does not stop by itself before its walltime.", wanted="less than the walltime",
                 fix="Set max_time_per_run some minutes below the walltime, as DD:HH:MM:SS.")  # fmt: skip
        return
    walltime = context.facts.walltime
    if walltime is None and context.launcher is not None and context.launcher.walltime is not None:
        walltime = context.launcher.walltime[0]
    if walltime is None:
        context.unknown("whether max_time_per_run is below the walltime", "walltime in the facts, or the launcher")
        return
    guard = seconds_of(str(setting.value))
    if guard is None:
        context.unknown("exp_manager.max_time_per_run", "a time as DD:HH:MM:SS")
    elif guard + _SLACK > walltime:
        yield at(setting, f"The walltime is {walltime / 60:.0f} minutes.", wanted="some minutes less",
                 fix="Leave time for a checkpoint and for the end of all ranks.")  # fmt: skip


@rule(
    "IDX058",
    Severity.NOTE,
    title="Of many failures the first one counts",
    where="trainer: more than one rank",
    why="One rank fails, the others wait until the backend gives up.",
    otherwise="People look for the cause in NCCL.",
    source=NOTES,
    example=Example(bad="trainer: {devices: 8}\n" + _TRAIN, good="trainer: {devices: 1}\n" + _TRAIN),
)
def first_failure(context: Context) -> Iterator[Hit]:
    """Told to every config with several ranks."""
    trainer = scope(context, "trainer")
    if trainer is None or not context.training:
        return
    devices, nodes = _whole(trainer.get("devices")), _whole(trainer.get("num_nodes", 1))
    if (devices or 1) * (nodes or 1) > 1 or (devices is not None and devices < 0):
        yield on(trainer, "When ranks fail together, the first Python traceback tells why; what NCCL says "
                          "follows from it.",
                 fix="Nothing.")  # fmt: skip


def _params(context: Context) -> Scope | None:
    manager, _ = _manager(context)
    return manager.inner("checkpoint_callback_params") if manager is not None and context.training else None


@rule(
    "IDX101", Severity.ERROR,
    title="One trigger of checkpoints", where="exp_manager.checkpoint_callback_params",
    why="Lightning takes one of steps, epochs and time, and refuses two.",
    otherwise="The run ends at its start (MisconfigurationException).",
    source=f"{NOTES}; Lightning 2, ModelCheckpoint",
    example=Example(
        bad="exp_manager: {checkpoint_callback_params: {every_n_train_steps: 100, every_n_epochs: 1}}\n" + _TRAIN,
        good="exp_manager: {checkpoint_callback_params: {every_n_train_steps: 100, every_n_epochs: null}}\n" + _TRAIN,
    ),
)  # fmt: skip
def one_trigger(context: Context) -> Iterator[Hit]:
    """Two triggers are set."""
    params = _params(context)
    if params is None:
        return
    found = [setting for key in ("every_n_train_steps", "every_n_epochs", "train_time_interval")
             if _on(setting := params.get(key))]  # fmt: skip
    if len(found) > 1:
        told = " and ".join(setting.key for setting in found)
        yield at(
            found[-1],
            f"{told} exclude each other.",
            wanted="one of them",
            fix="Keep the one by step or time; set the others to null.",
        )


@rule(
    "IDX102", Severity.WARNING,
    title="Pruning spares the checkpoint to resume",
    where="exp_manager.checkpoint_callback_params.save_top_k, save_last",
    why="The best checkpoints are kept, and the newest is rarely among them.",
    otherwise="A chunk resumes from an old state, or from none.",
    source=NOTES,
    example=Example(
        bad="exp_manager: {checkpoint_callback_params: {save_top_k: 3, save_last: false}}\n" + _TRAIN,
        good="exp_manager: {checkpoint_callback_params: {save_top_k: 3, save_last: true}}\n" + _TRAIN,
    ),
)  # fmt: skip
def pruning(context: Context) -> Iterator[Hit]:
    """``save_top_k`` is finite and ``save_last`` false."""
    params = _params(context)
    if params is None:
        return
    top, last = params.get("save_top_k", 3), params.get("save_last", True)
    count = _whole(top)
    if count is not None and count >= 0 and last.known and last.value is False:
        yield at(last, f"Of checkpoints the {count} best are kept, and the newest is not.", wanted="true",
                 fix="Set save_last: true, or save_top_k: -1.")  # fmt: skip


@rule(
    "IDX103", Severity.WARNING,
    title="max_steps stays the same", where="trainer.max_steps, in config, launcher, checkpoint",
    why="Schedules and the count of steps go on from chunk to chunk.",
    otherwise="The learning rate bends at the border of two chunks.",
    source=NOTES,
    example=Example(bad="trainer: {max_steps: 1000}\n" + _TRAIN, good="trainer: {max_steps: 1000}\n" + _TRAIN,
                    launcher="for i in 1 2 3; do\nsrun python train.py trainer.max_steps=$((i * 100))\ndone\n",
                    good_launcher="srun python train.py trainer.max_steps=1000\n"),
)  # fmt: skip
def steady_steps(context: Context) -> Iterator[Hit]:
    """The launcher varies it, or the checkpoint was saved with another."""
    trainer = scope(context, "trainer")
    if not context.training:
        return
    launcher = context.launcher
    if launcher is None:
        context.unknown("whether the launcher changes max_steps between chunks", "the launcher")
    else:
        for name, values in launcher.overrides.items():
            if name.rpartition(".")[2] != "max_steps":
                continue
            odd = next((said for said in values if said.varies or said.value != values[0].value), None)
            if odd is not None:
                yield in_launcher(context, odd.line, f"{name} differs between chunks.", field=name, value=odd.value,
                                  wanted="one number for the whole chain", fix="Pin it.")  # fmt: skip
    saved = context.facts.checkpoint.get("max_steps")
    setting = trainer.get("max_steps") if trainer is not None else None
    now = _whole(setting)
    if saved is not None and setting is not None and now is not None and now != saved:
        yield at(setting, f"The checkpoint was saved with max_steps {saved}.", wanted=str(saved), fix="Use the same.")


@rule(
    "IDX104", Severity.WARNING,
    title="Staging is seen", where="launcher: copies before the training",
    why="A copy in another script, in the background, or with its failure thrown away is not seen when it fails.",
    otherwise="Chunks start without indexes or data, and nobody knows why.",
    source=NOTES,
    example=Example(bad=_TRAIN, good=_TRAIN, launcher="rsync -a /lustre/idx/ /tmp/idx/ || true\nsrun "
                                                      "python train.py a=1\n",
                    good_launcher="rsync -a /lustre/idx/ /tmp/idx/\nsrun python train.py a=1\n"),
)  # fmt: skip
def seen_staging(context: Context) -> Iterator[Hit]:
    """A staging step is hidden."""
    for step in context.launcher.steps if context.launcher is not None else []:
        if step.hidden:
            yield in_launcher(context, step.line, f"A staging step is hidden: {step.hidden}.", field="launcher.staging",
                              value=step.command, wanted="a step that fails the chunk",
                              fix="Write it out in the launcher, and let it fail the chunk.")  # fmt: skip


@rule(
    "IDX105", Severity.WARNING,
    title="An epoch has a number of steps", where="trainer.limit_train_batches, val_check_interval, max_steps",
    why="An endless blend has no length to take a part of.",
    otherwise="Validation and checkpoints by epoch never come, or the trainer refuses a fraction of no length.",
    source=f"{OURS}; Lightning 2",
    example=Example(
        bad="trainer: {max_steps: 1000, limit_train_batches: 0.5}\n" + _TRAIN,
        good="trainer: {max_steps: 1000, limit_train_batches: 500}\n" + _TRAIN,
    ),
)  # fmt: skip
def epochs(context: Context) -> Iterator[Hit]:
    """``limit_train_batches`` is no number of steps, or there is no ``max_steps``."""
    trainer = scope(context, "trainer")
    if trainer is None or not context.training:
        return
    limit = trainer.get("limit_train_batches", 1.0)
    if not limit.known:
        context.unknown("trainer.limit_train_batches", "the value of its interpolation")
    elif _whole(limit) is None:
        yield at(limit, "An epoch of an endless blend has no length.", wanted="a number of steps",
                 fix="Set limit_train_batches to the steps of one epoch.")  # fmt: skip
    check = trainer.get("val_check_interval")
    if check.written and isinstance(check.value, float):
        yield at(check, "A fraction of an endless epoch is no number of steps.", wanted="a number of steps",
                 fix="Set val_check_interval to a number of steps.")  # fmt: skip
    steps = trainer.get("max_steps", -1)
    count = _whole(steps)
    if steps.known and (count is None or count < 1):
        yield at(steps, "Nothing says when training is done.", wanted="a number of steps", fix="Set max_steps.")


@rule(
    "IDX106",
    Severity.WARNING,
    title="Lightning puts no sampler of its own in",
    where="trainer.use_distributed_sampler",
    why="Lhotse parts the data itself; Lightning's default is to put a sampler of its own into the dataloader.",
    otherwise="Data is parted twice, or the run ends at its start.",
    source=f"{OURS}; {CODE}, dataloader.py; Lightning 2",
    example=Example(
        bad="trainer: {max_steps: 10}\n" + _TRAIN, good="trainer: {use_distributed_sampler: false}\n" + _TRAIN
    ),
)
def sampler(context: Context) -> Iterator[Hit]:
    """``use_distributed_sampler`` is not false."""
    trainer = scope(context, "trainer")
    if trainer is None or not context.training:
        return
    setting = trainer.get("use_distributed_sampler", True)
    if setting.known and setting.value is not False:
        yield at(setting, "Lightning may put a sampler of its own into the dataloader.", wanted="false",
                 fix="Set use_distributed_sampler: false.")  # fmt: skip
