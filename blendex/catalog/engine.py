"""The database of a root: where it is, whether it belongs there, and units of work on it."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from blendex.catalog import dialect, waste
from blendex.catalog.models import Meta
from blendex.errors import BlendexError, Code
from blendex.storage.root import replace

# f_type of filesystems on which SQLite's locks cannot be trusted: NFS, Lustre, SMB/CIFS, 9p, AFS, Ceph, GPFS,
# BeeGFS, FUSE (sshfs and the like). From linux/magic.h and the projects' own headers.
NETWORK_FILESYSTEMS = {
    0x6969, 0x0BD00BD0, 0x517B, 0xFF534D42, 0xFE534D42, 0x01021997, 0x5346414F, 0x00C36400, 0x47504653,
    0x19830326, 0x65735546,
}  # fmt: skip


CATALOG_ID = "catalog_id"
# While the catalog is away, look-ups ask it once in so long.
REST_SECONDS = 2.0


def filesystem_type(path: str) -> int:
    """``f_type`` of the filesystem of ``path``, by statfs(2)."""
    import ctypes

    buffer = ctypes.create_string_buffer(256)  # struct statfs is 120 bytes on 64-bit Linux
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.statfs(os.fsencode(path), buffer) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return int.from_bytes(buffer.raw[:8], "little")


def catalog_id(root: str) -> str:
    """The id that ties a root to its database; made on first use, by one process even if several begin."""
    path = os.path.join(root, "catalog-id")
    try:
        with open(path) as file:
            return file.read().strip()
    except FileNotFoundError:
        pass
    private = f"{path}.{uuid.uuid4().hex}"
    replace(private, (uuid.uuid4().hex + "\n").encode())
    try:
        os.link(private, path)
    except FileExistsError:
        pass
    finally:
        os.unlink(private)
    return catalog_id(root)


def default_url(root: str, state_dir: Path) -> tuple[str, str | None]:
    """The SQLite URL for a root, and a sentence for its user when the file lies elsewhere."""
    if filesystem_type(root) not in NETWORK_FILESYSTEMS:
        return f"sqlite:///{root}/catalog.sqlite", None
    state_dir.mkdir(parents=True, exist_ok=True)
    path = state_dir / f"{catalog_id(root)}.sqlite"
    return f"sqlite:///{path}", (
        f"{root} is on a network filesystem, where SQLite is not safe: the catalog is kept in {path}. "
        "It is a cache; receipts and bundles fill it again."
    )


class UnitOfWork:
    """Transactions on one catalog. The edge opens one, and only leaving it commits.

    Args:
        engine: of the catalog.
        opened: False for a catalog that does not answer yet: whether it belongs to the root, at a revision that this
            program works with, is seen first; until ``open`` every transaction is refused as one that nobody answered.
    """

    def __init__(self, engine: Engine, *, opened: bool = True) -> None:
        self.engine = engine
        self.away = not opened  # as far as the last transaction could tell
        self._opened = opened
        self._tried = time.monotonic()
        self._reader = dialect.reader(engine)
        self._writer = dialect.writer(engine)

    def open(self) -> None:
        """The catalog is there, and the right one."""
        self._opened, self.away = True, False

    def resting(self) -> bool:
        """Whether the catalog was away a moment ago, so that who can do without it asks it nothing.

        One caller in ``REST_SECONDS`` is told False, and finds out: a server that is cut off costs a caller seconds.
        """
        if not self._opened or not self.away:
            return not self._opened
        if time.monotonic() - self._tried < REST_SECONDS:
            return True
        self._tried = time.monotonic()
        return False

    @contextmanager
    def _noticed(self) -> Iterator[None]:
        if not self._opened:
            raise dialect.UnopenedError
        try:
            yield
        except dialect.AWAY as error:
            if dialect.is_gone(error):
                self.away, self._tried = True, time.monotonic()
            raise
        self.away = False

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A transaction that sees one state and changes nothing."""
        with self._noticed(), Session(self._reader) as session:
            yield session  # closing rolls back, and leaves what was loaded readable

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A transaction that commits at the end, or rolls back when an error leaves it."""
        with self._noticed(), Session(self._writer, expire_on_commit=False) as session, session.begin():
            yield session


def belongs(work: UnitOfWork, root: str) -> bool:
    """Whether a database is tied to a root; False for a new one, that is tied to none.

    Raises:
        BlendexError: catalog_mismatch, when it belongs to another root.
    """
    expected = catalog_id(root)
    with work.read() as session:
        row = session.execute(select(Meta).where(Meta.key == CATALOG_ID)).scalar_one_or_none()
    if row is None:
        return False
    if row.value != expected:
        raise BlendexError(
            Code.CATALOG_MISMATCH,
            f"this database belongs to catalog {row.value}, the root to {expected}.",
            file=os.path.join(root, "catalog-id"),
            next_step="Use the database that belongs to this root, or an empty one: "
            "receipts and bundles of the root fill it.",
        )
    return True


def tie(work: UnitOfWork, root: str, *, adopted: bool = False) -> None:
    """Tie a database to a root, once it knows what the root holds; ``adopted``: what was there, or in a backup."""
    with work.write() as session:
        if adopted:
            waste.note_adopted(session)
        session.execute(
            dialect.insert(session, Meta).values(key=CATALOG_ID, value=catalog_id(root)).on_conflict_do_nothing()
        )
