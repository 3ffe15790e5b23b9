"""Index: read each source of a unit once; out comes one bundle."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

from blendex.errors import AWAY, PASSING, BlendexError, Code
from blendex.formats.bundle import BundleWriter
from blendex.formats.kinds import KINDS, build, recipe
from blendex.storage.driver import identity
from blendex.storage.failures import DamagedError
from blendex.storage.interface import Opened
from blendex.storage.profiles import is_object
from blendex.storage.root import Root
from blendex.storage.stores import Stores, open_stores
from blendex.units.bundles import private_bundle, publish
from blendex.units.sorts import sort_of

# Nothing that the bytes are to blame for: it is no answer for as long as their token is the same.
UNKEPT = AWAY | frozenset(
    {Code.SOURCE_CHANGED, Code.SOURCE_MISSING, Code.STORE_UNKNOWN, Code.STORE_DENIED, Code.STORE_BROKEN,
     Code.STORE_SETTINGS, Code.STORE_SDK}
)  # fmt: skip


def _index_one(
    source: Opened,
    now_ns: int,
    writer: BundleWriter,
    kind: str,
    path: str,
    address: str,
    compat: str,
    learn: bool,
    tell: Callable[[dict[str, Any]], None],
) -> dict[str, Any]:
    """Read one source into the bundle; its directory entry. ``learn``: and what its records are called.

    ``tell`` gets what was opened: should this be the death of us, the parent knows of what, and under which token.

    Raises:
        BlendexError: the source is bad, or changed while it was read; the bundle holds nothing of it.
    """
    with source:
        tell(
            {
                "in_hand": path,
                "sort": sort_of(kind, address, source.size),
                "token": source.stat.token,
                "racy": source.stat.racy(now_ns),
            }
        )
        if KINDS[kind].bound and is_object(address) and identity(source.stat.token) is None:
            raise BlendexError(
                Code.SOURCE_UNREADABLE,
                "the store tells neither a version nor a checksum of this object, and this kind of index needs one.",
                file=path,
                next_step="Turn on versioning or checksums of the bucket; of a file on a web server, name a copy.",
            )
        writer.begin()
        try:
            summary = build(kind, source, writer.write, compat, learn=learn)
            if not source.unchanged():
                raise BlendexError(
                    Code.SOURCE_CHANGED,
                    "the file changed while it was read.",
                    file=path,
                    next_step="Retry when nobody writes to it any more.",
                )
        except BaseException:
            writer.abort()
            raise
        entry = {
            "path": path,
            "kind": kind,
            "recipe": recipe(kind, compat),
            "strength": KINDS[kind].strength,
            "content_hash": summary.content_hash,
            "size": summary.size,
            "records": summary.records,
            "findings": [finding.as_dict() for finding in summary.findings],
            "facts": summary.facts,
            "address": address,
            "token": source.stat.token,
            "racy": source.stat.racy(now_ns),
        }
    writer.commit(entry, summary.learned)
    return entry


def _whole(kind: str) -> bool:
    """Whether a builder reads all of a source of this kind."""
    return KINDS[kind].strength == "full"


def _index(
    storage: Stores, source: Opened | BlendexError, now_ns: int, writer: BundleWriter,
    kind: str, path: str, address: str, compat: str, learn: bool, tell: Callable[[dict[str, Any]], None],
) -> None:  # fmt: skip
    """Read one source; an object that is another one by the time it is read, or damaged, is begun anew, once."""
    try:
        if isinstance(source, BlendexError):
            raise source
        _index_one(source, now_ns, writer, kind, path, address, compat, learn, tell)
    except BlendexError as error:
        if not is_object(address) or not (error.code is Code.SOURCE_CHANGED or isinstance(error, DamagedError)):
            raise
        again = storage.open(address, whole=_whole(kind))
        _index_one(again, storage.now_ns(), writer, kind, path, address, compat, learn, tell)


def run(arguments: dict[str, Any], report: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Index the sources of one unit.

    Args:
        arguments: root, roots, stores (endpoint profiles), attempt (names private files), compat,
            sources ([[kind, path, address, learn], …]), last (a store that is away was waited for: sources that it
            is away for are named, and not waited for any more).
        report: gets {"in_hand": path} before each source, and again with its sort and token once it is open, so that
            a death names its cause.

    Returns:
        object (name, or None when no source was good), size, entries (as in the bundle's directory), failures
        ([{kind, path, address, error, token, racy}, …]), figures of the storage, notes for people, paces (what was
        measured of endpoints).
    """
    root = Root(arguments["root"])
    failures = []
    holding: dict[str, Any] = {}

    def tell(data: dict[str, Any]) -> None:
        holding.clear()
        holding.update(data)
        report(data)

    with closing(open_stores(arguments, root.path)) as storage, private_bundle(root, arguments["attempt"]) as writer:
        opened = storage.open_many((address, _whole(kind)) for kind, _, address, *_ in arguments["sources"])
        for kind, path, address, *learn in arguments["sources"]:
            tell({"in_hand": path})
            now_ns = storage.now_ns()
            source = next(opened)
            try:
                _index(storage, source, now_ns, writer, kind, path, address, arguments["compat"], any(learn), tell)
            except BlendexError as error:
                if error.code in PASSING and not (error.code in AWAY and arguments.get("last")):
                    raise  # the disk or the store is away, for all sources: the unit is tried again
                error.file = path
                kept = holding if error.code not in UNKEPT else {}
                failures.append(
                    {
                        "kind": kind, "path": path, "address": address, "error": error.as_dict(),
                        "token": kept.get("token", ""), "racy": kept.get("racy", True),
                    }
                )  # fmt: skip
        name, size = publish(root, writer)
    return {
        "object": name,
        "size": size,
        "entries": writer.entries,
        "failures": failures,
        "figures": storage.figures.as_dict(),
        "notes": storage.figures.notes,
        "paces": storage.paces(),
    }
