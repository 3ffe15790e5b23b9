"""PostgreSQL and Redis as processes of the tests' own, on free ports, in folders that go with them (``leftovers``).

``BLENDEX_TEST_DATABASE_URL`` (a PostgreSQL role that may create databases) and ``BLENDEX_TEST_BROKER_URL`` are taken
instead when they are set; what is killed and restarted by a test is always its own.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import redis
from sqlalchemy.engine import URL, make_url

from blendex.catalog import migrate
from blendex.catalog.dialect import open_engine
from tests.support.leftovers import Place

# Below the range from which the kernel gives ports to connections, and a range of its own for each process of the
# tests: a port that is free now must still be free when a server that takes seconds to start binds it.
_PORTS_PER_WORKER = 2_000
_next_port = itertools.count(random.randrange(1_000))


def free_port() -> int:
    """A port that nobody listens on, and that no other process of the tests will be told of."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    for number in _next_port:
        port = 10_000 + worker % 10 * _PORTS_PER_WORKER + number % _PORTS_PER_WORKER
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError


def _postgres_bin() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parent.parent.name))
    if found:
        return found[-1].parent
    at = shutil.which("initdb")
    return Path(at).parent if at else None


def has_postgres() -> bool:
    """Whether a PostgreSQL can be had."""
    return "BLENDEX_TEST_DATABASE_URL" in os.environ or _postgres_bin() is not None


def has_redis() -> bool:
    """Whether a Redis can be had."""
    return "BLENDEX_TEST_BROKER_URL" in os.environ or shutil.which("redis-server") is not None


class Postgres:
    """One PostgreSQL server. It refuses to run as root, so root lends it the account ``postgres``."""

    def __init__(self) -> None:
        binaries = _postgres_bin()
        if binaries is None:
            raise FileNotFoundError("PostgreSQL is not installed: apt-get install postgresql")
        self._bin = binaries
        self.port = free_port()
        self.place = Place("pg")
        self._as: list[str] = []
        if os.geteuid() == 0:
            account = pwd.getpwnam("postgres")
            os.chown(self.place.path, account.pw_uid, account.pw_gid)
            self._as = ["runuser", "-u", "postgres", "--"]
        self._data = self.place.path / "data"
        self._run("initdb", "-D", str(self._data), "-U", "blendex", "-A", "trust", "-E", "UTF8", "--no-locale", "-N")
        with (self._data / "postgresql.conf").open("a") as file:
            file.write(
                f"port = {self.port}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = ''\n"
                "fsync = off\nmax_connections = 200\nlog_min_messages = fatal\n"
            )
        self.start()

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [*self._as, str(self._bin / program), *arguments],
            check=True, stdout=subprocess.DEVNULL, cwd=self.place.path, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def start(self) -> None:
        self._run("pg_ctl", "-D", str(self._data), "-w", "-l", str(self.place.path / "log"), "start")

    def stop(self, mode: str = "immediate") -> None:
        self._run("pg_ctl", "-D", str(self._data), "-m", mode, "-w", "stop")

    def close(self) -> None:
        self.stop()
        self.place.close()

    @property
    def url(self) -> URL:
        return make_url(f"postgresql+psycopg://blendex@127.0.0.1:{self.port}/postgres")


class Databases:
    """Makes databases on a server, and drops them."""

    def __init__(self, url: URL) -> None:
        self._url = url
        self._made: list[str] = []
        self._template: str | None = None

    def _execute(self, statement: str) -> None:
        plain = self._url.set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(plain, autocommit=True) as connection:
            connection.execute(statement)  # type: ignore[arg-type]

    def make(self) -> str:
        """The URL of a new, empty database."""
        return self._new(f"test_{uuid.uuid4().hex}")

    def ready(self) -> str:
        """The URL of a new database that holds the schema: a copy, since every migration again costs ten times that."""
        if self._template is None:
            name = f"template_{uuid.uuid4().hex}"
            engine = open_engine(self._new(name))
            migrate.upgrade(engine)
            engine.dispose()
            self._made.remove(name)
            self._template = name
        return self._new(f"test_{uuid.uuid4().hex}", f"TEMPLATE {self._template}")

    def _new(self, name: str, how: str = "") -> str:
        self._execute(f"CREATE DATABASE {name} {how}")
        self._made.append(name)
        return self._url.set(database=name).render_as_string(hide_password=False)

    def drop_all(self) -> None:
        for name in self._made:
            self._execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        self._made.clear()

    def close(self) -> None:
        """Drop the copies' original, too."""
        self.drop_all()
        if self._template is not None:
            self._execute(f"DROP DATABASE IF EXISTS {self._template} WITH (FORCE)")


class Redis:
    """One Redis that keeps nothing: restarted, it is empty."""

    def __init__(self) -> None:
        self.port = free_port()
        self.place = Place("redis")
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
             "--dir", str(self.place.path), "--maxmemory-policy", "noeviction"],
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        deadline = time.monotonic() + 20
        while True:
            try:
                with self.client() as client:
                    client.ping()
                return
            except redis.exceptions.ConnectionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port)

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._process = None

    def close(self) -> None:
        if self._process is not None:
            self.kill()
        self.place.close()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"


@contextmanager
def databases() -> Iterator[Databases]:
    """Databases on the server of the environment, or on one of our own."""
    given = os.environ.get("BLENDEX_TEST_DATABASE_URL")
    server = None if given else Postgres()
    maker = Databases(make_url(given) if given else server.url)  # type: ignore[union-attr]
    try:
        yield maker
    finally:
        maker.close()
        if server is not None:
            server.close()
