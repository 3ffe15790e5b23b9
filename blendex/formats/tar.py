"""One walk over the headers of a tar, used by every kind of tar sidecar.

The rule is that of Python 3.11 tarfile, which lhotse 2.0.0a7 and NeMo 3.0.0 iterate: where a member begins
(at its first extended header, but after a global one), what it is called, and where the next one is. Reading
only headers, 2-4 us each, replaces tarfile's 25 us and more, or reading everything.

Where tarfile stops in silence, this walk fails: it ends at a block of zeros or exactly at the end of the
file.

Content hash of all kinds of tar (strength ``structure``): BLAKE3 over every block read as a header, in file
order, with the payload blocks of extended headers, extra blocks of old GNU sparse headers and PAX 1.0 sparse
maps; then two unsigned 64-bit little-endian numbers: the size of the file, and the position of the first byte
other than 0 after the end marker (the size, if there is none). Sidecar and findings are functions of what is
hashed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

import numpy as np
from blake3 import blake3

from blendex.errors import BlendexError, Code
from blendex.formats import tarheader as th
from blendex.formats.findings import Collector
from blendex.formats.source import Readable, changed, read_full, refuse_compressed
from blendex.formats.tarheader import BLOCK, BadHeaderError

BATCH = 512  # headers checked at a time: 256 KiB, in L2
_BATCH_BYTES = 1 << 20  # and no more than this of blocks waiting to be hashed
_MAX_PAYLOAD = 4 << 20  # of extended headers; tarfile has no limit, real ones take kilobytes
_MAX_CHAIN = 64  # extended headers before one member; tarfile dies of recursion at about 300
_WINDOW = 64 * 1024
_SPARSE_KEYS = (b"name", b"size", b"realsize", b"map", b"major", b"minor")
_SMALL_HOP = 6 * 1024  # mean bytes from header to header below which a window beats single reads

# The records that decide where members are and what they are called
_PAX_KEYS = frozenset((b"path", b"size", *(b"GNU.sparse." + key for key in _SPARSE_KEYS)))


Member: TypeAlias = tuple[int, bytes, int, int, bool]
"""A member as tarfile tells it, a bare tuple since a named one costs a tenth of the whole walk:

byte of its first header; its name in raw bytes, equal exactly if tarfile's decoded names are; its type as an
int; bytes of data stored in the archive; whether an extended header of its own stands before it.
"""


@dataclass(frozen=True, slots=True)
class Walk:
    """How a walk ended.

    Attributes:
        members: how many there are.
        end: byte of the end marker, or the size of the file where there is none.
        marked: there is an end marker.
        content_hash: hex BLAKE3, see the module.
    """

    members: int
    end: int
    marked: bool
    content_hash: str


def walk(source: Readable, found: Collector, visit: Callable[[list[Member]], None]) -> Walk:
    """Visits all members of a tar in batches, each after its headers were checked, in file order.

    Args:
        source: the archive.
        found: receives the findings that every kind of tar shares.
        visit: receives up to ``BATCH`` members at a time.

    Raises:
        BlendexError: ``TAR_EMPTY``, ``TAR_BAD_HEADER``, ``TAR_TRUNCATED``, ``PATH_COMPRESSED``,
        ``SOURCE_CHANGED``.
    """
    return _Walker(source, found, visit).run()


class _Walker:
    def __init__(self, source: Readable, found: Collector, visit: Callable[[list[Member]], None]) -> None:
        self._source, self._found, self._visit = source, found, visit
        self._size = source.size
        self._hash = blake3()
        # What waits for the next check: headers, their places, all blocks to be hashed, and the members
        self._headers: list[bytes] = []
        self._places: list[int] = []
        self._blocks: list[bytes] = []
        self._waiting = 0  # bytes of payload in _blocks
        self._batch: list[Member] = []
        self._count = 0
        self._globals: dict[bytes, bytes] = {}
        self._window = memoryview(bytearray(_WINDOW))
        self._window_at = self._window_end = 0
        self._windowed = False

    def run(self) -> Walk:
        if self._size == 0:
            raise BlendexError(
                Code.TAR_EMPTY, "the file has 0 bytes", byte=0, next_step="Copy or pack the shard again."
            )
        try:
            end, marked = self._members()
        except BadHeaderError as bad:  # raised with the place of its header as the last one noted
            self._fail(str(bad), self._places[-1])
        self._flush()
        if not marked:
            self._found.add("no_end_marker", end)
        if self._source.pread(1, self._size):
            raise changed(self._size)
        tail = self._first_after(end + BLOCK) if marked else self._size
        if tail < self._size:
            self._found.add("data_after_end", tail)
        if self._count == 0:
            self._found.add("empty_archive", 0)
        self._hash.update(self._size.to_bytes(8, "little") + tail.to_bytes(8, "little"))
        return Walk(self._count, end, marked, self._hash.hexdigest())

    def _members(self) -> tuple[int, bool]:
        """Walks to the end; where it is, and whether it is marked. Plain files take the short way."""
        at = start = since = 0
        step = 32  # the first batches are short, to choose early how to read
        headers, places, blocks, batch = self._headers, self._places, self._blocks, self._batch
        size_of, read = th.size_of, self._source.pread
        while at < self._size:
            header = self._from_window(BLOCK, at) if self._windowed else read(BLOCK, at)
            if len(header) != BLOCK:
                self._short(at, header)
            kind = header[156]
            if kind == 0 and header == th.ZERO_BLOCK:
                return at, True
            headers.append(header)
            places.append(at)
            blocks.append(header)
            if kind != 0x30 or self._globals:
                at = self._member(header, at)
            else:
                try:
                    size = int(header[124:135], 8) if header[135] in b"\0 " else size_of(header[124:136])
                except ValueError:
                    size = size_of(header[124:136])
                if size < 0:
                    raise BadHeaderError("the size is negative")
                cut = header.find(0)
                name = header[: cut if 0 <= cut < 100 else 100]
                if header[345]:
                    name = th.text(header[345:500]) + b"/" + name
                batch.append((at, name, 0x30, size, False))
                at += BLOCK + ((size + 511) & -512)
            since += 1
            if since >= step or self._waiting > _BATCH_BYTES:
                self._flush()
                self._windowed = at - start < since * _SMALL_HOP
                start, since, step = at, 0, BATCH
        if at > self._size:
            self._truncated("the data of the last member is cut off", places[-1])
        return at, False

    def _member(self, header: bytes, at: int) -> int:
        """The general rule: one member with the headers before it, the first of them noted. The next place.

        tarfile recurses over extended headers, so their effects are applied from the last to the first.
        """
        start = at
        chain: list[tuple[int, int, bytes | dict[bytes, bytes]]] = []
        while header[156] in th.EXTENDED:
            size = th.size_of(header[124:136])
            if at - start + size > _MAX_PAYLOAD or len(chain) == _MAX_CHAIN:
                raise BadHeaderError("extended headers of this size or number are not read")
            payload = self._payload(at + BLOCK, th.blocks(size), at)
            chain.append((header[156], at, self._extension(header[156], payload, size)))
            at += BLOCK + len(payload)
            header = self._read(BLOCK, at)
            if len(header) != BLOCK:
                self._short(at, header)
            if header == th.ZERO_BLOCK:
                raise BadHeaderError("an extended header has no member after it")
            self._headers.append(header)
            self._places.append(at)
            self._blocks.append(header)
        place = offset = at
        kind = header[156]
        size = stored = th.size_of(header[124:136])
        name = th.text(header[:100])
        if kind == 0 and name.endswith(b"/"):
            kind = ord("5")
        prefix = th.text(header[345:500])
        if prefix and kind != th.SPARSE:
            name = prefix + b"/" + name
        data = at + BLOCK
        sparse = kind == th.SPARSE
        if sparse:
            data = self._old_sparse(header, data)
        else:
            name, size = _apply(self._globals, name, size)
        has_data = kind not in th.NO_DATA
        following = data + th.blocks(stored) if has_data else data
        body = data
        mapped = extended = False
        for how, before, content in reversed(chain):
            if isinstance(content, bytes):
                if how == th.LONG_NAME:
                    name = content
                offset, extended = before, True
                continue
            is_map = _is_sparse_map(content)
            if is_map or b"GNU.sparse.map" in content or b"GNU.sparse.size" in content:
                sparse = True
            if is_map:
                if mapped:
                    raise BadHeaderError("a sparse member has two maps")
                mapped = True
                data = self._sparse_map(data, place)
            if how != th.PAX_GLOBAL:
                name, size = _apply(content, name, size)
                offset, extended = before, True
                if b"size" in content:
                    following = data + th.blocks(size) if has_data else data
                    if sparse and following != body + th.blocks(int(content[b"size"])):
                        raise BadHeaderError("a sparse member has a PAX size that tarfile 3.11 steps wrong by")
                    if not sparse and size != stored:
                        self._found.add("pax_size", offset, self._count + len(self._batch))
                        stored = size
        self._note((offset, name, kind, stored, extended), sparse)
        return following

    def _note(self, member: Member, sparse: bool) -> None:
        offset, name, kind, size, _ = member
        record = self._count + len(self._batch)
        if sparse:
            self._found.add("sparse_member", offset, record)
        elif size and kind not in th.REGULAR:
            self._found.add("link_size", offset, record)
        if b"\0" in name:
            self._found.add("nul_in_name", offset, record)
        self._batch.append(member)

    def _extension(self, kind: int, payload: bytes, size: int) -> bytes | dict[bytes, bytes]:
        if kind in (th.LONG_NAME, th.LONG_LINK):
            return th.text(payload)
        records = {key: value for key, value in th.pax_records(payload, size) if key in _PAX_KEYS}
        if kind == th.PAX_GLOBAL:
            self._globals.update(records)
            return self._globals  # tarfile shares one dict too, so that later global headers count
        return {**self._globals, **records}

    def _payload(self, at: int, length: int, header_at: int) -> bytes:
        if at + length > self._size:
            self._truncated("an extended header is cut off", header_at)
        payload = self._read(length, at)
        if len(payload) < length:
            raise changed(at + len(payload))
        self._blocks.append(payload)
        self._waiting += length
        return payload

    def _old_sparse(self, header: bytes, at: int) -> int:
        """Checks an old GNU sparse header and its extra blocks; where the data begins."""
        th.check_sparse_fields(header, 386, 4)
        th.number(header[483:495])
        more, first = header[482], at
        while more:
            if at - first > _MAX_PAYLOAD:
                raise BadHeaderError("a sparse map of this size is not read")
            block = self._payload(at, BLOCK, first - BLOCK)
            th.check_sparse_fields(block, 0, 21)
            more = block[504]
            at += BLOCK
        return at

    def _sparse_map(self, at: int, header_at: int) -> int:
        """Reads a PAX 1.0 sparse map from the data; where the fragments begin."""
        numbers = wanted = 0
        rest = b""
        first = at
        while wanted == 0 or numbers < wanted:
            if at - first > _MAX_PAYLOAD:
                raise BadHeaderError("a sparse map of this size is not read")
            *fields, rest = (rest + self._payload(at, BLOCK, header_at)).split(b"\n")
            at += BLOCK
            if wanted == 0:
                if not fields:
                    raise BadHeaderError("a sparse map does not begin with its length")
                wanted = 1 + 2 * th.sparse_map_number(fields[0])
            for field in fields[: wanted - numbers]:
                th.sparse_map_number(field)
            numbers += len(fields)
        return at

    def _read(self, length: int, at: int) -> bytes:
        if self._windowed and length <= _WINDOW:
            return self._from_window(length, at)
        return self._source.pread(length, at)

    def _from_window(self, length: int, at: int) -> bytes:
        if at + length > self._window_end:
            self._window_at = at
            self._window_end = at + read_full(self._source, self._window, at)
        start = at - self._window_at
        return bytes(self._window[start : min(start + length, self._window_end - self._window_at)])

    def _flush(self) -> None:
        """Checks what waits, hands the members over, and forgets them."""
        if self._headers:
            joined = b"".join(self._blocks)
            self._verify(joined if len(self._blocks) == len(self._headers) else b"".join(self._headers))
            self._hash.update(joined)
            self._visit(self._batch)
            self._count += len(self._batch)
        self._headers.clear()
        self._places.clear()
        self._blocks.clear()
        self._batch.clear()
        self._waiting = 0

    def _verify(self, headers: bytes) -> None:
        """Raises for the first header in the batch that is none."""
        table = np.frombuffer(headers, np.uint8).reshape(-1, BLOCK)
        for row in np.flatnonzero(~th.plain(table)).tolist():
            try:
                th.check(self._headers[row])
            except BadHeaderError as bad:
                self._raise(str(bad), self._places[row], self._headers[row])
        for row in np.flatnonzero(th.name_with_nul(table)).tolist():
            self._found.add("nul_in_name", self._places[row])

    def _first_after(self, at: int) -> int:
        """Position of the first byte other than 0 from ``at`` on, or the size of the file."""
        while at < self._size:
            part = self._window[: min(_WINDOW, self._size - at)]
            if read_full(self._source, part, at) < len(part):
                raise changed(at)
            used = np.frombuffer(part, np.uint8) != 0
            if used.any():
                return at + int(used.argmax())
            at += len(part)
        return self._size

    def _short(self, at: int, header: bytes) -> NoReturn:
        """No whole header at ``at``: after the file's end, or a file that got shorter."""
        if at + BLOCK <= self._size:
            raise changed(at + len(header))
        if at == 0:
            refuse_compressed(header[:8])
            self._raise("the file is shorter than one header", 0, header)
        self._truncated("the archive ends within a header", at)

    def _truncated(self, reason: str, byte: int) -> NoReturn:
        if self._headers:
            self._verify(b"".join(self._headers))  # a broken header before is the cause, and sends the walk anywhere
        raise BlendexError(Code.TAR_TRUNCATED, reason, byte=byte, next_step="Copy the shard again, or pack it again.")

    def _fail(self, reason: str, byte: int) -> NoReturn:
        self._verify(b"".join(self._headers))
        self._raise(reason, byte, self._headers[-1])

    def _raise(self, reason: str, byte: int, header: bytes) -> NoReturn:
        if byte == 0:
            refuse_compressed(header[:8])
            if header[257:262] != b"ustar":
                reason = f"not a tar: {reason}"
        raise BlendexError(
            Code.TAR_BAD_HEADER,
            f"bad header: {reason}" if byte else reason,
            byte=byte,
            next_step="Copy the shard again, or pack it again; nothing after this byte can be found.",
        )


def _is_sparse_map(pax: dict[bytes, bytes]) -> bool:
    """PAX 1.0, unless 0.1 or 0.0 claims the member first."""
    return (
        b"GNU.sparse.map" not in pax
        and b"GNU.sparse.size" not in pax
        and pax.get(b"GNU.sparse.major") == b"1"
        and pax.get(b"GNU.sparse.minor") == b"0"
    )


def _apply(pax: dict[bytes, bytes], name: bytes, size: int) -> tuple[bytes, int]:
    """Name and size after the records of a PAX header, in the order in which tarfile's dict holds them."""
    for key, value in pax.items():
        if key == b"path":
            name = value.rstrip(b"/")
        elif key == b"GNU.sparse.name":
            name = value
        elif key in (b"size", b"GNU.sparse.size", b"GNU.sparse.realsize"):
            size = int(value)
    return name, size
