"""Sources on a POSIX filesystem, inside the allowed roots and nowhere else."""

from __future__ import annotations

import errno
import os
import stat as stat_module
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Self

from blendex.errors import BlendexError, Code, passing
from blendex.storage import beneath
from blendex.storage.interface import Figures, Stat

if TYPE_CHECKING:
    from concurrent.futures import Future

STAT_BATCH = 64


def _stat(address: str, result: os.stat_result) -> Stat:
    # Never the device number: it differs between nodes that mount one filesystem.
    size, modified, changed, inode = result.st_size, result.st_mtime_ns, result.st_ctime_ns, result.st_ino
    token = f"{size}:{modified}:{changed}:{inode}"
    return Stat(address, size, token, modified, max(modified, changed), device=result.st_dev, inode=inode)


def _failure(address: str, error: OSError) -> BlendexError:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return BlendexError(
            Code.SOURCE_MISSING,
            "there is no such file.",
            file=address,
            next_step="Check the path, the base folder and the view of the submission.",
        )
    if (away := passing(error, address)) is not None:
        return away
    name = errno.errorcode.get(error.errno or 0, "EIO")
    return BlendexError(
        Code.SOURCE_UNREADABLE,
        f"the file cannot be read ({name}: {os.strerror(error.errno or errno.EIO)}).",
        file=address,
        next_step="Make it readable for the worker, then retry the build.",
    )


def _batches(addresses: Iterable[str]) -> Iterator[list[str]]:
    iterator = iter(addresses)
    while batch := list(islice(iterator, STAT_BATCH)):
        yield batch


class OpenedFile:
    """One open descriptor. ``fstat`` before and after a read tells whether the file changed meanwhile."""

    def __init__(self, address: str, descriptor: int, figures: Figures, stat: os.stat_result) -> None:
        self._descriptor = descriptor
        self._figures = figures
        self.stat = _stat(address, stat)
        self.size = self.stat.size

    def pread(self, length: int, offset: int) -> bytes:
        """Up to ``length`` bytes at ``offset``; fewer only at the end of the file."""
        data = os.pread(self._descriptor, length, offset)
        if 0 < len(data) < length:  # a network filesystem may answer in pieces
            pieces = [data]
            got = len(data)
            while got < length and (piece := os.pread(self._descriptor, length - got, offset + got)):
                pieces.append(piece)
                got += len(piece)
            data = b"".join(pieces)
        self._figures.reads += 1
        self._figures.bytes_read += len(data)
        return data

    def pread_into(self, buffer: memoryview, offset: int) -> int:
        """Fill ``buffer`` from ``offset``; the number of bytes read, 0 at the end of the file."""
        got = os.preadv(self._descriptor, [buffer], offset)
        self._figures.reads += 1
        self._figures.bytes_read += got
        return got

    def fileno(self) -> int:
        """The descriptor, for what reads by one."""
        return self._descriptor

    def unchanged(self) -> bool:
        """True while the file is the one that was opened: same size, times and inode."""
        return _stat(self.stat.address, os.fstat(self._descriptor)).token == self.stat.token

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)


class LocalStorage:
    """Files by absolute address.

    Args:
        roots: folders, symlinks resolved, outside of which nothing is read or revealed. ``("/",)`` allows all
            that the process may read.
        clock_dir: a folder on the file server whose clock decides what is racy.
        threads: how many files ``stat_many`` asks for at one time; on a cluster each answer is a round trip.
    """

    def __init__(self, roots: Sequence[str], clock_dir: str | None = None, threads: int = 1) -> None:
        self._roots = tuple(os.path.realpath(root) for root in roots)
        self._everything = "/" in self._roots
        self._clock_dir = clock_dir
        self._threads = threads
        self._skew_ns: int | None = None
        self._folders: dict[str, str] = {}
        self.figures = Figures()

    def _allowed(self, real: str) -> bool:
        return self._everything or any(real == root or real.startswith(root + "/") for root in self._roots)

    def _refuse(self, address: str) -> BlendexError:
        return BlendexError(
            Code.PATH_OUTSIDE_ROOTS,
            "this path lies outside the folders that the service may read.",
            file=address,
            next_step="Use a path inside an allowed root, or have its folder added to allowed_roots.",
        )

    def _real(self, address: str) -> str:
        folder, name = os.path.split(address)
        real = self._folders.get(folder)
        if real is None:
            if len(self._folders) > 65_536:
                self._folders.clear()
            real = self._folders[folder] = os.path.realpath(folder)
        return os.path.join(real, name)

    def _check(self, address: str) -> None:
        # Before any look at the file: the answer outside the roots must not tell what exists there.
        if not address.startswith("/") or "\0" in address:
            raise self._refuse(address)
        if self._everything:
            return
        real = self._real(address)
        if not self._allowed(real) or (os.path.islink(real) and not self._allowed(os.path.realpath(real))):
            raise self._refuse(address)

    def stat(self, address: str) -> Stat:
        """Size, times and token of one regular file.

        Raises:
            BlendexError: source_missing, source_unreadable, source_not_regular, path_outside_roots.
        """
        self.figures.stats += 1
        if self._everything or not beneath.KNOWN:
            self._check(address)
            try:
                result = os.stat(address)
            except OSError as error:
                raise _failure(address, error) from error
        else:
            descriptor = self._beneath(address, os.O_PATH)
            try:
                result = os.fstat(descriptor)
            finally:
                os.close(descriptor)
        self._regular(address, result.st_mode)
        return _stat(address, result)

    def _try_stat(self, addresses: list[str]) -> list[Stat | BlendexError]:
        answers: list[Stat | BlendexError] = []
        for address in addresses:
            try:
                answers.append(self.stat(address))
            except BlendexError as error:
                answers.append(error)
        return answers

    def stat_many(self, addresses: Iterable[str]) -> Iterator[Stat | BlendexError]:
        """``stat`` of each address, or its error, in order."""
        batches = _batches(addresses)
        if self._threads <= 1:
            for batch in batches:
                yield from self._try_stat(batch)
            return
        from concurrent.futures import ThreadPoolExecutor  # 0.5 MB with logging, which whoever indexes does not need

        with ThreadPoolExecutor(self._threads) as pool:
            # A few batches per thread are under way: 400,000 addresses must not queue 400,000 answers.
            under_way: deque[Future[list[Stat | BlendexError]]] = deque()
            for batch in batches:
                under_way.append(pool.submit(self._try_stat, batch))
                if len(under_way) >= self._threads * 4:
                    yield from under_way.popleft().result()
            while under_way:
                yield from under_way.popleft().result()

    def _regular(self, address: str, mode: int) -> None:
        if not stat_module.S_ISREG(mode):
            raise BlendexError(
                Code.SOURCE_NOT_REGULAR,
                "this is not a regular file.",
                file=address,
                next_step="Name the files themselves: folders, pipes and devices have no byte offsets.",
            )

    def _beneath(self, address: str, flags: int) -> int:
        """A descriptor of what lies at ``address``, opened below an allowed root or not at all.

        Links are followed while they stay below one root. One that leads to another root is resolved here and what it
        says opened there, again below: once more when a folder moved meanwhile, and no more.
        """
        if not address.startswith("/") or "\0" in address:
            raise self._refuse(address)
        real = self._real(address)
        for last in (False, True):
            root = next((root for root in self._roots if real == root or real.startswith(root + "/")), None)
            if root is None:
                raise self._refuse(address)
            try:
                return beneath.open_beneath(root, real, flags)
            except OSError as error:
                if error.errno not in (errno.EXDEV, errno.ENOENT, errno.ENOTDIR) or last:
                    if error.errno == errno.EXDEV:
                        raise self._refuse(address) from None
                    raise _failure(address, error) from error
            folder = os.path.dirname(address)
            self._folders.pop(folder, None)
            if (again := os.path.realpath(address)) == real:
                raise _failure(address, FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), address))
            real = again
        raise AssertionError

    def _descriptor(self, address: str, flags: int) -> int:
        flags |= os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        if not self._everything and beneath.KNOWN:
            return self._beneath(address, flags)
        self._check(address)
        try:
            descriptor = os.open(address, flags)
        except OSError as error:
            raise _failure(address, error) from error
        # Without openat2: between the check and the open a link may have moved: what was opened decides.
        if not self._everything and not self._allowed(os.readlink(f"/proc/self/fd/{descriptor}")):
            os.close(descriptor)
            raise self._refuse(address)
        return descriptor

    def open(self, address: str, *, whole: bool = False) -> OpenedFile:
        """The file at ``address``, opened for reading; raises what ``stat`` raises."""
        descriptor = self._descriptor(address, 0)
        self.figures.opens += 1
        self.figures.opened.append(address)
        try:
            stat = os.fstat(descriptor)
            self._regular(address, stat.st_mode)
            return OpenedFile(address, descriptor, self.figures, stat)
        except BaseException:
            os.close(descriptor)
            raise

    def open_many(self, items: Iterable[tuple[str, bool]]) -> Iterator[OpenedFile | BlendexError]:
        """Each file when its turn comes: the page cache reads ahead by itself."""
        for address, whole in items:
            try:
                yield self.open(address, whole=whole)
            except BlendexError as error:
                yield error

    def list(self, address: str) -> list[tuple[str, bool]]:
        """Names in one folder with whether each is a folder, sorted by name."""
        try:
            descriptor = self._descriptor(address, os.O_DIRECTORY)
        except BlendexError as error:
            if error.code is Code.SOURCE_MISSING:
                raise BlendexError(
                    Code.FOLDER_MISSING,
                    "there is no such folder.",
                    file=address,
                    next_step="Check the path, the base folder and the view of the submission.",
                ) from error
            raise
        try:
            with os.scandir(descriptor) as entries:
                return sorted((entry.name, entry.is_dir()) for entry in entries)
        finally:
            os.close(descriptor)

    def read(self, address: str, limit: int) -> bytes:
        """A whole small file, such as a nested blend.

        Raises:
            BlendexError: blend_too_large when it holds more than ``limit`` bytes; what ``open`` raises.
        """
        with self.open(address) as source:
            if source.size > limit:
                raise BlendexError(
                    Code.BLEND_TOO_LARGE,
                    f"the file has {source.size} bytes; at most {limit} are read.",
                    file=address,
                    next_step="Split it.",
                )
            return source.pread(limit, 0)

    def now_ns(self) -> int:
        """Now by the file server's clock, never later than by ours: the earlier one calls more tokens racy."""
        if self._skew_ns is None:
            self._skew_ns = 0
            if self._clock_dir is not None:
                # One lasting file: utime without a time lets the file server stamp it with its own clock.
                clock = os.path.join(self._clock_dir, ".clock")
                os.close(os.open(clock, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
                os.utime(clock)
                self._skew_ns = min(0, os.stat(clock).st_mtime_ns - time.time_ns())
        return time.time_ns() + self._skew_ns

    def paces(self) -> dict[str, dict[str, float]]:
        """Nothing: a page cache needs no pace."""
        return {}

    def close(self) -> None:
        """Nothing is kept open."""


def token_mtime_ns(token: str) -> int:
    """The modification time inside a token of a local file."""
    return int(token.split(":")[1])
