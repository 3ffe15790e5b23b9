"""``blendex db``: the catalog goes into a file, and comes back into the other database as well."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import select, text

from blendex.builds.run import run_build
from blendex.builds.site import Site
from blendex.catalog import backup, migrate, revision
from blendex.catalog.dialect import open_engine
from blendex.catalog.engine import UnitOfWork, catalog_id
from blendex.catalog.models import Base, Meta
from blendex.cli import main
from blendex.errors import BlendexError, Code
from tests.support import corpus, services

OpenSite = Callable[..., Site]


def rows(work: UnitOfWork) -> dict[str, list[tuple[object, ...]]]:
    """Everything in a catalog, but what changes by looking at it."""
    with work.read() as session:
        return {
            table.name: sorted(map(tuple, session.execute(select(table))), key=repr)
            for table in Base.metadata.sorted_tables
            if table.name not in ("workers", "meta")
        }


@pytest.fixture
def other(dialect: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of the other sort."""
    if dialect == "postgres":
        return f"sqlite:///{tmp_path}/other.sqlite"
    maker: services.Databases = request.getfixturevalue("databases")
    return maker.make()


def test_everything_comes_back_in_the_other_database(
    open_site: OpenSite, other: str, data: Path, tmp_path: Path
) -> None:
    site = open_site()
    built = run_build(site, corpus.submission(corpus.corpus(data, 3), data))
    assert built["state"] == "ready"
    before = rows(site.work)
    file = str(tmp_path / "backup.sqlite")
    counts = backup.save(site.work.engine, file)
    assert counts["mirrors"] == 1
    assert counts["sources"] > 1
    assert os.stat(file).st_mode & 0o777 == 0o600
    assert sorted(os.listdir(tmp_path)).count("backup.sqlite") == 1
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".backup")]

    target = open_engine(other)
    assert backup.load(target, file, str(site.root.path)) == counts
    assert rows(UnitOfWork(target)) == before
    target.dispose()
    again = open_site(database_url=other)
    # What was there is a hit, and new rows get new ids.
    assert run_build(again, corpus.submission(corpus.corpus(data, 3), data))["mirror"] == built["mirror"]
    more = run_build(again, corpus.submission(corpus.corpus(tmp_path / "more", 2), tmp_path / "more"))
    assert more["state"] == "ready", more


def test_what_was_published_after_a_backup_is_found_again(open_site: OpenSite, data: Path, tmp_path: Path) -> None:
    site = open_site()
    file = str(tmp_path / "backup.sqlite")
    backup.save(site.work.engine, file)
    built = run_build(site, corpus.submission(corpus.corpus(data, 2), data))
    fresh = f"sqlite:///{tmp_path}/fresh.sqlite"
    target = open_engine(fresh)
    backup.load(target, file, str(site.root.path))
    target.dispose()
    with open_site(database_url=fresh).work.read() as session:
        assert session.execute(text("SELECT key FROM mirrors")).scalars().all() == [built["mirror"]]


def test_an_older_schema_can_be_saved_and_is_upgraded_when_it_comes_back(
    empty_database_url: str, tmp_path: Path
) -> None:
    engine = open_engine(empty_database_url)
    migrate.upgrade(engine, "0002")
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO meta (key, value) VALUES ('remembered', 'yes')"))
    file = str(tmp_path / "backup.sqlite")
    assert backup.save(engine, file)["meta"] == 1
    assert revision.current(engine) == "0002"
    engine.dispose()
    fresh = open_engine(f"sqlite:///{tmp_path}/fresh.sqlite")
    backup.load(fresh, file, str(tmp_path))
    assert revision.current(fresh) == revision.head()
    assert migrate.drift(fresh) == []
    with fresh.begin() as connection:
        assert connection.execute(select(Meta.value).where(Meta.key == "remembered")).scalar_one() == "yes"
    fresh.dispose()


def test_what_is_refused(open_site: OpenSite, tmp_path: Path) -> None:
    site = open_site()
    file = str(tmp_path / "backup.sqlite")
    backup.save(site.work.engine, file)
    with pytest.raises(BlendexError) as taken:
        backup.save(site.work.engine, file)
    assert (taken.value.code, taken.value.file) == (Code.BAD_REQUEST, file)
    with pytest.raises(BlendexError, match="holds a catalog already"):
        backup.load(site.work.engine, file, site.root.path)

    fresh = open_engine(f"sqlite:///{tmp_path}/fresh.sqlite")
    with pytest.raises(BlendexError, match="holds no catalog"):
        backup.save(fresh, str(tmp_path / "another"))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with pytest.raises(BlendexError) as foreign:
        backup.load(fresh, file, str(elsewhere))
    assert foreign.value.code == Code.CATALOG_MISMATCH
    assert catalog_id(str(elsewhere)) in foreign.value.message
    junk = tmp_path / "junk"
    junk.write_bytes(b"no database at all, but long enough to be looked at" * 100)
    for path in (junk, tmp_path / "missing"):
        with pytest.raises(BlendexError) as bad:
            backup.load(fresh, str(path), site.root.path)
        assert (bad.value.code, bad.value.file) == (Code.BAD_REQUEST, str(path))
    assert revision.current(fresh) is None
    fresh.dispose()


Said = tuple[str, str]
Blendex = Callable[..., Said]


@pytest.fixture
def blendex(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Blendex:
    """The command line, in this process; what it wrote to standard output and standard error."""

    def call(*arguments: str, code: int = 0, url: str | None = None) -> Said:
        monkeypatch.setattr(sys, "argv", ["blendex", *arguments])
        monkeypatch.setenv("BLENDEX_ROOT", str(tmp_path / "root"))
        if url is not None:
            monkeypatch.setenv("BLENDEX_DATABASE_URL", url)
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        assert (ended.value.code or 0) == code, said.out + said.err
        return said.out, said.err

    return call


def test_commands(blendex: Blendex, tmp_path: Path) -> None:
    assert "revision None" in blendex("db", "check", code=1)[0]
    assert json.loads(blendex("db", "upgrade", "--json")[0])["revision"] == revision.head()
    assert json.loads(blendex("db", "check", "--json")[0])["good"] is True
    blendex("migrate")
    engine = open_engine(f"sqlite:///{tmp_path}/root/catalog.sqlite")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE stray (a INTEGER)"))
    assert "stray" in blendex("db", "check", "--strict", code=1)[0]
    blendex("db", "check")  # an index that an administrator added must not keep processes from starting
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE stray"))
    engine.dispose()
    said = blendex("db", "backup", str(tmp_path / "file"), "--json")[0]
    assert json.loads(said)["file"] == str(tmp_path / "file")
    (tmp_path / "root/catalog.sqlite").unlink()
    assert "came from" in blendex("db", "restore", str(tmp_path / "file"))[0]
    blendex("db", "check")


def test_a_gate_waits_for_the_upgrade(databases: services.Databases, tmp_path: Path) -> None:
    environment = {"BLENDEX_DATABASE_URL": databases.make(), "BLENDEX_ROOT": str(tmp_path / "root")}
    command = [sys.executable, "-c", "from blendex.cli import main; main()", "db"]
    gate = subprocess.Popen(
        [*command, "check", "--wait", "60"], env=os.environ | environment, stdout=subprocess.PIPE, text=True
    )
    subprocess.run([*command, "upgrade"], env=os.environ | environment, check=True, stdout=subprocess.DEVNULL)
    said = gate.communicate(timeout=60)[0]
    assert gate.returncode == 0
    assert "which this version works with" in said
    # A database elsewhere is upgraded and checked where the root is not mounted.
    assert not (tmp_path / "root").exists()


def test_a_database_that_is_away_is_named_without_its_password(blendex: Blendex, tmp_path: Path) -> None:
    url = f"postgresql://who:hunter2@127.0.0.1:{services.free_port()}/x"
    for command in (("upgrade",), ("check",), ("backup", str(tmp_path / "file")), ("upgrade", "--wait", "1")):
        out, err = blendex("db", *command, code=1, url=url)
        assert "does not answer" in err
        assert "hunter2" not in out + err
    assert not (tmp_path / "file").exists()
