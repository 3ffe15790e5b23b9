"""``/v1/lint``, and what a build refuses."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from blendex.blend.world import World
from blendex.builds.submission import Submission
from blendex.cli.app import app
from blendex.errors import BlendexError, Code
from blendex.lint.engine import RULES
from service.linting import Asked
from service.lints import Lints
from tests.service.conftest import Service
from tests.support import corpus

CONFIG = """\
data:
  train_ds:
    # the seed
    shard_seed: randomized
    input_cfg: blend.yaml
"""
BLEND = "- {type: nemo, manifest_filepath: /d/a.json, slice_length: 3}\n"
LAUNCHER = "srun python train.py data.train_ds.seed=$RANDOM\n"


def found(answer: dict[str, Any]) -> set[str]:
    return {item["rule"] for item in answer["reports"][0]["findings"]}


def test_multipart(idle: Service) -> None:
    files = [
        ("config", ("train.yaml", CONFIG)), ("blend", ("blend.yaml", BLEND)), ("launcher", ("job.sh", LAUNCHER)),
        ("facts", ("facts.json", '{"environment": {"LHOTSE_USE_WORKER_PARTITION": "1"}}')),
        ("baseline", ("b.json", ('{"allow": [{"rule": "IDX001", "field": "data.train_ds.indexed", "reason": '
                                '"later"}]}'))),
    ]  # fmt: skip
    answer = idle.http.post("/v1/lint", files=files)
    assert answer.status_code == 200, answer.text
    value = answer.json()
    assert not value["ready"]
    assert {"IDX005", "IDX011", "IDX038", "IDX050"} <= found(value)
    report = value["reports"][0]
    assert [item["rule"] for item in report["exceptions"]] == ["IDX001"]
    fatal = next(item for item in report["findings"] if item["rule"] == "IDX011")
    assert (fatal["file"], fatal["line"], fatal["severity"]) == ("/posted/blend.yaml", 1, "fatal")
    assert "+    shard_seed: 42" in report["patch"]["diffs"]["/posted/train.yaml"]
    assert "# the seed" in report["patch"]["diffs"]["/posted/train.yaml"]


def test_the_same_json_as_the_command_line(idle: Service, tmp_path: Path) -> None:
    config = tmp_path / "train.yaml"
    config.write_text(
        CONFIG.replace("input_cfg: blend.yaml", "input_cfg: [{type: nemo, manifest_filepath: /d/a.json}]")
    )
    ran = subprocess.run(
        [
            sys.executable,
            "-c",
            "from blendex.cli import main; main()",
            "lint",
            str(config),
            "--json",
            "--base-dir",
            str(tmp_path),
        ],
        check=False,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 1, ran.stderr
    here = json.loads(ran.stdout)
    there = idle.http.post(
        "/v1/lint", files={"config": ("train.yaml", config.read_text())}, params={"base": str(tmp_path)}
    ).json()
    assert here.keys() == there.keys()
    assert found(here) == found(there)
    assert here["reports"][0].keys() == there["reports"][0].keys()
    assert here["reports"][0]["findings"][0] == there["reports"][0]["findings"][0]


def test_plain_yaml_and_a_tar(idle: Service) -> None:
    assert "IDX005" in found(idle.http.post("/v1/lint", content=CONFIG).json())
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, text in (("a/train.yaml", CONFIG), ("a/blend.yaml", BLEND)):
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    answer = idle.http.post(
        "/v1/lint",
        content=stream.getvalue(),
        params={"main": "a/train.yaml"},
        headers={"Content-Type": "application/x-tar"},
    )
    assert "IDX011" in found(answer.json())


def test_other_outputs(idle: Service) -> None:
    sarif = idle.http.post("/v1/lint", content=CONFIG, params={"output": "sarif"})
    assert sarif.headers["content-type"] == "application/sarif+json"
    assert sarif.json()["version"] == "2.1.0"
    packed = idle.http.post("/v1/lint", content=CONFIG, params={"output": "zip"})
    assert packed.headers["content-type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(packed.content)) as archive:
        assert {"migration-report.md", "pre-flight-checklist.md", "build-indexes-cmd.sh"} < set(archive.namelist())


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "multipart/form-data"),
        (b"--x\r\n\r\n--x--", "multipart/form-data; boundary=x"),
        (b'--x\r\nContent-Disposition: form-data; name="other"\r\n\r\nx\r\n--x--', "multipart/form-data; boundary=x"),
        (b'--x\r\nContent-Disposition: form-data; name="config"\r\n\r\na: 1', "multipart/form-data; boundary=x"),
        (
            b'--x\r\nContent-Disposition: form-data; name="blend"; filename="../a"\r\n\r\na: 1\r\n--x--',
            "multipart/form-data; boundary=x",
        ),
        (b"a: [", "application/yaml"),
        (b"!!python/object/apply:os.system [ls]", "application/yaml"),
    ],
)
def test_what_cannot_be_read_is_a_problem(idle: Service, body: bytes, kind: str) -> None:
    answer = idle.http.post("/v1/lint", content=body, headers={"Content-Type": kind})
    assert answer.status_code in (400, 422), answer.text
    assert answer.json()["next_step"]


def test_nothing_outside_the_roots_is_told(idle: Service, tmp_path: Path) -> None:
    (tmp_path / "secret.yaml").write_text("- {type: nemo, manifest_filepath: /cafe.json}\n")
    answer = idle.http.post("/v1/lint", content=f"train_ds: {{input_cfg: {tmp_path}/secret.yaml}}\n")
    assert answer.status_code == 200
    assert "cafe" not in answer.text
    assert "IDX109" in found(answer.json())
    path = idle.http.post("/v1/lint", json={"path": str(tmp_path / "secret.yaml")})
    assert path.status_code == 403


def test_builds_refuse_what_is_fatal_in_a_blend(idle: Service) -> None:
    refused = idle.http.post("/v1/builds", content=BLEND)
    assert refused.status_code == 422
    value = refused.json()
    assert value["code"] == "lint_refused"
    assert value["line"] == 1
    assert "lint=off" in value["next_step"]
    assert [item["rule"] for item in value["findings"]] == ["IDX011"]
    text = idle.http.post("/v1/builds", content=BLEND, headers={"Accept": "text/plain"})
    assert text.status_code == 422
    assert text.text.startswith("lint_refused: ")
    for told in ({"lint": "off"}, {"on_bad": "exclude"}):
        assert idle.http.post("/v1/builds", content=BLEND, params=told).status_code == 202
    allowed = f'# blendex: allow IDX011 cost "none" because it is cut before\n{BLEND}'
    assert idle.http.post("/v1/builds", content=allowed).status_code == 202


def test_the_rules_that_refuse_a_build_are_few() -> None:
    assert {rule.id for rule in RULES.values() if rule.blend} == {
        "IDX010", "IDX011", "IDX012", "IDX013", "IDX014", "IDX017", "IDX023", "IDX024", "IDX027",
    }  # fmt: skip


def asked_of(text: str) -> Asked:
    return Asked(Submission(text=text.encode(), file="/posted/train.yaml", world=World(base="/posted")))


class TestChildren:
    """What a lint costs is the child's."""

    def test_memory_and_time_end_the_child_and_nothing_else(self, idle: Service) -> None:
        large = "".join(f"- {{type: nemo, manifest_filepath: /d/{number}.json}}\n" for number in range(40_000))
        lints = Lints(idle.site, memory=120 * 2**20)
        try:
            with pytest.raises(BlendexError) as caught:
                lints.run(asked_of(large), "main", "json")
            assert caught.value.code is Code.BLEND_TOO_MANY_NODES
            assert "120 MiB" in caught.value.message
            assert "json" not in caught.value.message
            again = lints.run(asked_of(CONFIG.replace("blend.yaml", "[]")), "main", "json")
            assert "IDX005" in found(again), "the next one gets a child of its own"
        finally:
            lints.close()
        hasty = Lints(idle.site, seconds=0.3)
        try:
            with pytest.raises(BlendexError) as caught:
                hasty.run(asked_of(large), "main", "json")
            assert "more than 0 seconds" in caught.value.message
            assert caught.value.next_step
        finally:
            hasty.close()

    def test_more_than_may_wait_are_told_so(self, idle: Service, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("service.lints.WAIT_SECONDS", 0.05)
        monkeypatch.setattr("service.lints.RUNNERS", 0)
        lints = Lints(idle.site)
        with pytest.raises(BlendexError) as caught:
            lints.run(asked_of(CONFIG), "main", "json")
        assert caught.value.code is Code.BUSY
        lints.close()

    def test_two_at_one_time(self, idle: Service) -> None:
        lints = Lints(idle.site)
        text = "".join(f"- {{type: nemo, manifest_filepath: /d/{number}.json}}\n" for number in range(200))
        try:
            with ThreadPoolExecutor(6) as pool:
                answers = list(pool.map(lambda _: lints.run(asked_of(text), "main", "json"), range(6)))
            assert [answer["reports"][0]["entries"] for answer in answers] == [200] * 6
        finally:
            lints.close()

    def test_the_process_of_the_service_parses_nothing(self, idle: Service, monkeypatch: pytest.MonkeyPatch) -> None:
        def never(*_: object) -> None:
            raise AssertionError("parsed in the process of the service")

        monkeypatch.setattr("yaml.parse", never)
        monkeypatch.setattr("ast.parse", never)
        launcher = ("launch.py", "import nemo_run\n")
        answer = idle.http.post("/v1/lint", files={"config": ("t.yaml", CONFIG), "launcher": launcher})
        assert answer.status_code == 200
        assert answer.json()["reports"][0]["launcher"] == "launch.py"


def test_what_builds_have_read_is_known(service: Service) -> None:
    row = b'{"audio_filepath": "a.wav"}\n' * 60_000
    manifest = service.data / "blank.json"
    manifest.write_bytes(row + b"\n" + row)
    corpus.wait_until_calm()
    blend = f"- {{type: nemo, manifest_filepath: {manifest}}}\n"
    before = service.http.post("/v1/lint", content=blend).json()["reports"][0]
    assert any(item["rule"] == "IDX025" for item in before["unchecked"])
    service.built(blend)
    after = service.http.post("/v1/lint", content=blend).json()["reports"][0]
    assert [item["value"] for item in after["findings"] if item["rule"] == "IDX025"] == ["1 × blank_line"]
    assert not any(item["rule"] == "IDX025" for item in after["unchecked"])


class TestCommandLine:
    """``blendex lint --server``."""

    def run(self, *arguments: str, code: int) -> str:
        result = CliRunner().invoke(app, ["lint", *arguments])
        assert result.exit_code == code, result.output
        return result.stdout if code < 2 else result.stderr

    def test_a_service_lints_with_what_it_knows(
        self, service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Here nothing is known: neither the sources' folder by this name, nor the catalog."""
        row = b'{"audio_filepath": "a.wav"}\n' * 60_000
        manifest = service.data / "elsewhere.json"
        manifest.write_bytes(row + b"\n" + row)
        corpus.wait_until_calm()
        assert service.built(f"- {{type: nemo, manifest_filepath: {manifest}}}\n")["state"] == "ready"
        monkeypatch.chdir(tmp_path)
        (tmp_path / "conf").mkdir()
        (tmp_path / "conf/train.yaml").write_text(CONFIG)
        (tmp_path / "conf/blend.yaml").write_text(
            "- {type: nemo, manifest_filepath: /as/the/job/sees/elsewhere.json}\n"
        )
        view = ("--view", f"/as/the/job/sees={service.data}")
        (tmp_path / "job.sh").write_text(LAUNCHER)
        there = (*view, "--server", service.url, "--launcher", "job.sh")

        value = json.loads(self.run("conf/train.yaml", "--json", *there, code=1))
        known = [item for item in value["reports"][0]["findings"] if item["rule"] == "IDX025"]
        assert [item["value"] for item in known] == ["1 × blank_line"]
        assert {"IDX005", "IDX038"} <= found(value)
        here = json.loads(self.run("conf/train.yaml", "--json", *view, "--launcher", "job.sh", code=1))
        assert here["reports"][0].keys() == value["reports"][0].keys()
        assert "IDX025" in {item["rule"] for item in here["reports"][0]["unchecked"]}

        text = self.run("conf/train.yaml", *there, code=1)
        assert "conf/train.yaml:4:5: error IDX005" in text
        assert "    4 |     shard_seed: randomized\n" in text, "lines of files that are here"
        assert "conf/blend.yaml:1:3: error IDX025" in text
        sarif = json.loads(self.run("conf/train.yaml", "conf/blend.yaml", "--sarif", *there, code=1))
        assert len(sarif["runs"]) == 1
        assert {"IDX005", "IDX025"} <= {item["ruleId"] for item in sarif["runs"][0]["results"]}
        self.run("conf/train.yaml", "--out", "out", *there, code=1)
        assert "# the seed" in (tmp_path / "out/train-resumable.yaml").read_text()
        self.run("conf/train.yaml", "--fix", *there, code=1)
        assert "shard_seed: 42" in (tmp_path / "conf/train.yaml").read_text()

    def test_what_goes_wrong_has_a_next_step(self, idle: Service, tmp_path: Path) -> None:
        config = tmp_path / "train.yaml"
        config.write_text(CONFIG)
        outside = self.run(str(config), "--server", idle.url, "--base-dir", str(tmp_path / "b"), code=2)
        assert "--base-dir" in outside
        base = ("--base-dir", str(tmp_path))
        assert "does not answer" in self.run(str(config), "--server", "http://127.0.0.1:9", *base, code=2)
        config.write_text("a: [")
        assert "blend_syntax" in self.run(str(config), "--server", idle.url, *base, code=2)
