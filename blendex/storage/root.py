"""The layout of ``BLENDEX_ROOT`` and the few ways in which files come to be there.

Everything is written under a name that nobody looks for, flushed, then linked or renamed into place, so a name
that can be seen is complete. Temporary names are random and created with O_EXCL: process ids repeat across nodes.
"""

from __future__ import annotations

import contextlib
import ctypes
import grp
import os
from collections.abc import Iterator
from pathlib import Path

from blendex.errors import BlendexError, Code, passing

# Names under builds/, mirrors/ and names/ come from these alphabets only, so none can leave its folder.
HEX = frozenset("0123456789abcdef")


def write_all(descriptor: int, data: bytes | bytearray | memoryview) -> None:
    """Write every byte of ``data``, or raise ``no_space`` or the OSError."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except OSError as error:
            raise passing(error) or error from error


def create(path: str, data: bytes, mode: int = 0o644) -> None:
    """A new file with ``data``; FileExistsError when the name is taken. Not flushed."""
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, mode)
    try:
        write_all(descriptor, data)
    finally:
        os.close(descriptor)


def flush_folder(path: str) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_file(path: str) -> None:
    """Make the bytes of a file durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_filesystem(path: str) -> None:
    """Make everything written to the filesystem of ``path`` durable: one call for many thousand files.

    An fsync per sidecar costs about 0.5 ms; syncfs costs the transfer of what is dirty.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
    finally:
        os.close(descriptor)


def replace(path: str, data: bytes, mode: int = 0o644) -> None:
    """Put ``data`` under ``path`` at one instant, durably, whatever was there."""
    folder, name = os.path.split(path)
    private = os.path.join(folder, f".{name}.{os.urandom(8).hex()}")
    try:
        create(private, data, mode)
        flush_file(private)
        os.rename(private, path)
    except BaseException:
        if os.path.lexists(private):
            os.unlink(private)
        raise
    flush_folder(folder)


class Root:
    """Paths under the root folder. Holds no descriptor: staging is opened by path, always."""

    FOLDERS = ("objects", "staging", "mirrors", "receipts", "builds", "names", "holds", "trash")

    def __init__(self, path: str | Path) -> None:
        self.path = os.path.abspath(path)

    def prepare(self) -> None:
        """Make the folders that are not there yet."""
        for name in self.FOLDERS:
            os.makedirs(os.path.join(self.path, name), exist_ok=True)

    def restrict(self, group: str) -> None:
        """Let nobody below the root but its owner and the members of a group.

        It is the folders below the root that keep others out: what lies in them is readable as ever, and a pack that
        several mirrors share is one file with one mode.

        Raises:
            BlendexError: root_settings.
        """
        try:
            number = grp.getgrnam(group).gr_gid
            for name in self.FOLDERS:
                path = os.path.join(self.path, name)
                found = os.stat(path)
                if (found.st_gid, found.st_mode & 0o777) != (number, 0o750):
                    os.chown(path, -1, number)
                    os.chmod(path, 0o750)
        except (KeyError, OSError) as error:
            why = "there is no such group" if isinstance(error, KeyError) else str(error.strerror)
            raise BlendexError(
                Code.ROOT_SETTINGS,
                f"its folders cannot be given to the group {group[:64]!r}: {why}.",
                file=self.path,
                next_step="Name a group that the owner of the root is a member of (BLENDEX_ROOT_GROUP).",
            ) from error

    def object(self, name: str) -> str:
        """``objects/<2>/<name>``, ``name`` being ``<sha256>.bundle`` or ``<sha256>.idxpack``."""
        return os.path.join(self.path, "objects", name[:2], name)

    def objects(self) -> Iterator[str]:
        """Names of all objects."""
        top = os.path.join(self.path, "objects")
        for folder in sorted(os.listdir(top)):
            for name in sorted(os.listdir(os.path.join(top, folder))):
                if not name.startswith("."):
                    yield name

    def staging(self, attempt: str) -> str:
        """The private folder of one attempt to publish; ``attempt`` is ``<build>.<unit>-<fence>``."""
        return os.path.join(self.path, "staging", attempt)

    def fence_off(self, build: str, attempt: str) -> None:
        """Take away the folders of all other attempts to publish a build, so that none of them can any more.

        Attempts rename what they made out of their own folder; one rename here decides for all of it. What attempts
        at index units leave in staging are files, not folders: they are bundles, and hurt nobody.
        """
        top = os.path.join(self.path, "staging")
        for name in os.listdir(top):
            path = os.path.join(top, name)
            if name != attempt and name.startswith(f"{build}.") and os.path.isdir(path):
                with contextlib.suppress(FileNotFoundError):
                    self.discard(path)

    def private(self, attempt: str, suffix: str) -> str:
        """A fresh name in staging for a file that will be linked elsewhere; it tells whose it is, to the sweeper."""
        return os.path.join(self.path, "staging", f"{attempt}.{os.urandom(8).hex()}{suffix}")

    def mirror(self, key: str) -> str:
        """The folder of one mirror."""
        return os.path.join(self.path, "mirrors", key)

    def mirrors(self) -> list[str]:
        """Keys of all mirrors on disk."""
        return sorted(
            name for name in os.listdir(os.path.join(self.path, "mirrors")) if len(name) == 64 and HEX.issuperset(name)
        )

    def receipt(self, key: str) -> str:
        """The receipt that outlives its mirror."""
        return os.path.join(self.path, "receipts", f"{key}.json.zst")

    def cross_checks(self, key: str, digest: str) -> str:
        """What was found when the sources of a mirror were held against each other in one arrangement."""
        return os.path.join(self.path, "receipts", f"{key}.{digest}.cross.json")

    def build(self, build: str) -> str:
        """The folder of one build: pointer, ready blend, build.json."""
        return os.path.join(self.path, "builds", build)

    def name(self, name: str) -> str:
        """The pointer file of one name."""
        return os.path.join(self.path, "names", name)

    def publish_object(self, private: str, sha256: str, suffix: str, size: int) -> str:
        """Give a finished private file its content's name, once; the name of the object.

        The file must be flushed already. ``link`` never replaces: when the object exists, it has the same
        content by its name, so its size is compared and ours is dropped.

        Raises:
            BlendexError: object_damaged when an object of that name has another size.
        """
        name = sha256 + suffix
        target = self.object(name)
        folder = os.path.dirname(target)
        os.makedirs(folder, exist_ok=True)
        try:
            os.link(private, target)
        except FileExistsError:
            if os.stat(target).st_size != size:
                raise BlendexError(
                    Code.OBJECT_DAMAGED,
                    f"this object has {os.stat(target).st_size} bytes instead of {size}.",
                    file=target,
                    next_step="Move it out of objects/ and retry: it will be written again.",
                ) from None
        flush_folder(folder)
        os.unlink(private)
        return name

    def set_aside(self, name: str) -> None:
        """Take a damaged object out of the way: what is read once more may well have the same name."""
        with contextlib.suppress(FileNotFoundError):
            os.rename(self.object(name), os.path.join(self.path, "trash", os.urandom(12).hex()))

    def dig(self, key: str) -> str:
        """A folder in ``trash/`` into which one mirror may be renamed; its name there."""
        name = f"{key}.{os.urandom(8).hex()}"
        os.mkdir(os.path.join(self.path, "trash", name), 0o700)
        return name

    def bury(self, path: str, grave: str) -> bool:
        """Rename a folder into a grave; False when the grave was closed, and the folder stays where it was.

        FileNotFoundError when there is no such folder.
        """
        place = os.path.join(self.path, "trash", grave)
        before = os.stat(path)
        if before.st_uid == os.geteuid():
            os.chmod(path, 0o700)  # renaming a folder writes its ".."
        try:
            os.rename(path, os.path.join(place, os.path.basename(path)))
        except FileNotFoundError:
            if os.path.isdir(place):
                raise
            with contextlib.suppress(FileNotFoundError):
                os.chmod(path, before.st_mode & 0o777)
            return False
        return True

    def close_grave(self, name: str) -> None:
        """From now on nothing can be renamed into this grave; what lies in it stays in ``trash/``."""
        with contextlib.suppress(FileNotFoundError):
            os.rename(os.path.join(self.path, "trash", name), os.path.join(self.path, "trash", os.urandom(12).hex()))

    def discard(self, path: str) -> None:
        """Take a folder out of sight by one rename, then delete it; a crash leaves it in ``trash/`` only."""
        grave = os.path.join(self.path, "trash", os.urandom(12).hex())
        if os.access(path, os.W_OK) or os.stat(path).st_uid == os.geteuid():
            os.chmod(path, 0o700)  # renaming a folder writes its "..": without this only root could
        os.rename(path, grave)
        with contextlib.suppress(FileNotFoundError):
            remove_tree(grave)  # unless whoever empties the trash is faster


def remove_tree(path: str) -> None:
    """Delete a tree whose folders may be read-only."""
    import shutil  # 0.4 MB with its compressors: children that index delete no trees

    for folder, _, _ in os.walk(path):
        os.chmod(folder, 0o700)
    shutil.rmtree(path)
