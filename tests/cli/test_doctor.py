"""``blendex doctor``: what is right is said to be, and what is not is said with what to do."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from blendex.builds.site import Site
from blendex.catalog import health, migrate, revision
from blendex.catalog.dialect import open_engine
from blendex.cli import main
from blendex.cli.doctor import KINDS
from blendex.observability.diagnosis import Diagnosis
from blendex.storage import rootcheck, secondhost
from tests.support import corpus, services

Doctor = Callable[..., dict[str, dict[str, Any]]]


@pytest.fixture
def doctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Doctor:
    """The command, in this process; what it says, by kind and check."""

    def call(*arguments: str, code: int = 0, **environment: str) -> dict[str, dict[str, Any]]:
        monkeypatch.setattr(sys, "argv", ["blendex", "doctor", "--json", *arguments])
        with monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            with pytest.raises(SystemExit) as ended:
                main()
        said = json.loads(capsys.readouterr().out)
        assert ended.value.code == code, said
        assert said["healthy"] is (code == 0)
        for item in said["checks"]:
            assert item["do"] or item["verdict"] in ("ok", "skipped"), item
        return {f"{item['kind']}.{item['check']}": item for item in said["checks"]}

    return call


@pytest.fixture(scope="module")
def redis() -> Iterator[services.Redis]:
    if not services.has_redis() and not os.environ.get("CI"):
        pytest.skip("redis-server is not installed")
    server = services.Redis()
    yield server
    server.close()


def test_a_new_folder(doctor: Doctor, tmp_path: Path) -> None:
    found = doctor("--root", str(tmp_path / "root"))
    assert {key.partition(".")[0] for key in found} == set(KINDS)
    assert found["root.rename"]["verdict"] == "ok"
    assert found["queue.connect"]["verdict"] == "skipped"
    assert "none yet" in found["database.connect"]["says"]
    assert not (tmp_path / "root").exists()  # looking makes nothing that stays


def test_a_cluster(doctor: Doctor, tmp_path: Path, databases: services.Databases, redis: services.Redis) -> None:
    url = databases.make()
    site: Site = corpus.site(tmp_path / "root", database_url=url)
    site.work.engine.dispose()
    environment = {"BLENDEX_ROOT": str(tmp_path / "root"), "BLENDEX_DATABASE_URL": url, "BLENDEX_BROKER_URL": redis.url}
    found = doctor(**environment)
    for name in ("latency", "version", "schema", "clock", "root"):
        assert found[f"database.{name}"]["verdict"] == "ok", found
    for name in ("latency", "version", "policy", "queues"):
        assert found[f"queue.{name}"]["verdict"] == "ok", found
    with redis.client() as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        assert "noeviction" in doctor(code=1, **environment)["queue.policy"]["do"]
        client.config_set("maxmemory-policy", "noeviction")
    foreign = doctor(
        "--root", str(tmp_path / "root"), code=1, **environment | {"BLENDEX_DATABASE_URL": databases.make()}
    )
    assert "blendex db upgrade" in foreign["database.schema"]["do"]
    (tmp_path / "root/catalog-id").write_text("another\n")
    assert "belongs to catalog" in doctor(code=1, **environment)["database.root"]["says"]


def test_nobody_answers(doctor: Doctor, tmp_path: Path) -> None:
    port = services.free_port()
    found = doctor(
        code=1,
        BLENDEX_ROOT=str(tmp_path / "root"),
        BLENDEX_DATABASE_URL=f"postgresql://who:hunter2@127.0.0.1:{port}/x",
        BLENDEX_BROKER_URL=f"redis://:hunter2@127.0.0.1:{port}/0",
    )
    assert found["database.connect"]["verdict"] == "wrong"
    assert found["queue.connect"]["verdict"] == "wrong"
    assert "hunter2" not in json.dumps(found)


def test_people_read_lines(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", "from blendex.cli import main; main()", "doctor", "--root", str(tmp_path / "root")],
        check=True, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert re.search(r"^ok +root +link +hard links can be made", result.stdout, re.MULTILINE)


def looked(root: Path) -> dict[str, Diagnosis]:
    return {item.check: item for item in rootcheck.check(str(root))}


def test_a_root_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    found = looked(tmp_path / "file")
    assert [item.verdict for item in found.values()] == ["wrong"]
    assert str(tmp_path / "file") in found["write"].do


def test_a_root_behind_a_link_and_closed_to_others(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    found = looked(tmp_path / "link")
    assert (found["symlink"].verdict, found["modes"].verdict) == ("warning", "warning")
    assert f"BLENDEX_ROOT={tmp_path / 'real'}" in found["symlink"].do


def test_filesystems_are_told_apart() -> None:
    assert rootcheck.filesystem("/proc/self") == ("proc", "/proc")
    assert rootcheck.filesystem("/")[1] == "/"


def test_a_filesystem_without_links_or_fine_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    utime = os.utime
    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(
        os, "utime", lambda path, ns: utime(path, ns=(ns[0], ns[1] // 2_000_000_000 * 2_000_000_000 - 1))
    )
    found = looked(tmp_path)
    assert found["link"].verdict == "wrong"
    assert "object storage" in found["link"].do
    assert found["mtime"].verdict == "ok"  # 1.1 s off: still finer than what is racy
    monkeypatch.setattr(os, "utime", lambda path, ns: utime(path, ns=(ns[0], ns[1] - 4_000_000_000)))
    assert looked(tmp_path)["mtime"].verdict == "wrong"
    monkeypatch.setattr(os, "rename", refuse)
    found = looked(tmp_path)
    assert found["rename"].verdict == "wrong"
    assert found["fsync"].verdict == "ok"
    assert not (tmp_path / "staging").exists()


@pytest.mark.parametrize(("since", "verdict"), [("0001", "warning"), ("9998", "wrong")])
def test_a_schema_of_a_newer_version(tmp_path: Path, since: str, verdict: str) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/catalog.sqlite")
    migrate.upgrade(engine)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
        connection.exec_driver_sql(f"UPDATE meta SET value = '{since}' WHERE key = 'additive_since'")
    found = {item.check: item for item in health.check(engine, None)}
    assert found["schema"].verdict == verdict
    assert "9999" in found["schema"].says
    assert revision.head() in found["schema"].says
    assert found["schema"].do
    engine.dispose()


def test_two_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one is a process of its own; that it is on this machine is noticed."""
    root = str(tmp_path)
    process: list[subprocess.Popen[str]] = []

    def start(code: str) -> None:
        process.append(
            subprocess.Popen(
                [sys.executable, "-c", "from blendex.cli import main; main()", "doctor", "--json", "--root", root,
                 "--from-node", code],
                stdout=subprocess.PIPE, text=True,
            )
        )  # fmt: skip

    found = {item.check: item for item in secondhost.ask(root, 30, start)}
    assert found["visible"].verdict == "warning"
    assert "is this machine" in found["visible"].says
    assert (found["moved"].verdict, found["clocks"].verdict) == ("ok", "ok")
    said = json.loads(process[0].communicate(timeout=30)[0])
    assert [item["verdict"] for item in said["checks"] if item["check"] == "visible"] == ["ok"]
    assert os.listdir(tmp_path / "staging") == []

    names = iter([{"host": "a", "machine": "1", "clock": 0.0}] * 2 + [{"host": "b", "machine": "2", "clock": 0.0}])
    monkeypatch.setattr(secondhost, "_self", lambda: next(names))
    assert [item.verdict for item in secondhost.ask(root, 0.2, lambda _: None)] == ["wrong"]
    assert [item.verdict for item in secondhost.answer(root, "0" * 12, 0.2)] == ["wrong"]
