"""Launchers: read as text, never run."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blendex.errors import BlendexError
from blendex.lint.facts import read_facts, seconds_of
from blendex.lint.launcher import read_launcher
from tests.lint.ground import rules, run

CONFIG = (
    "trainer: {devices: 8, num_nodes: 2, max_steps: 1000}\n"
    "train_ds:\n  seed: 1\n  num_workers: 4\n  input_cfg: [{type: nemo, manifest_filepath: /d/a.json}]\n"
)
SBATCH = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH -t 04:00:00
export USE_AIS_GET_BATCH=false
SEED=42
rsync -a /lustre/mirror/idx/ /raid/idx/
srun --container-image=nvcr/nemo:25 torchrun train.py \\
    data.train_ds.seed=$SEED trainer.max_steps=1000
"""
NEMO_RUN = """
import nemo_run as run
from random import randint

def executor():
    return run.SlurmExecutor(nodes=2, ntasks_per_node=8, time="04:00:00", container_image="nemo:25",
                             env_vars={"USE_AIS_GET_BATCH": "true"})

for chunk in range(4):
    recipe = make()
    recipe.trainer.max_steps = 1000 * (chunk + 1)
    recipe.data.train_ds.seed = randint(0, 9)
    recipe.trainer.devices = 8
    args = [f"data.train_ds.num_workers={chunk}", "exp_manager.name=x"]
"""


def test_sbatch() -> None:
    launcher = read_launcher(SBATCH.encode(), "job.sbatch")
    assert launcher.language == "shell"
    assert launcher.walltime is not None
    assert launcher.walltime[0] == 4 * 3600
    assert launcher.options["nodes"].value == "2"
    assert launcher.environment["USE_AIS_GET_BATCH"].value == "false"
    assert launcher.overrides["data.train_ds.seed"][0].value == "42"
    assert launcher.overrides["data.train_ds.seed"][0].line == 8
    assert not launcher.overrides["data.train_ds.seed"][0].varies
    assert launcher.image is not None
    assert launcher.image.value == "nvcr/nemo:25"
    assert [(step.target, step.hidden) for step in launcher.steps] == [("/raid/idx/", "")]
    _, report = run(CONFIG, launcher=SBATCH)
    assert not {"IDX037", "IDX038", "IDX103", "IDX104"} & set(rules(report))


@pytest.mark.parametrize(
    "seed",
    [
        "$RANDOM",
        "$SLURM_JOB_ID",
        "$(date +%s)",
        "`date +%s`",
        "$((1000 + SLURM_ARRAY_TASK_ID))",
        "$1",
        "${SLURM_RESTART_COUNT}",
    ],
)
def test_seeds_that_differ_between_chunks(seed: str) -> None:
    for script in (
        f"SEED={seed}\nsrun python t.py data.train_ds.seed=$SEED\n",
        f"srun python t.py --seed={seed} a=1\n",
    ):
        _, report = run(CONFIG, launcher=script)
        assert "IDX038" in rules(report), script


def test_a_loop_over_chunks() -> None:
    loop = "for c in 1 2 3; do\n  srun python t.py data.train_ds.num_workers=$c trainer.max_steps=$((c*10))\ndone\n"
    assert {"IDX037", "IDX103"} <= set(rules(run(CONFIG, launcher=loop)[1]))
    after = "for c in 1 2; do\n  echo $c\ndone\nc=7\nsrun python t.py data.train_ds.seed=$c\n"
    assert "IDX038" not in rules(run(CONFIG, launcher=after)[1])


def test_two_commands_that_differ() -> None:
    script = "srun python t.py data.train_ds.num_workers=4\nsrun python t.py data.train_ds.num_workers=8\n"
    assert "IDX037" in rules(run(CONFIG, launcher=script)[1])


def test_the_scheduler_and_the_config_disagree() -> None:
    _, report = run(CONFIG, launcher=SBATCH.replace("--nodes=2", "--nodes=4"))
    found = next(finding for finding in report.findings if finding.rule == "IDX037")
    assert (found.file, found.line, found.value, found.wanted) == ("job.sbatch", 2, "4", "2")


@pytest.mark.parametrize(
    "line",
    [
        "rsync -a /a/ /raid/idx/ || true",
        "cp -r /a /raid/idx &",
        "s5cmd cp 's3://b/*' /raid/ > /dev/null",
        "bash ./stage_data.sh",
    ],
)
def test_hidden_staging(line: str) -> None:
    assert "IDX104" in rules(run(CONFIG, launcher=f"{line}\nsrun python t.py a=1\n")[1])


def test_here_documents_and_comments_are_no_commands() -> None:
    seeded = "srun python t.py data.train_ds.seed=$RANDOM"
    script = f"# {seeded}\ncat > x <<EOF\n{seeded}\nEOF\nsrun python t.py a=1\n"
    assert "IDX038" not in rules(run(CONFIG, launcher=script)[1])


def test_nemo_run() -> None:
    launcher = read_launcher(NEMO_RUN.encode(), "launch.py")
    assert launcher.language == "python"
    assert launcher.options["nodes"].value == "2"
    assert launcher.walltime is not None
    assert launcher.environment["USE_AIS_GET_BATCH"].value == "true"
    assert launcher.overrides["trainer.max_steps"][0].varies
    assert not launcher.overrides["trainer.devices"][0].varies
    _, report = run(CONFIG, launcher=NEMO_RUN, script="launch.py")
    assert {"IDX037", "IDX038", "IDX103", "IDX048"} <= set(rules(report))


def test_nothing_is_run(tmp_path: Path) -> None:
    witness = tmp_path / "ran"
    for name, script in (
        ("x.py", f"open({str(witness)!r}, 'w')\nimport os; os.system('touch {witness}')\n"),
        ("x.sh", f"touch {witness}\nA=$(touch {witness})\n"),
    ):
        run(CONFIG, launcher=script, script=name)
    assert not witness.exists()


@pytest.mark.parametrize(
    ("text", "name"),
    [(b"\xff\xfe", "a.sh"), (b"def (", "a.py"), (b"x" * (1024 * 1024 + 1), "a.sh"), (b"a\0b", "a.py"),
     (b"(" * 5000, "a.py"), (b"x = " + b"-" * 50_000 + b"1", "a.py")],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_with_a_reason(text: bytes, name: str) -> None:
    with pytest.raises(BlendexError) as caught:
        read_launcher(text, name)
    assert caught.value.code == "bad_request"
    assert caught.value.next_step


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(max_size=300), st.sampled_from(["a.sh", "a.py"]))
def test_random_scripts_never_crash(text: str, name: str) -> None:
    with contextlib.suppress(BlendexError):
        read_launcher(text.encode("utf-8", "surrogatepass"), name)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("04:00:00", 14400), ("1-00:00:00", 86400), ("00:03:45:00", 13500), ("30", 1800), ("10:30", 630), ("1-12", 129600),
     ("soon", None), ("", None)],
)  # fmt: skip
def test_times(text: str, seconds: float | None) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        b"[]",
        b"{",
        b'{"sql": 1}',
        b'{"environment": {"A": 1}}',
        b'{"checkpoint": {"world": 1}}',
        b'{"checkpoint": {"seed": true}}',
        b'{"walltime": "soon"}',
        b'{"vm.max_map_count": "x"}',
    ],
)
def test_facts_that_mean_nothing_are_refused(text: bytes) -> None:
    with pytest.raises(BlendexError) as caught:
        read_facts(text)
    assert caught.value.code == "bad_request"


def test_facts_decide() -> None:
    facts = {"checkpoint": {"world_size": 16, "num_workers": 8, "max_steps": 500}, "environment": {}, "versions": {}}
    _, report = run(CONFIG, facts=facts)
    assert {"IDX037", "IDX051", "IDX103"} <= set(rules(report))
    assert "IDX050" not in {item.rule for item in report.unchecked}
    assert "IDX050" in {item.rule for item in run(CONFIG)[1].unchecked}


def test_what_the_launcher_sets_is_what_the_run_has() -> None:
    script = "#SBATCH --nodes=4\nsrun python t.py trainer.num_nodes=4 train_ds.num_workers=8\n"
    saved = {"checkpoint": {"num_nodes": 4, "num_workers": 8, "world_size": 32}}
    assert "IDX037" not in rules(run(CONFIG, launcher=script, facts=saved)[1])
    assert "IDX037" in rules(run(CONFIG, launcher=script, facts={"checkpoint": {"num_nodes": 2}})[1])
    assert "IDX037" in rules(run(CONFIG, launcher=script.replace("nodes=4\n", "nodes=2\n"))[1]), "asks for fewer"
    python = (
        "def executor(nodes: int = 4):\n    return run.SlurmExecutor(nodes=nodes, time='04:00:00')\n"
        "def main():\n    recipe.trainer.num_nodes = 2\n"
    )
    launcher = read_launcher(python.encode(), "launch.py")
    assert launcher.options["nodes"].value == "4"
    assert "IDX037" in rules(run(CONFIG, launcher=python, script="launch.py")[1])
