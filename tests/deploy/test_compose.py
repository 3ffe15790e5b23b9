"""The Dockerfile and the compose file, held against two tools and against what they promise. No engine is needed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from compose_spec import PyCompose

from blendex.cli.app import app
from blendex.settings import Settings

HERE = Path(__file__).parent.parent.parent
COMPOSE = HERE / "docker-compose.yml"
AISTORE = ("ais-proxy", "ais-target")  # of the profile aistore
OURS = ("migrate", "api", "worker-1", "worker-2")


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    """The services with their merges resolved."""
    value: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    return value["services"]  # type: ignore[no-any-return]


def hadolint(text: bytes) -> subprocess.CompletedProcess[bytes]:
    program = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    assert program is not None
    return subprocess.run([program, "-"], input=text, capture_output=True, check=False)


def test_hadolint_finds_nothing_and_finds_something() -> None:
    text = (HERE / "Dockerfile").read_bytes()
    found = hadolint(text)
    assert found.returncode == 0, found.stdout.decode()
    assert hadolint(text.replace(b"WORKDIR /src", b"WORKDIR src")).returncode == 1
    # A base that may be chosen is not looked at: its default is ours to pin.
    bases = re.findall(rb"^(?:ARG BASE=|FROM )(\S+)", text, re.MULTILINE)
    assert bases[0].startswith(b"python:3.11.")
    assert set(bases[1:]) == {b"${BASE}"}


def test_compose_spec_takes_the_file_and_refuses_a_broken_one() -> None:
    parsed = _parse(COMPOSE.read_text())
    assert set(parsed.service_names()) >= {"postgres", "redis", "prometheus", "grafana", *AISTORE, *OURS}
    parsed.validate()
    with pytest.raises(ValueError, match="mem_limit"):
        _parse(COMPOSE.read_text().replace("mem_limit: 128m", "mem_limit: much"))
    unknown = COMPOSE.read_text().replace("  redis:\n", "  redis:\n    networks: [elsewhere]\n", 1)
    with pytest.raises(ValueError, match="elsewhere"):
        _parse(unknown).validate()


VALUES = {
    "POSTGRES_PASSWORD": "secret",
    "BLENDEX_SHARED": "/shared",
    "BLENDEX_SOURCES": "/data",
    "BLENDEX_PORT": "8765",
    "BLENDEX_AUTH": "none",
    "BLENDEX_PUBLIC_URL": "http://127.0.0.1:8765",
    "PROMETHEUS_PORT": "9090",
    "GRAFANA_PORT": "3000",
}


def _parse(text: str) -> Any:
    """With merges resolved and the variables that the file asks for put in, and no others."""
    text = re.sub(r"\$\{(\w+)[^}]*\}", lambda match: VALUES[match[1]], text)
    return PyCompose.from_yaml(yaml.safe_dump(yaml.safe_load(text)))


def test_the_image_installs_what_the_checks_install() -> None:
    text = (HERE / "Dockerfile").read_text()
    assert "--require-hashes --requirement requirements/cluster.txt" in text
    assert "--no-index --no-deps --no-build-isolation" in text
    for name in yaml.safe_load("[blendex, service, workers, migrations]"):
        assert f"COPY {name} {name}" in text
        assert f"!{name}" in (HERE / ".dockerignore").read_text()


def test_nothing_runs_as_root_or_sees_a_gpu(services: dict[str, Any]) -> None:
    text = (HERE / "Dockerfile").read_text()
    assert "USER 10001:10001" in text.split("FROM")[-1]
    assert "NVIDIA_VISIBLE_DEVICES=void" in text
    assert "nvidia" not in COMPOSE.read_text().lower()
    for name in OURS:
        service = services[name]
        assert service["cap_drop"] == ["ALL"]
        assert service["read_only"] is True
        assert "no-new-privileges:true" in service["security_opt"]
        assert not service.get("privileged")


def test_what_only_watches_is_no_way_in(services: dict[str, Any]) -> None:
    for name in ("prometheus", "grafana"):
        assert services[name]["profiles"] == ["observability"]
        assert services[name]["read_only"] is True
        assert services[name]["cap_drop"] == ["ALL"]
        assert all(port.startswith("127.0.0.1:") for port in services[name]["ports"])
    environment = services["grafana"]["environment"]
    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert environment["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"
    assert environment["GF_AUTH_BASIC_ENABLED"] == "false"


def test_the_migration_is_a_command_there_is(services: dict[str, Any]) -> None:
    command: Any = typer.main.get_command(app)
    words = list(services["migrate"]["command"])
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    command.make_context("migrate", words)


def test_versions_are_pinned_memory_is_limited_health_is_asked(services: dict[str, Any]) -> None:
    for name, service in services.items():
        image = service["image"]
        assert ":" in image, name
        # No tag of the small AIStore was ever seen to exist; nothing of ours runs on it.
        assert name in AISTORE or not image.endswith(":latest"), name
        assert service["mem_limit"], name
        if name not in OURS:
            assert service["healthcheck"]["test"], name
    assert "HEALTHCHECK" in (HERE / "Dockerfile").read_text()


def test_everybody_waits_for_what_they_need(services: dict[str, Any]) -> None:
    assert services["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    for name in ("api", "worker-1", "worker-2"):
        waits = {key: value["condition"] for key, value in services[name]["depends_on"].items()}
        assert waits == {
            "migrate": "service_completed_successfully", "postgres": "service_healthy", "redis": "service_healthy",
        }  # fmt: skip


def test_settings_exist_and_secrets_come_from_outside(services: dict[str, Any]) -> None:
    known = {f"BLENDEX_{name.upper()}" for name in Settings.model_fields} | {"BLENDEX_HEALTH"}
    for name in OURS:
        assert services[name]["environment"].keys() <= known
        assert "${POSTGRES_PASSWORD:?" in services[name]["environment"]["BLENDEX_DATABASE_URL"]
    for name in ("worker-1", "worker-2"):
        grace = float(services[name]["stop_grace_period"].removesuffix("s"))
        assert grace >= Settings.model_fields["drain_seconds"].default + 10


def test_redis_never_evicts(services: dict[str, Any]) -> None:
    command = services["redis"]["command"]
    assert command[command.index("--maxmemory-policy") + 1] == "noeviction"
