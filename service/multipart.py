"""``multipart/form-data``, as ``curl -F`` sends it: a few small files, already in memory."""

from __future__ import annotations

import re

from blendex.errors import BlendexError, Code

MOST_PARTS = 1000
_BOUNDARY = re.compile(r'boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))', re.IGNORECASE)
_PARAMETER = re.compile(r'(?:^|;)\s*(name|filename)="((?:[^"\\]|\\.)*)"', re.IGNORECASE)


def _bad(message: str) -> BlendexError:
    return BlendexError(
        Code.BAD_REQUEST,
        f"the multipart body cannot be read: {message}.",
        next_step="Send it with curl -F config=@train.yaml.",
    )


def parts(content_type: str, body: bytes) -> list[tuple[str, str, bytes]]:
    """Name, file name and content of each part, in order.

    Raises:
        BlendexError: bad_request.
    """
    found = _BOUNDARY.search(content_type)
    if found is None:
        raise _bad("it names no boundary")
    mark = b"\r\n--" + (found.group(1) or found.group(2)).encode("latin-1", "replace")
    pieces = (b"\r\n" + body).split(mark, MOST_PARTS + 2)
    if len(pieces) > MOST_PARTS + 1:
        raise _bad(f"it has more than {MOST_PARTS} parts")
    if len(pieces) < 3 or not pieces[-1].startswith(b"--"):
        raise _bad("it does not end")
    return [_part(piece) for piece in pieces[1:-1]]


def _part(piece: bytes) -> tuple[str, str, bytes]:
    head, blank, content = piece.partition(b"\r\n\r\n")
    if not blank:
        raise _bad("a part has no headers")
    for line in head.decode("utf-8", "replace").split("\r\n"):
        key, _, value = line.partition(":")
        if key.strip().lower() == "content-disposition":
            given = {name.lower(): re.sub(r"\\(.)", r"\1", text) for name, text in _PARAMETER.findall(value)}
            if "name" in given:
                return given["name"], given.get("filename", ""), content
    raise _bad("a part has no name")
