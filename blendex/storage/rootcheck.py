"""Does the filesystem of a root do what the protocols of publishing stand on? Looked at by doing it.

Everything happens in one private folder under ``staging/`` that is gone afterwards, as is a root that was not there.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable, Iterator

from blendex.observability.diagnosis import Diagnosis, median_ms
from blendex.storage.root import create, flush_file, flush_filesystem, flush_folder, remove_tree

ROUNDS = 9
SLOW_FSYNC_MS = 100.0
# A token younger than this proves nothing and is read again (docs/concepts.md); coarser times would defeat that.
RACY_SECONDS = 2.0
SKEW_SECONDS = 2.0
LOW_SHARE = 0.05
# What a container keeps here is gone with it, and no job on another node sees it.
PASSING = {"overlay": "a container's own layer", "tmpfs": "memory", "ramfs": "memory"}


def check(root: str) -> Iterator[Diagnosis]:
    """Every check of a root. What fails for a reason of its own does not keep the others from being made.

    Args:
        root: an absolute path.
    """
    staging = os.path.join(root, "staging")
    place = os.path.join(staging, f"doctor.{os.urandom(8).hex()}")
    missing = [path for path in (staging, root) if not os.path.lexists(path)]
    try:
        os.makedirs(staging, exist_ok=True)
        os.mkdir(place)
    except OSError as error:
        yield Diagnosis(
            "write",
            "wrong",
            f"{root} cannot be written by uid {os.geteuid()} ({error.strerror}).",
            f"Mount it writable, and let uid {os.geteuid()} own it: chown {os.geteuid()} {root}",
        )
        return
    try:
        for look in CHECKS:
            name = look.__name__.removeprefix("_")
            try:
                yield look(root, place)
            except OSError as error:
                yield Diagnosis(
                    name,
                    "wrong",
                    f"{error.strerror} ({error.filename or place}).",
                    "Blendex needs this of a root: choose another filesystem, or other options of its mount.",
                )
    finally:
        remove_tree(place)
        for path in missing:
            with contextlib.suppress(OSError):  # somebody uses it by now
                os.rmdir(path)


def _mount(root: str, _place: str) -> Diagnosis:
    kind, point = filesystem(root)
    if kind in PASSING:
        return Diagnosis(
            "mount",
            "warning",
            f"{root} lies on {kind} ({PASSING[kind]}).",
            "Fine for a trial. Otherwise mount the filesystem that training jobs see, and set BLENDEX_ROOT below it.",
        )
    return Diagnosis("mount", "ok", f"{kind}, mounted at {point}.")


def _rename(_root: str, place: str) -> Diagnosis:
    """The commit of a publish: a finished, read-only folder takes its name."""
    taken = []
    for number in range(ROUNDS):
        made, name = os.path.join(place, f"made{number}"), os.path.join(place, f"name{number}")
        os.mkdir(made)
        create(os.path.join(made, "READY"), b"x", 0o444)
        begun = time.perf_counter()
        os.rename(made, name)
        taken.append(time.perf_counter() - begun)
        if os.path.exists(made) or not os.path.exists(os.path.join(name, "READY")):
            return Diagnosis("rename", "wrong", "a renamed folder is not where it should be.", _OTHER)
    old, new = os.path.join(place, "old"), os.path.join(place, "new")
    create(old, b"old")
    create(new, b"new")
    os.rename(new, old)
    with open(old, "rb") as file:
        if file.read() != b"new":
            return Diagnosis("rename", "wrong", "a file renamed over another one does not replace it.", _OTHER)
    return Diagnosis("rename", "ok", f"folders and files take a name at once, in {median_ms(taken):.2f} ms.")


def _link(_root: str, place: str) -> Diagnosis:
    """How an object gets its name, once, and how mirrors share sidecars."""
    first, second = os.path.join(place, "first"), os.path.join(place, "second")
    create(first, b"1")
    try:
        os.link(first, second)
    except OSError as error:
        return Diagnosis(
            "link",
            "wrong",
            f"hard links cannot be made ({error.strerror}).",
            "Objects get their names by link(2). Choose a filesystem that has it; object storage mounted as a "
            "folder has not.",
        )
    if os.stat(second).st_nlink != 2:
        return Diagnosis("link", "warning", "links are made, but not counted.", "Nothing, but collecting cannot tell.")
    try:
        os.link(first, second)
    except FileExistsError:
        return Diagnosis("link", "ok", "hard links can be made, and never replace.")
    return Diagnosis("link", "wrong", "a link replaces what had its name.", _OTHER)


def _exclusive(_root: str, place: str) -> Diagnosis:
    path = os.path.join(place, "exclusive")
    create(path, b"")
    try:
        create(path, b"")
    except FileExistsError:
        return Diagnosis("exclusive", "ok", "O_EXCL lets one of two creators win.")
    return Diagnosis("exclusive", "wrong", "O_EXCL lets two creators win.", _OTHER)


def _fsync(_root: str, place: str) -> Diagnosis:
    taken = []
    for number in range(ROUNDS):
        path = os.path.join(place, f"flushed{number}")
        create(path, b"x" * 4096)
        begun = time.perf_counter()
        flush_file(path)
        taken.append(time.perf_counter() - begun)
    flush_folder(place)
    flush_filesystem(place)
    spent = median_ms(taken)
    if spent > SLOW_FSYNC_MS:
        return Diagnosis(
            "fsync", "warning", f"fsync of 4 KiB takes {spent:.0f} ms.", "Publishing is slow: ask who runs the storage."
        )
    return Diagnosis("fsync", "ok", f"files, folders and filesystem can be flushed; 4 KiB take {spent:.2f} ms.")


def _mtime(_root: str, place: str) -> Diagnosis:
    path = os.path.join(place, "mtime")
    create(path, b"")
    wanted = 1_700_000_001_123_456_789
    os.utime(path, ns=(wanted, wanted))
    lost = abs(os.stat(path).st_mtime_ns - wanted) / 1e9
    if lost >= RACY_SECONDS:
        return Diagnosis(
            "mtime",
            "wrong",
            f"a time that is set comes back {lost:.3g} s off.",
            "Changed sources could go unnoticed. Choose a filesystem whose times are finer than 2 s.",
        )
    return Diagnosis("mtime", "ok", f"times of files are kept to {max(lost, 1e-9):.1g} s.")


def _clock(_root: str, place: str) -> Diagnosis:
    path = os.path.join(place, "clock")
    before = time.time()
    create(path, b"x")
    after = time.time()
    written = os.stat(path).st_mtime
    skew = max(before - written, written - after, 0.0)
    if skew > SKEW_SECONDS:
        return Diagnosis(
            "clock",
            "warning",
            f"the file server's clock is {skew:.1f} s off this machine's.",
            "Run NTP on both. Blendex judges files by the file server's clock; people who read logs do not.",
        )
    return Diagnosis(
        "clock", "ok", f"the file server's clock is within {skew + after - before:.2f} s of this machine's."
    )


def _symlink(root: str, place: str) -> Diagnosis:
    path = os.path.join(place, "symlink")
    os.symlink(place, path)
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_RDONLY | os.O_NOFOLLOW))
        return Diagnosis("symlink", "wrong", "O_NOFOLLOW follows symbolic links.", _OTHER)
    real = os.path.realpath(root)
    if real != root:
        return Diagnosis(
            "symlink",
            "warning",
            f"{root} is reached through a symbolic link; it is {real}.",
            f"Paths of mirrors begin with {root}: every job needs the same link, or set BLENDEX_ROOT={real}",
        )
    return Diagnosis("symlink", "ok", "the root is reached without symbolic links, and they can be refused.")


def _names(_root: str, place: str) -> Diagnosis:
    create(os.path.join(place, "Name"), b"")
    if os.path.exists(os.path.join(place, "name")):
        return Diagnosis(
            "names", "wrong", "names that differ in case are one.", "Two sources could share a sidecar. " + _OTHER
        )
    create(os.path.join(place, "n" * 255), b"")
    return Diagnosis("names", "ok", "case counts, and 255 bytes are a name.")


def _modes(root: str, place: str) -> Diagnosis:
    path = os.path.join(place, "mode")
    create(path, b"", 0o444)
    if stat.S_IMODE(os.stat(path).st_mode) & 0o222:
        return Diagnosis(
            "modes", "warning", "files cannot be made read-only.", "A training job could change a mirror it reads."
        )
    mode = stat.S_IMODE(os.stat(root).st_mode)
    if not mode & 0o005:
        return Diagnosis(
            "modes",
            "warning",
            f"the root has mode {mode:04o}: only its owner's user and group get in.",
            f"Jobs of other users cannot read mirrors. If they should: chmod o+rx {root}",
        )
    return Diagnosis("modes", "ok", "files can be made read-only, and other users get in.")


def _space(root: str, _place: str) -> Diagnosis:
    found = os.statvfs(root)
    shares = {"bytes": found.f_bavail / max(found.f_blocks, 1)}
    if found.f_files:  # some count none
        shares["inodes"] = found.f_favail / found.f_files
    says = f"{found.f_bavail * found.f_frsize / 2**30:.1f} GiB" + (
        f" and {found.f_favail} inodes are free." if found.f_files else " are free; inodes are not counted here."
    )
    if min(shares.values()) < LOW_SHARE:
        low = " and ".join(f"{share:.1%} of {name}" for name, share in shares.items() if share < LOW_SHARE)
        return Diagnosis("space", "warning", f"only {low} left: {says}", "Free some, or give the root more.")
    return Diagnosis("space", "ok", says)


_OTHER = "Choose another filesystem for the root."
CHECKS: tuple[Callable[[str, str], Diagnosis], ...] = (
    _mount, _rename, _link, _exclusive, _fsync, _mtime, _clock, _symlink, _names, _modes, _space,
)  # fmt: skip


def filesystem(path: str) -> tuple[str, str]:
    """The type and the mount point of the filesystem that a path lies on."""
    real = os.path.realpath(path)
    best, kind = "", "unknown"
    with open("/proc/self/mountinfo") as file:
        for line in file:
            left, _, right = line.partition(" - ")
            point = left.split()[4].encode().decode("unicode_escape")  # spaces are written \040
            inside = real == point or real.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(best):
                best, kind = point, right.split()[0]
    return kind, best
