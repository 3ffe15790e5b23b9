"""What comes out: text, JSON, SARIF, a folder; and exceptions."""

from __future__ import annotations

import datetime
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import jsonschema_rs
import orjson
import pytest
import yaml
from typer.testing import CliRunner

from blendex.blend.world import World
from blendex.cli.app import app
from blendex.errors import BlendexError
from blendex.lint import outputs
from blendex.lint.engine import RULES, lint
from blendex.lint.launcher import read_launcher
from blendex.lint.migrate import Migration, answer, migrate
from blendex.lint.sarif import sarif
from blendex.lint.suppress import read_baseline
from blendex.lint.text import lines
from tests.lint.ground import Disk
from tests.support import corpus

HERE = Path(__file__).parent
SCHEMA = json.loads((HERE.parent / "data/sarif/sarif-2.1.0.json").read_text())
# The one expression in it that is none, there twice: a bracket closes what was never opened. We write no language.
for _part in ("run", "toolComponent"):
    del SCHEMA["definitions"][_part]["properties"]["language"]["pattern"]
VALIDATOR = jsonschema_rs.validator_for(SCHEMA)
CONFIG = """\
# a chain
train_ds:
  shard_seed: randomized  # drawn
  input_cfg: blend.yaml
trainer: {devices: 8}
"""
BLEND = """\
- {type: group, input_cfg: inner.yaml}
- {type: txt, paths: "/d/a|b`c.txt"}
"""
INNER = "- {type: nemotron_text_conversation, paths: /d/t.jsonl}  # misspelt\n"
FILES = {"/cfg/blend.yaml": BLEND, "/cfg/inner.yaml": INNER}
TODAY = datetime.date(2026, 6, 1)


def linted(text: str = CONFIG, files: dict[str, str] | None = None, **options: Any) -> Migration:
    ground = Disk(FILES if files is None else files)
    return migrate(text.encode(), "/cfg/train.yaml", World(base="/cfg"), ground, today=TODAY, **options)


def told(migration: Migration, folder: str | None = None) -> str:
    texts = {name: text.decode() for name, text in migration.report.files.items()}
    return "\n".join(lines(migration.as_dict(), texts, relative_to=folder))


def valid(log: dict[str, Any]) -> None:
    VALIDATOR.validate(json.loads(orjson.dumps(log)))


def test_sarif_is_valid_and_says_it_all() -> None:
    launcher = read_launcher(b"srun python t.py train_ds.seed=$RANDOM\n", "a job.sbatch")
    baseline = read_baseline(
        b'{"allow": [{"rule": "IDX001", "field": "train_ds.indexed", "reason": "later"}]}', "b.json"
    )
    log = sarif([linted(launcher=launcher, baseline=baseline)])
    valid(log)
    run = log["runs"][0]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == sorted(RULES)
    results = {result["ruleId"]: result for result in run["results"]}
    assert {"IDX016", "IDX017", "IDX005", "IDX038"} <= set(results)
    region = results["IDX005"]["locations"][0]["physicalLocation"]
    assert region["region"] == {"startLine": 3, "startColumn": 3}
    assert region["artifactLocation"]["uri"] == "file:///cfg/train.yaml"
    assert results["IDX016"]["level"] == "error"
    assert results["IDX016"]["properties"]["severity"] == "fatal"
    assert results["IDX038"]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "a%20job.sbatch"
    assert results["IDX001"]["suppressions"] == [{"kind": "external", "justification": "later"}]
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]


def test_the_schema_can_fail() -> None:
    log = sarif([linted()])
    log["runs"][0]["results"][0]["level"] = "fatal"
    with pytest.raises(jsonschema_rs.ValidationError):
        valid(log)


@pytest.mark.parametrize("rule", RULES)
def test_sarif_of_every_example(rule: str) -> None:
    example = RULES[rule].example
    valid(sarif([linted(example.bad, dict(example.nested))]))


def test_json() -> None:
    value = json.loads(orjson.dumps(answer([linted()])))
    report = value["reports"][0]
    assert value["ready"] is False
    assert {item["rule"] for item in report["blockers"]} >= {"IDX001", "IDX016", "IDX017"}
    assert {item["rule"] for item in report["patch"]["blockers"]} == {"IDX016", "IDX107"}
    found = next(item for item in report["findings"] if item["rule"] == "IDX005")
    assert found["value"] == "randomized"
    assert found["wanted"] == "42"
    assert found["patch"] == "available"
    assert found["link"].endswith("lint.md#idx005")
    for item in report["findings"]:
        assert all(item[key] for key in ("why", "otherwise", "fix", "source", "message", "title"))


def test_text_shows_the_line() -> None:
    text = told(linted(), "/cfg")
    assert "train.yaml:3:3: error IDX005" in text
    assert "    3 |   shard_seed: randomized  # drawn\n          ^" in text
    assert "not launch-ready: IDX001" in text
    assert "not checked" in text
    hostile = linted('train_ds: {input_cfg: [{type: "a\\e[31m", x: 1}]}\n')
    assert "\x1b" not in told(hostile)


def test_the_folder(tmp_path: Path) -> None:
    files = outputs.folder(linted())
    assert set(files) == {
        "migration-report.md", "train-resumable.yaml", "blend-resumable.yaml", "inner-resumable.yaml",
        "pre-flight-checklist.md", "build-indexes-cmd.sh",
    }  # fmt: skip
    assert 'input_cfg: "blend-resumable.yaml"' in files["train-resumable.yaml"]
    assert "# a chain" in files["train-resumable.yaml"]
    assert 'input_cfg: "inner-resumable.yaml"' in files["blend-resumable.yaml"]
    assert files["inner-resumable.yaml"] == INNER.replace("nemotron_text_conversation", '"nemotron_text_converation"')
    report = files["migration-report.md"]
    for head in ("## Fatal", "## Errors", "## Training and validation", "## The blend", "## The launcher", "## Storage",
                 "## Not checked", "## The patch"):  # fmt: skip
        assert head in report
    assert "| launch-ready | no:" in report
    assert "-  shard_seed: randomized  # drawn" in report
    checklist = files["pre-flight-checklist.md"]
    assert "- [ ] IDX016" in checklist
    assert (
        checklist.index("1. One node, one chunk")
        < checklist.index("2. One node, resumed")
        < checklist.index("3. All nodes")
    )
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        if name.endswith(".yaml"):
            yaml.safe_load(text)
    side = {f"/cfg/{name}": text for name, text in files.items()}
    again = linted(files["train-resumable.yaml"], side)
    assert {item.rule for item in again.report.blockers} == {"IDX016", "IDX107"}, (
        "the files of the folder lead to each other"
    )
    subprocess.run(["sh", "-n", str(tmp_path / "build-indexes-cmd.sh")], check=True)
    with zipfile.ZipFile(BytesIO(outputs.zipped(files))) as archive:
        assert set(archive.namelist()) == set(files)
    assert outputs.zipped(files) == outputs.zipped(files)


def test_the_command_quotes_what_people_name() -> None:
    world = World(base="/c d", variables={"x": "$(touch /tmp/x) '\""}, env={"SECRET": "s3cret"})
    ground = Disk({})
    text = b"- {type: nemo, manifest_filepath: /d/a.json}\n"
    script = outputs.build_command(migrate(text, "/c d/it's $(x).yaml", world, ground))
    assert "s3cret" not in script
    ran = subprocess.run(
        ["sh", "-c", f"curl() {{ printf '%s\\n' \"$@\"; }}\n{script}"], env=os.environ | {"BLENDEX_URL": "http://b"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "@/c d/it's $(x).yaml" in ran.stdout.splitlines()
    assert "http://b/v1/builds?base=%2Fc+d&var=x%3D%24%28touch" in ran.stdout


class TestExceptions:
    """Findings that somebody lets stand."""

    FATAL = "train_ds:\n  seed: 1\n  input_cfg:\n    {}\n    - {{type: txt, paths: /d/a.txt}}{}\n"

    def rules(self, text: str) -> tuple[list[str], list[str]]:
        report = lint(text.encode(), "/cfg/t.yaml", World(), Disk(), today=TODAY)
        return [item.rule for item in report.blockers], [item.rule for item in report.exceptions]

    @pytest.mark.parametrize(
        ("comment", "counts"),
        [
            ('# blendex: allow IDX016 cost "2 h" because it is small', True),
            ('# blendex: allow IDX016 until 2026-06-01 cost "2 h" because it is small', True),
            ('# blendex: allow IDX001, IDX016 cost "2 h" because it is small', True),
            ("# blendex: allow IDX016 because it is small", False),
            ('# blendex: allow IDX016 cost "2 h"', False),
            ('# blendex: allow IDX016 until 2026-05-31 cost "2 h" because it is small', False),
            ('# blendex: allow IDX016 until soon cost "2 h" because it is small', False),
            ('# blendex: allow IDX999 cost "2 h" because it is small', False),
            ("# blendex: ignore IDX016", False),
        ],
    )
    def test_comments(self, comment: str, counts: bool) -> None:
        for text in (self.FATAL.format(comment, ""), self.FATAL.format("", "  " + comment)):
            blockers, exceptions = self.rules(text)
            assert ("IDX016" in exceptions) is counts
            assert ("IDX016" in blockers) is not counts
            report = lint(text.encode(), "/cfg/t.yaml", World(), Disk(), today=TODAY)
            assert ("IDX115" in [item.rule for item in report.findings]) is not counts

    def test_another_line_is_not_meant(self) -> None:
        text = (
            '# blendex: allow IDX016 cost "x" because y\n\ntrain_ds:\n  input_cfg:\n    - {type: txt, '
            "paths: /d/a.txt}\n"
        )
        assert "IDX016" in self.rules(text)[0]
        assert "IDX016" not in self.rules(text.replace("allow ", "allow-file "))[0]

    def test_a_text_is_no_comment(self) -> None:
        text = self.FATAL.format("", "").replace("seed: 1", "note: '# blendex: allow-file IDX016 cost \"x\" because y'")
        assert "IDX016" in self.rules(text)[0]

    @pytest.mark.parametrize(
        ("change", "counts"),
        [
            ({}, True), ({"until": "2026-05-31"}, False), ({"cost": ""}, False), ({"file": "t.yaml"}, True),
            ({"file": "other.yaml"}, False), ({"field": "elsewhere"}, False),
        ],
    )  # fmt: skip
    def test_a_baseline(self, change: dict[str, str], counts: bool) -> None:
        item = {"rule": "IDX016", "field": "train_ds.input_cfg[0].type", "reason": "small", "cost": "2 h"} | change
        baseline = read_baseline(orjson.dumps({"allow": [item]}), "b.json")
        text = self.FATAL.format("", "").encode()
        report = lint(text, "/cfg/t.yaml", World(), Disk(), today=TODAY, baseline=baseline)
        assert ("IDX016" in [one.rule for one in report.exceptions]) is counts

    @pytest.mark.parametrize(
        ("change", "why"),
        [({"until": "2026-05-31"}, "it ended on 2026-05-31"), ({"cost": ""}, "needs an expected cost"),
         ({"rule": "IDX999"}, "there is no rule IDX999")],
    )  # fmt: skip
    def test_an_item_that_does_not_count_is_told(self, change: dict[str, str], why: str) -> None:
        item = {"rule": "IDX016", "field": "train_ds.input_cfg[0].type", "reason": "small", "cost": "2 h"} | change
        baseline = read_baseline(orjson.dumps({"allow": [item]}), "b.json")
        text = self.FATAL.format("", "").encode()
        report = lint(text, "/cfg/t.yaml", World(), Disk(), today=TODAY, baseline=baseline)
        (told,) = [one for one in report.findings if one.rule == "IDX115"]
        assert why in told.message
        assert (told.file, told.line) == ("b.json", 1)
        assert "IDX016" in [one.rule for one in report.blockers]

    @pytest.mark.parametrize("text", [b"", b"[]", b'{"allow": [1]}', b'{"allow": [{"rule": "IDX001", "field": "x"}]}'])
    def test_a_baseline_without_reasons_is_refused(self, text: bytes) -> None:
        with pytest.raises(BlendexError):
            read_baseline(text, "b.json")

    def test_a_config_is_ready_with_its_exceptions(self) -> None:
        text = (
            'train_ds:\n  # blendex: allow IDX016 cost "2 h" because small\n'
            "  input_cfg: [{type: txt, paths: /d/a.txt}]\n"
            "  indexed: true\n  use_stateful_dataloader: true\n  seed: 1\n  shard_seed: 1\n"
        )
        migration = linted(text)
        assert migration.ready
        assert "launch-ready, with 1 exceptions" in told(migration)
        assert "| IDX016 |" in outputs.folder(migration)["migration-report.md"]


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def blendex(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BLENDEX_ROOT", str(tmp_path / "root"))

    def run(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        result = CliRunner().invoke(app, ["lint", *arguments])
        assert result.exit_code == code, result.output
        return subprocess.CompletedProcess(arguments, code, result.stdout, result.stderr)

    return run


def test_the_command_line(blendex: Run, tmp_path: Path) -> None:
    config = tmp_path / "train.yaml"
    config.write_text(
        "\ufeff" + "train_ds:\n  # kept\n  shard_seed: trng\n  input_cfg: [{type: nemo, manifest_filepath: a.json}]\n"
    )
    config.chmod(0o640)
    assert "IDX005" in blendex("train.yaml", code=1).stdout
    assert not (tmp_path / "root").exists(), "linting makes no root"
    valid(json.loads(blendex("train.yaml", "--sarif", code=1).stdout))
    assert json.loads(blendex("train.yaml", "--json", "--fail-on", "never").stdout)["ready"] is False
    blendex("train.yaml", "--out", "out", "--fail-on", "fatal")
    assert (tmp_path / "out/train-resumable.yaml").read_text().count("# kept") == 1
    assert os.access(tmp_path / "out/build-indexes-cmd.sh", os.X_OK)
    assert config.read_text().startswith("\ufefftrain_ds:\n  # kept\n  shard_seed: trng"), (
        "only --fix writes into a file"
    )
    fixed = blendex("train.yaml", "--fix", code=1)
    assert "IDX107" in fixed.stdout
    text = config.read_text()
    assert text.startswith("\ufefftrain_ds:\n  # kept\n  shard_seed: 42\n")
    assert config.stat().st_mode & 0o777 == 0o640
    blendex("train.yaml", "--fix", code=1)
    assert config.read_text() == text, "a second time changes nothing"
    assert list(tmp_path.glob(".blendex*")) == []


def test_exit_statuses(blendex: Run, tmp_path: Path) -> None:
    good = tmp_path / "blend.yaml"
    good.write_text("- {type: lhotse, cuts_path: /d/cuts.jsonl}\n")
    blendex("blend.yaml")
    blendex("blend.yaml", "--strict")
    good.write_text("- {type: lhotse, cuts_path: /d/cuts.jsonl, weight: -1}\n")
    blendex("blend.yaml")
    blendex("blend.yaml", "--strict", code=1)
    blendex("blend.yaml", "--fail-on", "note", code=1)
    for arguments in (
        ("none.yaml",), ("blend.yaml", "--fail-on", "worst"), ("blend.yaml", "--facts", "blend.yaml"), (),
        ("blend.yaml", "--upstream", "9"), ("blend.yaml", "--json", "--sarif"), ("blend.yaml", "--launcher", "none.sh"),
    ):  # fmt: skip
        assert blendex(*arguments, code=2).stderr


def test_a_mirror_that_was_built_here_tells_of_contents(blendex: Run, tmp_path: Path) -> None:
    # The blank line lies in the middle, where a look does not come to.
    row = b'{"audio_filepath": "a.wav"}\n' * 60_000
    (tmp_path / "a.json").write_bytes(row + b"\n" + row)
    (tmp_path / "blend.yaml").write_text("- {type: nemo, manifest_filepath: a.json}\n")
    before = json.loads(blendex("blend.yaml", "--json").stdout)["reports"][0]
    assert any(item["rule"] == "IDX025" for item in before["unchecked"])
    corpus.wait_until_calm()  # a token that is younger than two seconds proves nothing
    command = [sys.executable, "-c", "from blendex.cli import main; main()", "build", "blend.yaml"]
    environment = os.environ | {"BLENDEX_ROOT": str(tmp_path / "root")}
    subprocess.run(command, check=True, cwd=tmp_path, capture_output=True, env=environment)
    after = json.loads(blendex("blend.yaml", "--json", "--root", "root", code=1).stdout)["reports"][0]
    assert [item["rule"] for item in after["findings"]] == ["IDX025"]
    assert not any(item["rule"] == "IDX025" for item in after["unchecked"])
    (tmp_path / "a.json").write_bytes(row + row)
    changed = json.loads(blendex("blend.yaml", "--json", "--root", "root").stdout)["reports"][0]
    assert any(item["rule"] == "IDX025" for item in changed["unchecked"]), "what has changed is not known any more"


def test_the_folder_is_whole_when_only_the_config_was_patched() -> None:
    blend = "- {type: group, input_cfg: inner.yaml}  # kept\n"
    inner = "- {type: nemo, manifest_filepath: /d/a.json}\n"
    files = {"/cfg/blend.yaml": blend, "/cfg/inner.yaml": inner}
    made = outputs.folder(linted(files=files))
    assert list(made) == [
        "migration-report.md", "train-resumable.yaml", "blend-resumable.yaml", "inner-resumable.yaml",
        "pre-flight-checklist.md", "build-indexes-cmd.sh",
    ]  # fmt: skip
    assert made["blend-resumable.yaml"] == blend.replace("inner.yaml", '"inner-resumable.yaml"')
    assert made["inner-resumable.yaml"] == inner
    again = linted(made["train-resumable.yaml"], {f"/cfg/{name}": text for name, text in made.items()})
    assert again.report.sources == 1
    assert again.texts == {}


def test_two_configs_of_one_name_get_a_folder_each(blendex: Run, tmp_path: Path) -> None:
    for folder, seed in (("a", 1), ("b", 2)):
        (tmp_path / folder).mkdir()
        text = f"train_ds:\n  seed: {seed}\n  input_cfg: [{{type: nemo, manifest_filepath: /d/a.json}}]\n"
        (tmp_path / folder / "train.yaml").write_text(text)
    blendex("a/train.yaml", "b/train.yaml", "--out", "out", code=1)
    seeds = {path.parent.name: path.read_text()[12:19] for path in tmp_path.glob("out/*/train-resumable.yaml")}
    assert seeds == {"train": "seed: 1", "train-2": "seed: 2"}


CI = HERE.parent.parent / "examples/lint"


def commands_of(name: str) -> list[str]:
    """The lines of a pipeline that lint."""
    value = yaml.safe_load((CI / name).read_text())
    if "jobs" in value:
        steps = [step["run"] for job in value["jobs"].values() for step in job["steps"] if "run" in step]
    else:
        steps = next(iter(value.values()))["script"]
    return [line for line in steps if line.startswith("blendex lint")]


@pytest.mark.parametrize("name", ["github-workflow.yml", "gitlab-ci.yml"])
def test_the_pipelines_of_the_examples_do_what_they_say(name: str, tmp_path: Path) -> None:
    """Each line as a shell of the pipeline runs it, in a repository of configs."""
    for folder in ("conf", "launch", "bin"):
        (tmp_path / folder).mkdir()
    (tmp_path / "conf/train.yaml").write_text(CONFIG.replace("blend.yaml", str(tmp_path / "blend.yaml")))
    (tmp_path / "blend.yaml").write_text("- {type: nemo, manifest_filepath: /d/a.json}\n")
    (tmp_path / "launch/train.sbatch").write_text("#SBATCH --time=04:00:00\nsrun python train.py x=1\n")
    (tmp_path / "facts.json").write_bytes((CI / "facts.json").read_bytes())
    script = tmp_path / "bin/blendex"
    script.write_text(f"#!{sys.executable}\nfrom blendex.cli import main\nmain()\n")
    script.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    commands = commands_of(name)
    settings: dict[str, Any] = {"cwd": tmp_path, "env": environment, "capture_output": True}
    ran = [subprocess.run(["sh", "-ec", command], check=False, **settings) for command in commands]
    assert [item.returncode for item in ran] == [0] * (len(ran) - 1) + [1], [item.stderr for item in ran]
    assert b"IDX001" in ran[-1].stdout
    if name.startswith("github"):
        log = json.loads((tmp_path / "lint.sarif").read_text())
        valid(log)
        assert log["runs"][0]["results"]
    else:
        assert (tmp_path / "migration/train-resumable.yaml").exists()


def test_the_hooks_of_pre_commit(tmp_path: Path) -> None:
    """What pre-commit does with a hook of the language python: its entry, with the files that match behind it."""
    hooks = yaml.safe_load((HERE.parent.parent / ".pre-commit-hooks.yaml").read_text())
    named = yaml.safe_load((CI / "pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert {item["id"] for item in named} <= {item["id"] for item in hooks}
    (tmp_path / "conf").mkdir()
    config = tmp_path / "conf/train.yaml"
    config.write_text("train_ds:\n  shard_seed: trng\n  input_cfg: [{type: txt, paths: /d/a}]\n")
    (tmp_path / "facts.json").write_bytes((CI / "facts.json").read_bytes())
    for hook in hooks:
        files = [name for name in ("conf/train.yaml", "conf/notes.md", "src/a.py") if re.search(hook["files"], name)]
        assert files == ["conf/train.yaml"]
        arguments = next((item.get("args", []) for item in named if item["id"] == hook["id"]), [])
        entry = [sys.executable, "-c", "from blendex.cli import main; main()", *hook["entry"].split()[1:]]
        ran = subprocess.run([*entry, *arguments, *files], check=False, cwd=tmp_path, capture_output=True, text=True)
        assert ran.returncode == 1, ran.stderr
        assert "IDX016" in ran.stdout
    assert "shard_seed: 42" in config.read_text(), "the second one has fixed"
