"""Bodies: YAML, a tar or the path of a file here become a submission; small JSON becomes fields."""

from __future__ import annotations

import difflib
import gzip
import io
import posixpath
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson
from starlette.requests import Request

from blendex.blend.load import Limits
from blendex.builds.site import Site
from blendex.builds.submission import Submission
from blendex.errors import BlendexError, Code
from blendex.storage.local import LocalStorage
from service.query import Options

# curl --data-binary says application/x-www-form-urlencoded unless told otherwise.
FORM = "application/x-www-form-urlencoded"
YAML_TYPES = ("application/yaml", "text/yaml", "application/x-yaml", "text/x-yaml", "text/plain", FORM, "")
TAR_TYPES = (
    "application/x-tar",
    "application/tar",
    "application/x-gtar",
    "application/gzip",
    "application/x-gzip",
)
JSON_TYPE = "application/json"

POSTED = "blend.yaml"
# Where the files of a tar without a base stand: its own relative paths work, and nothing else lies there.
NOWHERE = "/posted"
MOST_MEMBERS = 10_000
YAML_SUFFIXES = (".yaml", ".yml")
LONGEST_FIELD = 4_000


def _bad(message: str, next_step: str, file: str | None = None) -> BlendexError:
    return BlendexError(Code.BAD_REQUEST, message, file=file, next_step=next_step)


def read_submission(site: Site, content_type: str, body: bytes, options: Options) -> Submission:
    """The submission in a body.

    Raises:
        BlendexError: the body is not what its type says, or names what may not be read.
    """
    options = replace(options, world=site.seen(options.world))
    kind = content_type.partition(";")[0].strip().lower()
    limit = min(Limits().bytes, site.settings.max_submission_bytes)
    nested: dict[str, bytes] = {}
    if kind in TAR_TYPES:
        files = read_tar(body, limit, site.settings.max_submission_bytes)
        text, file, nested = _unpack(files, options)
    elif options.main is not None:
        raise _bad(
            "main= names a file in a tar, and this is none.",
            "Send a tar with Content-Type application/x-tar.",
        )
    elif kind == JSON_TYPE:
        text, file = _read_path(site, body, options, limit)
    elif kind in YAML_TYPES:
        if body[257:262] == b"ustar" or body[:2] == b"\x1f\x8b":
            raise _bad("this is a tar or a gzip file.", "Send it with Content-Type application/x-tar, and main=.")
        if len(body) > limit:
            raise BlendexError(
                Code.BLEND_TOO_LARGE,
                f"a blend has at most {limit} bytes.",
                next_step="Split it into nested files.",
            )
        text, file = body, POSTED
    else:
        raise _bad(
            f"a body of type {kind[:80]} is not understood.",
            "Send YAML (application/yaml), a tar of a folder (application/x-tar; curl -F loses the paths), "
            'or {"path": …} (application/json).',
        )
    return Submission(
        text=text,
        file=file,
        world=options.world,
        nested=nested,
        compat=options.compat,
        allow=options.allow,
        on_bad=options.on_bad,
        name=options.name,
        packs=options.packs,
        sidecars=options.sidecars,
        tars=options.tars,
        priority=options.priority,
        notify=options.notify,
        labels=options.labels,
    )


def hint(error: BlendexError, request: Request, body: bytes) -> BlendexError:
    """``error`` with the likely cause, when ``curl -d @file`` has thrown the line ends away."""
    kind = request.headers.get("content-type", "")
    if kind.startswith(FORM) and b"\n" not in body.rstrip() and error.code is not Code.BAD_REQUEST:
        error.next_step = f"{error.next_step} If this came by curl -d: use --data-binary, -d drops line ends.".strip()
    return error


def _read_path(site: Site, body: bytes, options: Options, limit: int) -> tuple[bytes, str]:
    path = parse_fields(body, ("path",)).get("path", "")
    if not path.startswith("/"):
        raise _bad("path is missing or not absolute.", 'Send {"path": "/absolute/blend.yaml"}.')
    return LocalStorage(site.roots).read(options.world.address(path), limit), path


def _unpack(files: Mapping[str, bytes], options: Options) -> tuple[bytes, str, dict[str, bytes]]:
    """The main file of a tar, its name, and the other files by the address at which they are looked for."""
    main = options.main
    if main is None:
        if len(files) != 1:
            raise _bad(
                f"the tar holds {len(files)} YAML files.",
                "Say which one is the blend: main=path/in/the/tar.yaml.",
            )
        main = next(iter(files))
    main = posixpath.normpath(main)
    if main not in files:
        near = difflib.get_close_matches(main, files, 1)
        raise _bad(
            f"the tar holds no YAML file {main[:200]}.",
            f"Did you mean {near[0]}?" if near else "Give its path as tar -t prints it.",
        )
    folder = posixpath.dirname(main)
    base = options.world.base
    here = posixpath.join(NOWHERE, folder) if base is None else base
    nested = {}
    for name, text in files.items():
        if name != main:
            seen = posixpath.normpath(posixpath.join(here, posixpath.relpath(name, folder or ".")))
            nested[options.world.address(seen)] = text
    return files[main], main if base is not None else posixpath.join(NOWHERE, main), nested


class _Counted(io.RawIOBase):
    """Bytes that may be read up to a limit: a gzip of 60 KB can hold 60 MB."""

    def __init__(self, stream: io.BufferedIOBase, limit: int) -> None:
        self._stream = stream
        self._limit = limit
        self._left = limit

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(self._left + 1 if size < 0 else min(size, self._left + 1))
        self._left -= len(data)
        if self._left < 0:
            raise BlendexError(
                Code.BLEND_TOO_LARGE,
                f"the tar holds more than {self._limit} bytes.",
                next_step="Pack the YAML files only, without data.",
            )
        return data


def read_tar(body: bytes, file_limit: int, limit: int) -> dict[str, bytes]:
    """The YAML files in a tar, by their path in it.

    The archive is read forwards only and in memory; nothing in it is ever a path on this machine.

    Raises:
        BlendexError: bad_request for members that are not plain files with plain names; blend_too_large.
    """
    packed = io.BytesIO(body)
    stream = gzip.GzipFile(fileobj=packed) if body[:2] == b"\x1f\x8b" else packed
    files: dict[str, bytes] = {}
    counted: Any = _Counted(stream, limit)
    try:
        with tarfile.open(fileobj=counted, mode="r|") as tar:
            for number, member in enumerate(tar):
                if number >= MOST_MEMBERS:
                    raise _bad(f"the tar has more than {MOST_MEMBERS} members.", "Pack the YAML files only.")
                name = _member_name(member)
                if not member.isreg() or not name.endswith(YAML_SUFFIXES):
                    continue
                if name in files:
                    raise _bad("the tar holds this file twice.", "Pack it once.", name)
                if not 0 <= member.size <= file_limit:
                    raise BlendexError(
                        Code.BLEND_TOO_LARGE,
                        f"it has more than {file_limit} bytes.",
                        file=name,
                        next_step="Split it.",
                    )
                content = tar.extractfile(member)
                assert content is not None
                with content:
                    files[name] = content.read()
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, UnicodeError, ValueError) as error:
        raise _bad(
            "this is no whole tar.", "Make it with tar -cf - or tar -czf -, and send it with --data-binary."
        ) from error
    if not files:
        raise _bad("the tar holds no .yaml or .yml file.", "Pack the folder of the blend.")
    return files


def _member_name(member: tarfile.TarInfo) -> str:
    name = posixpath.normpath(member.name)
    plain = not name.startswith("/") and name.split("/")[0] != ".." and "\\" not in name and name.isprintable()
    if not plain:
        raise _bad(
            "a member's name is absolute, leaves the folder, or is not plain text.",
            "Pack with tar -C FOLDER .",
        )
    if not (member.isreg() or member.isdir()) or member.issparse():
        raise _bad(
            "this member is a link or no regular file.",
            "Pack with --dereference, and without --sparse.",
            name,
        )
    return name


def parse_fields(body: bytes, known: tuple[str, ...]) -> dict[str, str]:
    """The text fields of a small JSON object.

    Raises:
        BlendexError: bad_request.
    """
    try:
        value = orjson.loads(body) if body.strip() else {}
    except orjson.JSONDecodeError as error:
        raise _bad("the body is not JSON.", f"Send an object with {', '.join(known)}.") from error
    if not isinstance(value, dict):
        raise _bad("the body is not a JSON object.", f"Send an object with {', '.join(known)}.")
    for key, item in value.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            raise _bad(
                f"the field {key[:80]!r} is unknown.",
                (f"Did you mean {near[0]}? " if near else "") + f"Known are: {', '.join(known)}.",
            )
        if not isinstance(item, str) or len(item) > LONGEST_FIELD or "\0" in item:
            raise _bad(f"{key} is not a text of at most {LONGEST_FIELD} characters.", "Correct it.")
    return value


async def read_fields(request: Request, known: tuple[str, ...]) -> dict[str, str]:
    """The fields in the body of a request; none when it has no body."""
    return parse_fields(await request.body(), known)
