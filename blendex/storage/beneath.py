"""Opening a file below a folder, such that no symbolic link leads out of it: the kernel walks, and refuses.

``openat2`` with ``RESOLVE_BENEATH`` (Linux 5.6) resolves a path below an opened folder and fails with EXDEV at the
first step that would leave it, by ``..`` or a link, whoever swaps what meanwhile: nothing outside is opened, or looked
at. It has one number on all machines and no wrapper in Python's ``os``.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys

SYS_OPENAT2 = 437
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_BENEATH = 0x08
# What a sandbox that does not know the call answers, beside a kernel that does not.
_UNKNOWN = (errno.ENOSYS, errno.EPERM, errno.EINVAL)


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long
_SIZE = ctypes.c_size_t(ctypes.sizeof(_How))
_NUMBER = ctypes.c_long(SYS_OPENAT2)


def open_beneath(root: str, path: str, flags: int) -> int:
    """A descriptor of ``path``, which is ``root`` or lies below it by name.

    Args:
        root: a real path.
        path: absolute, beginning with ``root``.
        flags: as for ``os.open``.

    Raises:
        OSError: as ``os.open`` does; EXDEV when the path leads out of the folder.
    """
    relative = path[len(root.rstrip("/")) :].lstrip("/") or "."
    how = _How(flags | os.O_CLOEXEC, 0, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS)
    folder = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        while True:
            got: int = _syscall(_NUMBER, ctypes.c_int(folder), os.fsencode(relative), ctypes.byref(how), _SIZE)
            if got >= 0:
                _tell(got, path, flags)
                return got
            number = ctypes.get_errno()
            # EAGAIN: a rename somewhere kept the kernel from being sure; it says to ask again.
            if number not in (errno.EINTR, errno.EAGAIN):
                raise OSError(number, os.strerror(number), path)
    finally:
        os.close(folder)


def _tell(descriptor: int, path: str, flags: int) -> None:
    """As ``os.open`` does, for those who watch what a process opens; whoever objects has nothing opened."""
    try:
        sys.audit("open", path, None, flags)
    except BaseException:
        os.close(descriptor)
        raise


def _try() -> bool:
    try:
        os.close(open_beneath("/", "/", os.O_PATH | os.O_DIRECTORY))
    except OSError as error:
        if error.errno not in _UNKNOWN:
            raise
        return False
    return True


#: whether this kernel, and the sandbox around this process, know it
KNOWN = _try()
